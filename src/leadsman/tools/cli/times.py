"""Writes times for a person at a terminal: those of the zone of this machine, while documents and programs have UTC."""

import re
from datetime import datetime

from leadsman.core.text import clean

_UTC = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)Z")
"""A time as the evidence of a verdict has it."""


def local(text: str | None, *, exact: bool = False) -> str:
    """A time of RFC 3339 as a date and a time of this zone, `exact` with milliseconds; empty for None. If the clocks
    were changed since, it has its offset. Text that is no time is left as it is."""
    if text is None:
        return ""
    return clean(text) if (found := _local(text, exact=exact)) is None else found


def _local(text: str, *, exact: bool = False) -> str | None:
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None
    fraction = f".{moment.microsecond // 1000:03}" if exact else ""
    now = datetime.now().astimezone()
    offset = "" if moment.utcoffset() == now.utcoffset() else _offset(moment)
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}{offset}"


def clock(text: str) -> str:
    """A time of RFC 3339 without its date."""
    return local(text)[11:]


def localise(line: str) -> str:
    """A line of text with each time in it, such as ``2026-04-08 10:00:05Z``, as one of this zone."""
    return _UTC.sub(lambda found: _local(f"{found[1]}T{found[2]}+00:00") or found[0], line)


def zone() -> str:
    """The zone of this machine now, as its offset: ``UTC`` or ``UTC+01:00``."""
    offset = _offset(datetime.now().astimezone())
    return "UTC" if offset == "+00:00" else f"UTC{offset}"


def _offset(moment: datetime) -> str:
    offset = f"{moment:%z}"
    return f"{offset[:3]}:{offset[3:5]}"
