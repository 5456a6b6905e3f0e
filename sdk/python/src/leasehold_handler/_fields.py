"""Request types without pydantic: fields by annotation, checked and never converted.

Checked are `str`, `int`, `float`, `bool`, `None`, `NonEmptyStr`, `Literal`, `Optional` and unions,
lists and dicts of these, and dataclasses or `WorkerRequest`s inside. A value under any other
annotation is handed on as JSON gave it. No message repeats a value: errors travel into logs, where
the values of a request do not belong.
"""

from __future__ import annotations

import copy
import typing
from typing import Annotated, Any, ClassVar

from ._request import ValidationError


class _NotEmpty:
    """Marks text that is stripped and may not be empty then, here and to pydantic 2."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.str_schema(min_length=1, strip_whitespace=True)


_NOT_EMPTY = _NotEmpty()

NonEmptyStr = Annotated[str, _NOT_EMPTY]

_MISSING = object()

_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class WorkerRequest:
    """Base of request types: frozen, and fields that the type does not name are ignored."""

    def __init__(self, /, **fields: Any) -> None:
        problems: list[str] = []
        self.__dict__.update(_values(type(self), fields, "", problems))
        _refuse(type(self), problems)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).items()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


def is_buildable(request_type: object) -> bool:
    """Whether `build` can make one of these."""
    return isinstance(request_type, type) and (
        issubclass(request_type, WorkerRequest) or hasattr(request_type, "__dataclass_fields__")
    )


def build(request_type: type, fields: dict[str, object]) -> object:
    """One of these from the fields of a JSON object; `ValidationError` names every misfit."""
    problems: list[str] = []
    values = _values(request_type, fields, "", problems)
    _refuse(request_type, problems)
    return _make(request_type, values)


def _refuse(request_type: type, problems: list[str]) -> None:
    if problems:
        raise ValidationError(f"{request_type.__name__}: {'; '.join(problems)}")


def _make(request_type: type, values: dict[str, object]) -> object:
    if issubclass(request_type, WorkerRequest):
        made = request_type.__new__(request_type)
        made.__dict__.update(values)
        return made
    return request_type(**values)


def _values(
    request_type: type, fields: dict[str, object], path: str, problems: list[str]
) -> dict[str, object]:
    values = {}
    for name, annotation, default in _declared(request_type):
        here = f"{path}.{name}" if path else name
        if name in fields:
            values[name] = _checked(fields[name], annotation, here, problems)
        elif default is _MISSING:
            problems.append(f"{here} is missing")
        elif issubclass(request_type, WorkerRequest):
            values[name] = copy.deepcopy(default)
    return values


def _declared(request_type: Any) -> list[tuple[str, Any, object]]:
    """Name, annotation and default of each field."""
    hints = typing.get_type_hints(request_type, include_extras=True)
    if not issubclass(request_type, WorkerRequest):
        # Only here: whoever has no dataclasses need not wait for their import.
        from dataclasses import MISSING, fields

        return [
            (
                field.name,
                hints[field.name],
                # A dataclass fills in its own defaults; here it matters that there is one.
                _MISSING if field.default is field.default_factory is MISSING else None,
            )
            for field in fields(request_type)
            if field.init
        ]
    return [
        (name, annotation, getattr(request_type, name, _MISSING))
        for name, annotation in hints.items()
        if not name.startswith("_") and typing.get_origin(annotation) is not ClassVar
    ]


def _checked(value: Any, annotation: Any, path: str, problems: list[str]) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        value = _checked(value, arguments[0], path, problems)
        if _NOT_EMPTY in arguments[1:] and isinstance(value, str):
            value = value.strip()
            if not value:
                problems.append(f"{path} is empty")
        return value
    if _is_union(origin):
        return _checked_union(value, arguments, path, problems)
    if origin is typing.Literal:
        if not any(value == one and type(value) is type(one) for one in arguments):
            problems.append(f"{path} is none of {', '.join(map(repr, arguments))}")
        return value
    expected: Any = type(None) if annotation is None else origin or annotation
    if expected in _NAMES:
        if expected is float and type(value) is int:
            try:
                return float(value)
            except OverflowError:
                problems.append(f"{path} is too large a number")
                return value
        if type(value) is not expected:
            problems.append(f"{path} is {_name(type(value))}, not {_name(expected)}")
            return value
        if expected is list and arguments:
            return [
                _checked(inner, arguments[0], f"{path}[{at}]", problems)
                for at, inner in enumerate(value)
            ]
        if expected is dict and arguments:
            return {
                key: _checked(inner, arguments[1], f"{path}.{key}", problems)
                for key, inner in value.items()
            }
        return value
    if is_buildable(expected):
        if type(value) is not dict:
            problems.append(f"{path} is {_name(type(value))}, not an object")
            return value
        known = len(problems)
        values = _values(expected, value, path, problems)
        return value if len(problems) > known else _make(expected, values)
    return value


def _checked_union(
    value: Any, alternatives: tuple[Any, ...], path: str, problems: list[str]
) -> Any:
    # The first that fits. A whole number is tried as one before it is made a float.
    ordered = sorted(alternatives, key=lambda one: one is float)
    complaints = []
    for alternative in ordered:
        found: list[str] = []
        checked = _checked(value, alternative, path, found)
        if not found:
            return checked
        if alternative is not type(None):
            complaints.extend(found)
    problems.append(" and ".join(complaints))
    return value


def _is_union(origin: object) -> bool:
    # `X | Y` has an origin of its own since Python 3.10.
    return origin is typing.Union or getattr(origin, "__name__", "") == "UnionType"


def _name(kind: type) -> str:
    return _NAMES.get(kind, kind.__name__)
