"""`WorkerRequest` on pydantic 2."""

from __future__ import annotations

import pydantic

if not hasattr(pydantic, "RootModel"):
    # Pydantic 1: its models work as request and result types, but this base needs pydantic 2.
    raise ModuleNotFoundError("pydantic 2 is not installed", name="pydantic")


class WorkerRequest(pydantic.BaseModel):
    """Base of request types: frozen, and fields that the type does not name are ignored."""

    # An error travels into logs and dead letters, where the values of a request do not belong.
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)
