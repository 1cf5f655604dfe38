"""A reading, and the conversion of a handler's result to one: to fields that JSON can represent.

JSON has no NaN, no infinity, no bytes and no sets. A value that JSON cannot represent raises an error that names the
field. It is not published as something else: a silent ``null`` is a wrong reading that nobody notices.

The layout of a reading at the broker is one JSON object, or each value at a topic of its own, or both.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from enum import Enum
from types import CoroutineType
from typing import Any, Literal, NamedTuple

from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.errors import ResultError

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]
Layout = Literal["json", "fields", "both"]
"""``json``: one object at ``state``. ``fields``: each value as plain text at a topic of its own. ``both``: both."""
LAYOUTS: tuple[Layout, ...] = ("json", "fields", "both")

_PLAIN = frozenset({str, bool, type(None)})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
"""Beyond 64 bits most consumers of JSON lose digits (RFC 8259 §6)."""
_DEPTH = 20
"""Deeper than any reading; a structure that contains itself ends here."""


class Reading(NamedTuple):
    """What a device returned at one time. It is passed on unchanged from the handler to the outbox."""

    entity: str
    fields: JsonObject
    left_out: tuple[str, ...]
    """The names of the fields that are NaN or infinite. They are not published."""
    at: float
    """When the handler returned it, monotonic seconds."""
    wall: float
    """The same in epoch seconds."""
    content: bytes | None = None
    """The bytes that the fields describe, if they are published as they are; see `leadsman.core.readings.content`."""


def reading_of(
    entity: str, result: object, clock: Clock, validate: Callable[[object], object] | None = None
) -> Reading | None:
    """Make a reading of what a handler has returned now. None means that there is nothing to publish.

    Args:
        entity: the name of the device.
        result: what the handler has returned.
        clock: the clock of the app.
        validate: converts a dict to the model that the handler is annotated to return.

    Raises:
        ResultError: see `fields_of`; or the dict is no such model.
    """
    if result is None:
        return None
    if validate is not None:
        result = validate(result)
    fields, left_out = fields_of(result)
    return Reading(entity, fields, left_out, clock.monotonic(), clock.wall())


def fields_of(result: object) -> tuple[JsonObject, tuple[str, ...]]:
    """Convert a handler's result to JSON-compatible fields. Fields that are NaN or infinite are left out, and their
    names returned.

    Args:
        result: a dict with text keys, a pydantic model or a dataclass; may be nested, at most 20 levels.

    Raises:
        ResultError: the result has another type, or contains a value that JSON cannot represent. The message names the
            field.
    """
    fields = result if type(result) is dict else _as_dict(result)
    plain = True
    for key, value in fields.items():
        kind = type(value)
        if kind is float:
            if value - value != 0.0:
                plain = False
        elif kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                plain = False
        elif kind not in _PLAIN or (kind is str and not value.isascii()):
            plain = False
        if type(key) is not str or not key.isascii():
            plain = False
    if plain:
        return fields.copy(), ()  # handlers may return one dict again and again
    left_out: list[str] = []
    kept = _check_dict(fields, "", left_out, _DEPTH)
    if left_out and not kept:
        raise ResultError(f"every field is NaN or infinite: {', '.join(left_out)}")
    return kept, tuple(left_out)


def plain(value: object, name: str) -> JsonValue:
    """A value as JSON carries it. `name` is for the message.

    Raises:
        ResultError: JSON cannot carry it.
    """
    try:
        return _check(value, name, [], _DEPTH)
    except _NotFiniteError:
        raise ResultError(f"{name!r} is NaN or infinite, which JSON cannot carry") from None


def _as_dict(result: object) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    if hasattr(result, "__dataclass_fields__") and not isinstance(result, type):
        import dataclasses  # imported here: an app whose handlers return dicts does not need it

        fields: dict[str, Any] = dataclasses.asdict(result)  # type: ignore[call-overload]  # hasattr narrows nothing
        return fields
    dump = getattr(result, "model_dump", None)
    if callable(dump) and not isinstance(result, type):
        dumped = dump(mode="json")
        if isinstance(dumped, dict):
            return dumped
    if isinstance(result, CoroutineType):
        result.close()  # or Python warns of it later, at a line of ours
        raise ResultError("the handler returned a coroutine; write await before the call that makes it")
    raise ResultError(
        f"the handler returned {_a(result)}; return a dict, a pydantic model, a dataclass, or None to publish nothing"
    )


class _NotFiniteError(Exception):
    """A number that is not finite."""


def _check_dict(fields: Mapping[Any, Any], path: str, left_out: list[str], depth: int) -> JsonObject:
    kept: JsonObject = {}
    for key, value in fields.items():
        if not isinstance(key, str):
            raise ResultError(f"the key {key!r}{f' in {path[:-1]!r}' if path else ''} is {_a(key)}; keys are text")
        name = f"{path}{_text(key, 'a key')}"
        try:
            kept[key] = _check(value, name, left_out, depth)
        except _NotFiniteError:
            left_out.append(name)
    return kept


def _check(value: object, name: str, left_out: list[str], depth: int) -> JsonValue:
    if depth == 0:
        raise ResultError(f"{name!r} is nested deeper than {_DEPTH} levels, or contains itself")
    match value:
        case Enum():
            return _check(value.value, name, left_out, depth - 1)
        case None | bool():
            return value
        case str():
            return _text(value, name)
        case float():
            if value - value != 0.0:
                raise _NotFiniteError
            return float(value)
        case int():
            if not _INT_MIN <= value <= _INT_MAX:
                raise ResultError(f"{name!r} does not fit in 64 bits; return it as text")
            return int(value)
        case datetime():
            if value.tzinfo is None:
                raise ResultError(f"{name!r} is a datetime without a time zone; use datetime.now(UTC)")
            return rfc3339(value.timestamp())
        case date():
            return value.isoformat()
        case Mapping():
            return _check_dict(value, f"{name}.", left_out, depth - 1)
        case list() | tuple():
            return [_check(element, f"{name}[{i}]", left_out, depth - 1) for i, element in enumerate(value)]
    if isinstance(value, CoroutineType):
        value.close()  # or Python warns of it later, at a line of ours
        raise ResultError(f"{name!r} is a coroutine; write await before the call that makes it")
    raise ResultError(f"{name!r} is {_a(value)}, which JSON cannot carry; return a number, text, list or dict")


def _text(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ResultError(f"{name!r} contains half a surrogate pair, which UTF-8 cannot carry: {value!a}") from error
    return value


def _a(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def plain_values(
    fields: Mapping[str, object], *, nested: bool, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """The values of a reading in their order, each with the keys on the way to it, which begin with `path`. With
    `nested` an object within the reading gives one value for each of its keys; otherwise, and if it is empty, it is a
    value itself."""
    for key, value in fields.items():
        if nested and isinstance(value, dict) and value:
            yield from plain_values(value, nested=True, path=(*path, key))
        else:
            yield (*path, key), _plain_payload(value)


def _plain_payload(value: object) -> bytes:
    """A value as programs without a parser of JSON read it: text as it is, None as nothing, and anything else as JSON
    writes it: ``21.5``, ``true``, ``[1,2]``."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
