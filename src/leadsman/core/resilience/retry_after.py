"""How long an HTTP server asks not to be called: the header ``Retry-After`` of an error (RFC 9110 §10.2.3).

Pure. The header has seconds or a date. A date is compared with the ``Date`` of the same answer, which is the server's
own clock; without that, with ours.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from typing import Any, cast

MAX_PAUSE_SECONDS = 86400.0
"""Seconds. A server that asks for more, or for nonsense, is asked again after a day."""
TRANSIENT = (408, 425, 429)
"""The 4xx after which the same request may succeed: Request Timeout (RFC 9110 §15.5.9), Too Early (RFC 8470 §5.2) and
Too Many Requests (RFC 6585 §4). Beside them, each 5xx."""
_OBEYED = (429, 503)
"""Statuses at which a policy obeys the header, as a lower bound of its waits, if the error is one of another library:
Too Many Requests (RFC 6585 §4) and Service Unavailable (RFC 9110 §15.6.4). `leadsman.adapters.http` obeys it at all of
`TRANSIENT` and at each 5xx, as a request of the device."""


def pause_of(error: BaseException, status: object, wall: float) -> float | None:
    """Seconds that the server asks for, from 0 to `MAX_PAUSE_SECONDS`; None if it does not.

    Args:
        error: of httpx, requests, aiohttp or urllib.
        status: that of the error.
        wall: the time of our clock, epoch seconds.
    """
    if status not in _OBEYED:
        return None
    headers = _headers_of(error)
    return None if headers is None else seconds_of(_text(headers, "Retry-After"), _text(headers, "Date"), wall)


def seconds_of(value: str | None, date: str | None, wall: float) -> float | None:
    """The seconds from `date`, or else from `wall`, to the time that a header means; None if it means none."""
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]+", value):
        return MAX_PAUSE_SECONDS if len(value) > 9 else min(float(value), MAX_PAUSE_SECONDS)
    then, now = _epoch(value), None if date is None else _epoch(date.strip())
    return None if then is None else min(max(0.0, then - (wall if now is None else now)), MAX_PAUSE_SECONDS)


def _epoch(text: str) -> float | None:
    """A date of HTTP, in any of its three forms, in epoch seconds."""
    from email.utils import parsedate_to_datetime  # 4 ms of a start, and few servers send a date

    try:
        found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _headers_of(error: Any) -> Mapping[str, object] | None:
    for holder in (getattr(error, "response", None), error):
        headers = getattr(holder, "headers", None)
        if callable(getattr(headers, "get", None)):
            return cast("Mapping[str, object]", headers)
    return None


def _text(headers: Mapping[str, object], name: str) -> str | None:
    for each in (name, name.lower()):  # a plain dict distinguishes them
        value = headers.get(each)
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(value, str):
            return value
    return None
