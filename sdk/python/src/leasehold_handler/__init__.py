"""The child side of Leasehold: one process, one request, one result.

`run_handler(RequestType, handler)` reads the request that the worker gave this process, calls the
handler, and reports what came of it in the form the worker reads: the result, the error, or the wish
to be tried again later (`park`). `progress` says how far the run has come, `context` which run it is.

Nothing here needs another package. `WorkerRequest` and `NonEmptyStr` are pydantic's where pydantic 2
is installed and plain ones where it is not; pydantic is imported when one of the two is asked for,
and never otherwise.
"""

from __future__ import annotations

from ._channel import progress
from ._context import context
from ._request import ValidationError
from ._result import MalformedResult, ResultTooLarge
from ._run import park, run_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._models import NonEmptyStr, WorkerRequest

__all__ = [
    "MalformedResult",
    "NonEmptyStr",
    "ResultTooLarge",
    "ValidationError",
    "WorkerRequest",
    "context",
    "park",
    "progress",
    "run_handler",
]


def __getattr__(name: str) -> object:
    if name not in ("NonEmptyStr", "WorkerRequest"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import _models as source
    except ModuleNotFoundError as error:
        # A pydantic that is there but broken is an error, not a reason to check less.
        if error.name != "pydantic":
            raise
        from . import _fields as source
    value = globals()[name] = getattr(source, name)
    return value
