"""The request: where it comes from, and how it becomes the type the handler asks for."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REQUEST_VARIABLE = "WORKER_REQUEST"


class ValidationError(ValueError):
    """The request is not what the handler's request type asks for.

    Has the name of pydantic's error, so that one registered name holds for both.
    """


def receive() -> bytes:
    """The request as the worker sent it: the variable, or standard input without one."""
    text = os.environ.get(REQUEST_VARIABLE)
    if text is not None:
        return os.fsencode(text)
    raw = b""
    try:
        # A person at a terminal is told, not waited for.
        if not os.isatty(0):
            with open(0, "rb", closefd=False) as stream:
                raw = stream.read()
    except OSError:
        # No standard input is no request either.
        pass
    if not raw:
        raise ValidationError(
            f"there is no request: give it in {REQUEST_VARIABLE} or on standard input"
        )
    return raw


def parse(request_type: Any, raw: bytes) -> object:
    """The request as the type asked for.

    Raises pydantic's `ValidationError` for its models and ours for everything else; `TypeError` for
    a type that is neither a model, a dataclass, a plain `WorkerRequest` nor `dict`.
    """
    if hasattr(request_type, "model_validate_json"):
        return request_type.model_validate_json(raw)
    if hasattr(request_type, "parse_raw"):
        # Pydantic 1.
        return request_type.parse_raw(raw)
    if hasattr(request_type, "__pydantic_validator__"):
        # A dataclass of pydantic's, which checks and converts by its own rules.
        from pydantic import TypeAdapter

        return TypeAdapter(request_type).validate_json(raw)
    if getattr(request_type, "__origin__", request_type) is dict:
        return _parse_object(raw)
    from . import _fields

    if not _fields.is_buildable(request_type):
        raise TypeError(
            f"run_handler: the request type {request_type!r} is not a pydantic model, a dataclass, "
            "a WorkerRequest or dict"
        )
    return _fields.build(request_type, _parse_object(raw))


def _parse_object(raw: bytes) -> dict[str, object]:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        # The error's own words name the place, and of the text nothing but single characters.
        raise ValidationError(f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValidationError("the request is JSON but not an object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
