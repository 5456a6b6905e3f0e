"""`WorkerRequest` and `NonEmptyStr` on pydantic 2."""

from __future__ import annotations

from typing import Annotated

import pydantic

if not hasattr(pydantic, "StringConstraints"):
    # Pydantic 1: its models work as request and result types, but these two need pydantic 2.
    raise ModuleNotFoundError("pydantic 2 is not installed", name="pydantic")

NonEmptyStr = Annotated[
    str, pydantic.StringConstraints(min_length=1, strip_whitespace=True)
]


class WorkerRequest(pydantic.BaseModel):
    """Base of request types: frozen, and fields that the type does not name are ignored."""

    # An error travels into logs and dead letters, where the values of a request do not belong.
    model_config = pydantic.ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True
    )
