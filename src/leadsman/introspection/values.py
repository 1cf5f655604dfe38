"""Writes a reading in one line, with the names, units and decimals that its type declares."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from leadsman.text import clean

if TYPE_CHECKING:
    from leadsman.mqtt.answers import Json

MOST_DECIMALS = 20
_SMALL = 3
"""Digits that are shown of a number between -1 and 1 whose decimals are not declared; of others, two decimals."""


def describe(fields: "Mapping[str, Json]", terms: "Mapping[str, Json]") -> str:
    """A reading in one line: ``celsius 21.5 °C, door open``.

    Args:
        fields: the reading.
        terms: what is declared of each field, as the section `fields` of introspection has it; it may be wrong, since
            another program sends it.
    """
    return clean(", ".join(_fields(fields, terms, "")))


def _fields(fields: "Mapping[str, Json]", terms: "Mapping[str, Json]", path: str) -> "Iterator[str]":
    for name, value in fields.items():
        found = terms.get(f"{path}{name}")
        known = found if isinstance(found, dict) else {}
        if isinstance(value, dict):
            yield from _fields(value, terms, f"{path}{name}.")
        elif isinstance(value, str):
            yield f"{path}{name} {value}"
        else:
            unit = known.get("unit") if value is not None and not isinstance(value, bool | list) else None
            number = _number(value, known.get("precision")) if isinstance(value, float) else json.dumps(value)
            yield f"{path}{name} {number}" + (f" {unit}" if isinstance(unit, str) else "")


def _number(value: float, decimals: "Json") -> str:
    if isinstance(decimals, int) and 0 <= decimals <= MOST_DECIMALS:
        return f"{value:.{decimals}f}"
    return json.dumps(float(f"{value:.{_SMALL}g}") if abs(value) < 1 else round(value, 2))
