"""Checks of the numbers that users write, at registration."""

import math

from leadsman.errors import InvalidType, InvalidValue
from leadsman.loop.durations import as_float


def whole(value: object, what: str, least: int) -> int:
    """Check that a value is a whole number, `least` or more. Raises `InvalidType`, `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{what} is {value!r}; it must be a whole number")
    if value < least:
        raise InvalidValue(f"{what} is {value!r}; it must be {least} or more")
    return value


def number(value: object, what: str) -> float:
    """Check that a value is a finite number. Raises `InvalidType`, `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{what} is {value!r}; it must be a number")
    found = as_float(value)
    if not math.isfinite(found):
        raise InvalidValue(f"{what} is {value!r}; it must be finite")
    return found


def fraction_of(value: object) -> float:
    """Check that a jitter is a fraction. Raises `InvalidType`, `InvalidValue`."""
    fraction = number(value, "jitter")
    if not 0 <= fraction <= 1:
        raise InvalidValue(f"jitter is {value!r}; it must be a fraction from 0 to 1, 0.2 for ±20 %")
    return fraction
