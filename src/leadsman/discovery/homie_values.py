"""Values as Homie 5 writes them: the datatype and format of a field, payloads, and what may be set. Pure.

See "Payloads" and "Formats" of the convention (https://homieiot.github.io/specification/).
"""

import math
import re
from datetime import datetime
from typing import Any

from leadsman.discovery.description import Field
from leadsman.errors import PayloadError
from leadsman.mqtt.topics import encode

EMPTY = b"\x00"
"""An empty text: MQTT removes a retained message with an empty payload ("Empty string values")."""
MOST_INTEGER = 2**63 - 1
"""The largest integer ("Integer"); the smallest is one further from zero."""
MOST_SHOWN = 100
"""Characters of a refused payload that an error shows."""
_INTEGER = re.compile(rb"-?[0-9]+")
_FLOAT = re.compile(rb"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE]-?[0-9]+)?")
Attributes = dict[str, Any]


def datatype(field: Field) -> str:
    """The datatype of a field. An enum with a value that a format cannot list is text, and so is a date alone."""
    match field.kind:
        case "number":
            return "integer" if field.whole else "float"
        case "boolean":
            return "boolean"
        case "timestamp":
            return "datetime"
        case "enum" if field.options and all(option and "," not in option for option in field.options):
            return "enum"
    return "string"


def attributes(field: Field) -> Attributes:
    """The datatype, format, name and unit of a field."""
    found: Attributes = {"name": field.name, "datatype": datatype(field)}
    if found["datatype"] == "enum":
        found["format"] = ",".join(field.options)
    elif field.kind == "number" and (limits := _limits(field)):
        found["format"] = limits
    if field.kind == "number" and field.unit is not None:
        found["unit"] = field.unit
    return found


def payload_of(field: Field, value: object) -> bytes:
    """A value as a payload; empty if there is none, or none that the datatype can express."""
    if value is None:
        return b""
    kind = datatype(field)
    if kind in ("integer", "float"):
        return _number(value, whole=kind == "integer")
    if kind == "boolean":
        return b"" if not isinstance(value, bool) else b"true" if value else b"false"
    text = value if isinstance(value, str) else encode(value).decode()
    if kind == "enum":
        return text.encode() if text in field.options else b""
    if kind == "datetime":
        return text.encode() if _is_time(text) else b""
    return text.encode() or EMPTY


def value_of(field: Field, payload: bytes) -> object:
    """The value that a payload sets.

    Raises:
        PayloadError: the payload does not match the datatype or the format.
    """
    kind = datatype(field)
    try:
        text = "" if payload == EMPTY else payload.decode()
    except UnicodeDecodeError:
        raise PayloadError(f"the payload {payload[:MOST_SHOWN]!r} is not UTF-8") from None
    if kind in ("integer", "float"):
        return _within(field, payload, whole=kind == "integer")
    if kind == "boolean" and payload in (b"true", b"false"):
        return payload == b"true"
    if kind == "enum" and text in field.options:
        return text if field.quoted else _plain(text)
    if kind == "datetime" and _is_time(text):
        return text
    if kind == "string" and payload:
        return text
    raise PayloadError(f"the payload {text[:MOST_SHOWN]!r} does not fit; {_expected(field, kind)}")


def _expected(field: Field, kind: str) -> str:
    match kind:
        case "boolean":
            return "send true or false"
        case "enum":
            return f"send one of: {', '.join(field.options)}"[: 2 * MOST_SHOWN]
        case "datetime":
            return "send a time as in 2026-11-22T20:00:00Z"
        case "string":
            return "send text; an empty text is one byte 0"
    limits = _limits(field)
    return f"send {'a whole number' if kind == 'integer' else 'a number'}{f' within {limits}' if limits else ''}"


def _number(value: object, *, whole: bool) -> bytes:
    if isinstance(value, str):  # a Decimal, which JSON carries as text
        found = value.encode()
        return found if (_INTEGER if whole else _FLOAT).fullmatch(found) else b""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return b""
    if not whole:
        return repr(value).replace("e+", "e").encode()
    return str(int(value)).encode() if value == int(value) and _is_integer(int(value)) else b""


def _is_integer(value: int) -> bool:
    return -MOST_INTEGER - 1 <= value <= MOST_INTEGER


def _within(field: Field, payload: bytes, *, whole: bool) -> int | float:
    """The number, rounded to the step; its limits are looked at after that ("Formats")."""
    refused = f"the payload {payload[:MOST_SHOWN]!r} does not fit; {_expected(field, 'integer' if whole else 'float')}"
    if len(payload) > MOST_SHOWN or not (_INTEGER if whole else _FLOAT).fullmatch(payload):
        raise PayloadError(refused)
    value = int(payload) if whole else float(payload)
    if not math.isfinite(value) or (whole and not _is_integer(int(value))):
        raise PayloadError(refused)
    if (step := _step(field)) is not None:
        value = round(value / step) * step
        value = int(value) if whole else float(f"{value:.12g}")
    if (field.minimum is not None and value < field.minimum) or (field.maximum is not None and value > field.maximum):
        raise PayloadError(refused)
    return value


def _limits(field: Field) -> str:
    """``min:max`` or ``min:max:step``; empty text if there are none."""
    lowest = _bound(field, field.minimum, math.ceil)
    highest = _bound(field, field.maximum, math.floor)
    step = _step(field)
    more = "" if step is None else f":{_number(step, whole=field.whole).decode()}"
    return "" if lowest == highest == more == "" else f"{lowest}:{highest}{more}"


def _bound(field: Field, bound: float | None, towards: Any) -> str:
    if bound is None:
        return ""
    return _number(towards(bound) if field.whole else bound, whole=field.whole).decode()


def _step(field: Field) -> float | None:
    """The step, if both agree on what it counts from: JSON Schema counts from zero, Homie from the minimum, or without
    one from the maximum."""
    step, base = field.step, field.minimum if field.minimum is not None else field.maximum
    if step is None or step <= 0 or (field.whole and step != int(step)):
        return None
    return step if base is None or math.isclose(math.remainder(base, step), 0.0, abs_tol=step * 1e-9) else None


def _plain(text: str) -> int | float:
    """The number that an option of an enum of numbers stands for."""
    return int(text) if _INTEGER.fullmatch(text.encode()) else float(text)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text
