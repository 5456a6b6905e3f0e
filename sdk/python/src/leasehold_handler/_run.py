"""One run: request in, handler called, and exactly one ending out."""

from __future__ import annotations

import math
import os
import sys

from . import _request, _result
from ._channel import Channel, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypeVar, overload

    Request = TypeVar("Request")

FAILED = 1
PARKED = 75


class _Parked(BaseException):
    """Not an `Exception`, so that a handler's `except Exception` lets it through."""

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__(reason, retry_after)
        self.reason = reason
        self.retry_after = retry_after


def park(reason: str, retry_after: float) -> NoReturn:
    """Ends the run without a result: the item is tried again, and this attempt is not counted.

    For what only time will mend, such as a quota that is used up. `retry_after` is in seconds, 0 or
    more. Call it on the thread that runs the handler: it works by raising an exception, which
    `except Exception` lets through and `finally` sees. `ValueError` or `TypeError` without a reason
    or with a time that is none.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("park: give the reason in words")
    if isinstance(retry_after, bool) or not isinstance(retry_after, (int, float)):
        raise TypeError(f"park: retry_after is a number of seconds, not {retry_after!r}")
    if not math.isfinite(retry_after) or retry_after < 0:
        raise ValueError(f"park: retry_after is 0 seconds or more, not {retry_after}")
    raise _Parked(reason, retry_after)


if TYPE_CHECKING:

    @overload
    def run_handler(handler: Callable[[dict[str, Any]], Any], /) -> NoReturn: ...
    @overload
    def run_handler(
        request_type: type[Request], handler: Callable[[Request], Any], /
    ) -> NoReturn: ...


def run_handler(request_type: Any, handler: Any = None, /) -> NoReturn:
    """Runs the handler on the request of this process, reports how it ended, and exits.

    `request_type` is a pydantic model, a dataclass, a `WorkerRequest` or `dict`; without one the
    handler is given a `dict`. The handler returns a pydantic model, a dataclass or a mapping; it
    may be an `async` function.

    - From here on standard output belongs to the result: prints, C libraries and subprocesses write
      to standard error instead. What printed before and left Python's buffer cannot be taken back,
      so import noisy packages inside the handler.
    - An exception becomes a failure under its class name, with the traceback on standard error.
      `SystemExit` and `KeyboardInterrupt` pass through and end the process as they always do.
    - A run that is to be stopped gets SIGTERM first and SIGKILL after a grace. Nothing is done
      about SIGTERM here: install a handler of your own where there is something to tidy up.
    - It does not return. Once the result is written, exit hooks run for at most five seconds, and
      threads that are still running are not waited for.
    """
    started_in = os.getpid()
    channel = Channel()
    try:
        if handler is None:
            request_type, handler = dict, request_type
        request = _request.parse(request_type, _request.receive())
        result = handler(request)
        if hasattr(result, "__await__"):
            result = _awaited(result)
        data, code = _result.encode(result), 0
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if os.getpid() != started_in:
            # A copy that the handler forked has no result to report.
            raise
        if isinstance(error, _Parked):
            fields = {"reason": error.reason, "retry_after": error.retry_after}
            data, code = _result.encode_words(fields), PARKED
        else:
            _say_traceback(error)
            data, code = _result.envelope(error), FAILED
    if os.getpid() != started_in:
        sys.exit(0)
    channel.finish(data, code)


def _awaited(result: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def _say_traceback(error: BaseException) -> None:
    import traceback

    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as failure:
        text = f"{type(error).__name__} (no traceback: {type(failure).__name__})\n"
    say(text)
