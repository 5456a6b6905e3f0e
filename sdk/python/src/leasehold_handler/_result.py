"""What a handler returned or raised, as the JSON object the worker reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The worker stops reading, and the run has failed, above this size unless it is told another one.
RESULT_BYTES_MAX = 1 << 20

# The worker keeps the first 2 KiB; the whole message is in the traceback on standard error.
MESSAGE_CHARS_MAX = 4_096


class MalformedResult(TypeError):
    """What the handler returned has no form as a JSON object."""


class ResultTooLarge(ValueError):
    """The result is larger than the worker reads."""


def encode(result: object) -> bytes:
    """The result as JSON in UTF-8, at most `RESULT_BYTES_MAX` bytes.

    Raises `MalformedResult` or `ResultTooLarge`.
    """
    text = _to_json(result)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        where = None if _is_model(type(result)) else _offender(_to_value(result))
        raise MalformedResult(
            f"{where or 'the result holds text'} that is not Unicode (a lone surrogate)"
        ) from None
    if len(data) > RESULT_BYTES_MAX:
        raise ResultTooLarge(
            f"the result has {len(data):,} bytes as JSON and {RESULT_BYTES_MAX:,} are the most; "
            "store it elsewhere and return where it is"
        )
    return data


def envelope(error: BaseException) -> bytes:
    """The failure as the worker reads it. Never raises, whatever the error holds."""
    try:
        message = str(error)
    except Exception as failure:
        message = f"(no message: its __str__ raised {type(failure).__name__})"
    if len(message) > MESSAGE_CHARS_MAX:
        message = message[:MESSAGE_CHARS_MAX] + " [cut]"
    return encode_words({"error": type(error).__name__, "message": message})


def encode_words(fields: dict[str, object]) -> bytes:
    """As JSON, with the escape written out for what is no Unicode in a text."""
    words = {
        name: value.encode("utf-8", "backslashreplace").decode("utf-8")
        if isinstance(value, str)
        else value
        for name, value in fields.items()
    }
    return json.dumps(words, ensure_ascii=False).encode("utf-8")


def _is_model(kind: type) -> bool:
    return hasattr(kind, "model_dump_json") or hasattr(kind, "parse_raw")


def _to_json(result: Any) -> str:
    kind = type(result)
    if hasattr(kind, "model_dump_json"):
        return _checked_model_json(kind, result.model_dump_json)
    if hasattr(kind, "parse_raw"):
        # Pydantic 1.
        return _checked_model_json(kind, lambda: result.json(ensure_ascii=False))
    value = _to_value(result)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        what = _offender(value)
        raise MalformedResult(
            f"{what}, which JSON has no form for" if what else f"the result: {error}"
        ) from error


def _checked_model_json(kind: type, dump: Callable[[], str]) -> str:
    try:
        text = dump()
    except Exception as error:
        raise MalformedResult(f"{kind.__name__} as JSON: {error}") from error
    if not text.startswith("{"):
        raise MalformedResult(
            f"{kind.__name__} is not an object as JSON; return a model with fields"
        )
    if "NaN" in text or "Infinity" in text:
        json.loads(text, parse_constant=_refuse_constant)
    return text


def _refuse_constant(name: str) -> None:
    raise MalformedResult(f"the result holds {name}, which JSON has no form for")


def _to_value(result: Any) -> dict[Any, Any]:
    if hasattr(type(result), "__dataclass_fields__"):
        import dataclasses

        return dataclasses.asdict(result)
    if isinstance(result, Mapping):
        return dict(result)
    raise MalformedResult(
        f"the handler returned {_named(result)}; return a dict, a dataclass or a pydantic model "
        "({} if there is nothing to say)"
    )


def _named(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return f"a value of type {type(value).__name__}"


def _offender(value: object, path: str = "result", depth: int = 0) -> str | None:
    """Where the first value stands that JSON has no form for, and what it is."""
    if depth > 100:
        return f"{path[:200]} is nested too deeply or holds itself"
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(key, str) and not _is_unicode(key):
                return f"{path} holds a key"
            if not isinstance(key, (str, int, float, type(None))):
                return f"{path} has a key of type {type(key).__name__}"
            found = _offender(inner, f"{path}[{key!r}]", depth + 1)
            if found:
                return found
        return None
    if isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            found = _offender(inner, f"{path}[{at}]", depth + 1)
            if found:
                return found
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value}"
    if isinstance(value, str):
        return None if _is_unicode(value) else f"{path} is text"
    if value is None or isinstance(value, (int, float)):
        return None
    return f"{path} is {_named(value)}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
