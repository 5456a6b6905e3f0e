"""The child side of Leasehold: one process, one request, one result.

`run_handler(RequestType, handler)` reads the request that the worker gave this process, calls the
handler, and reports what came of it in the form the worker reads: the result, the error, or the
wish to be tried again later (`park`). `progress` says how far the run has come, `context` which run
it is.

Nothing here needs another package. `WorkerRequest` is a pydantic model where pydantic 2 is
installed and a plain class where it is not; pydantic is imported when `WorkerRequest` is asked for,
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
    from ._fields import NonEmptyStr
    from ._models import WorkerRequest

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
    # Late, because what these two need takes longer to import than everything else here.
    if name == "NonEmptyStr":
        from . import _fields

        globals()[name] = _fields.NonEmptyStr
    elif name == "WorkerRequest":
        globals()[name] = _worker_request()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def _worker_request() -> type:
    try:
        from . import _models
    except ModuleNotFoundError as error:
        # A pydantic that is there but broken is an error, not a reason to check less.
        if error.name != "pydantic":
            raise
        from . import _fields

        return _fields.WorkerRequest
    return _models.WorkerRequest
