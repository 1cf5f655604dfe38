"""The layout of the readings of a device at the broker: one JSON object, or each value at a topic of its own. Pure."""

import json
from collections.abc import Iterator
from typing import Literal

from leadsman.readings.publish import Fields

Layout = Literal["json", "fields", "both"]
"""``json``: one object at ``state``. ``fields``: each value as plain text at a topic of its own. ``both``: both."""
LAYOUTS: tuple[Layout, ...] = ("json", "fields", "both")

Path = tuple[str, ...]


def plain_values(fields: Fields, *, nested: bool) -> Iterator[tuple[Path, bytes]]:
    """The values of a reading in their order, each with the keys on the way to it. With `nested` an object within the
    reading gives one value for each of its keys; otherwise, and if it is empty, it is a value itself."""
    yield from _values(fields, (), nested=nested)


def _values(fields: Fields, path: Path, *, nested: bool) -> Iterator[tuple[Path, bytes]]:
    for key, value in fields.items():
        if nested and isinstance(value, dict) and value:
            yield from _values(value, (*path, key), nested=True)
        else:
            yield (*path, key), plain_payload(value)


def plain_payload(value: object) -> bytes:
    """A value as programs without a parser of JSON read it: text as it is, None as nothing, and anything else as JSON
    writes it: ``21.5``, ``true``, ``[1,2]``."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
