"""Durations as people write them: ``"5m"``, ``"1h30m"``, ``timedelta``, or plain seconds; and numbers."""

import math
import re
from datetime import timedelta

from leadsman.errors import InvalidType, InvalidValue

Duration = float | str | timedelta
"""Seconds as a number, text such as ``"250ms"`` or ``"1h30m"``, or a `datetime.timedelta`."""

MAX_SECONDS = 36_525 * 86_400.0
"""Seconds: a hundred years. A longer time is a mistake, and no date can be written at its end."""
NEVER = -math.inf
"""Seconds on any clock: when what has not happened yet happened last. It is one object, which all devices share."""
_UNITS = (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001))
_TEXT = r"\s*".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit, _ in _UNITS)


def seconds(value: Duration, what: str = "a duration") -> float:
    """Turn a duration into seconds.

    Args:
        value: a number of seconds; text of numbers with the units ``d h m s ms``, each at most once and in this order,
            with or without spaces between them; or a `timedelta`. Never negative.
        what: the name used in an error message.

    Raises:
        InvalidValue: not finite, negative, longer than `MAX_SECONDS`, or text that is not a duration. Text without a
        unit
            is refused.
        InvalidType: anything else, `bool` included.
    """
    amount = unbounded_seconds(value, what)
    if amount > MAX_SECONDS:
        raise InvalidValue(f"{what} is {value!r:.40}; it must be at most a hundred years")
    return amount


def unbounded_seconds(value: Duration, what: str) -> float:
    """As `seconds`, however long it is."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidType(
            f"{what} is a {type(value).__name__}; write seconds such as 30, text such as '5m', or a timedelta"
        )
    amount = _parse(value, what) if isinstance(value, str) else as_float(value)
    if not math.isfinite(amount) or amount < 0:
        raise InvalidValue(f"{what} is {value!r}; it must be a finite number of seconds, not negative")
    return amount


def as_float(value: float) -> float:
    """A number as a float; an integer with hundreds of digits is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def whole(
    value: object,
    what: str,
    least: int,
    most: int | None = None,
    *,
    kind: str = "it must be a whole number",
    limits: str | None = None,
) -> int:
    """Check a whole number that a user writes.

    Args:
        value: the written value.
        what: its name.
        least: the smallest that is taken.
        most: the largest one; None: there is none.
        kind: the advice in the message about another type.
        limits: the advice in the message about a number that is too small or too large; None: the limits.

    Raises:
        InvalidType, InvalidValue: it is no whole number, or too small or too large.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{what} is {value!r}; {kind}")
    if value < least or (most is not None and value > most):
        raise InvalidValue(
            f"{what} is {value!r}; {limits or f'it must be {least} ' + ('or more' if most is None else f'to {most}')}"
        )
    return value


def number(value: object, what: str, *, kind: str = "it must be a number") -> int | float:
    """Check a finite number that a user writes; `kind` as for `whole`. Raises `InvalidType`, `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{what} is {value!r}; {kind}")
    if not math.isfinite(as_float(value)):
        raise InvalidValue(f"{what} is {value!r}; it must be finite")
    return value


def positive_seconds(value: Duration, what: str) -> float:
    """As `seconds`, and greater than zero."""
    amount = seconds(value, what)
    if amount <= 0:
        raise InvalidValue(f"{what} is {value!r}; it must be greater than zero")
    return amount


def _parse(text: str, what: str) -> float:
    match = re.fullmatch(_TEXT, text.strip())
    if match is None or not any(match.groups()):
        raise InvalidValue(
            f"{what} is {text!r}; write numbers with units, largest first, such as '90s', '5m' or '1h30m'"
        )
    return math.fsum(float(part) * unit for part, (_, unit) in zip(match.groups(), _UNITS, strict=True) if part)


def human(amount: float) -> str:
    """Write seconds the way `seconds` reads them, to the millisecond: 5400 → ``"1h30m"``, 6.3 → ``"6.3s"``."""
    return _write(amount, "m", "")


def write_duration(amount: float) -> str:
    """Write seconds as a sentence has them, to the millisecond: 5400 → ``"1 h 30 min"``, 0.3 → ``"300 ms"``."""
    return _write(amount, "min", " ")


def _write(amount: float, minute: str, gap: str) -> str:
    remaining = round(amount * 1000)
    if 0 < remaining < 1000:
        return f"{remaining}{gap}ms"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), (minute, 60_000)):
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count}{gap}{unit}")
    if remaining or not parts:
        parts.append(f"{remaining / 1000:g}{gap}s")
    return gap.join(parts)
