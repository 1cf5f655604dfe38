"""What a status means (RFC 9110 §15), and where a redirect may lead. Pure."""

from collections.abc import Mapping, Sequence
from typing import NoReturn
from urllib.parse import urljoin, urlsplit

from leadsman.adapters.server import display_url, is_url, origin_of
from leadsman.errors import DeviceUnavailable, GarbledData, LeadsmanError, PermanentError
from leadsman.resilience.failure import RetryRequested
from leadsman.resilience.retry_after import seconds_of
from leadsman.text import clean

TRANSIENT = frozenset({408, 425, 429})
"""Request Timeout, Too Early (RFC 8470 §5.2) and Too Many Requests (RFC 6585 §4); beside them each 5xx."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MOST_REDIRECTS = 5
SHORTEST_PAUSE = 1.0
"""Seconds. A shorter ``Retry-After`` names no pause, so the policy of the handler decides."""
_SHOWN = 200
"""Characters of the body of an error that its message shows."""


class HttpRefused(PermanentError):
    """The server refused the request, such as with 401, 403 or 404. A retry in this cycle does not help.

    Attributes:
        status: of the answer.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class HttpUnavailable(DeviceUnavailable):
    """The server cannot answer now: 408, 425, 429 or 5xx. A retry may help.

    Attributes:
        status: of the answer.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


_ADVICE: Mapping[int, str] = {
    403: "the server accepts the account, and not this request: check its rights",
    404: "there is nothing at this address: check url and path",
    405: "the server does not take this method here",
    407: "a proxy stands before the server, and wants an account",
    410: "there is nothing at this address any more",
}


def status_error(
    status: int, headers: Mapping[str, str], start: bytes, place: object, scheme: str | None, wall: float
) -> LeadsmanError:
    """The error that a status other than 200 to 299 means.

    Args:
        status: of the answer.
        headers: names in lower case.
        start: the first bytes of the body.
        place: the request, for the message.
        scheme: what was sent: ``basic``, ``digest`` or ``bearer``; None for nothing.
        wall: the time of our clock, epoch seconds.

    Returns:
        `RetryRequested` if the server names a pause, else `HttpUnavailable` for 408, 425, 429 and 5xx; `GarbledData`
        for what is no status, and `HttpRefused` for any other.
    """
    reason = _reason(headers, start)
    if status in TRANSIENT or 500 <= status <= 599:
        pause = seconds_of(headers.get("retry-after"), headers.get("date"), wall)
        if pause is not None and pause >= SHORTEST_PAUSE:
            return RetryRequested(pause, f"{place}: the server asks for a pause, with status {status}{reason}")
        return HttpUnavailable(f"{place}: the server answers with status {status}{reason}", status)
    if not 100 <= status <= 599:
        return GarbledData(f"{place}: {status} is no status of HTTP")
    advice = _login_advice(headers, scheme) if status == 401 else _ADVICE.get(status)
    hint = "" if advice is None else f"; {advice}"
    return HttpRefused(f"{place}: the server answers with status {status}{reason}{hint}", status)


def next_hop(method: str, visited: Sequence[str], location: str, *, with_credentials: bool) -> str:
    """Where a redirect leads.

    Args:
        method: of the request.
        visited: the URLs so far, this one last.
        location: the header of the reply.
        with_credentials: whether the first request had any.

    Raises:
        PermanentError: it must not be followed. The message names the way.
    """
    here = visited[-1]
    try:
        there = urljoin(here, location.strip())
    except ValueError:
        there = ""
    if not is_url(there):
        _refuse(method, visited, clean(repr(location[:_SHOWN])), "which is no address of a server")
    shown = display_url(there)
    if urlsplit(there).username is not None:
        _refuse(method, visited, shown, "with an account of its own, which is not sent; write that address")
    if method not in ("GET", "HEAD"):
        _refuse(method, visited, shown, "and only GET is repeated elsewhere; write that address")
    if there in visited:
        _refuse(method, visited, shown, "so the redirects go in a circle")
    if len(visited) > MOST_REDIRECTS:
        _refuse(method, visited, shown, f"and no more than {MOST_REDIRECTS} redirects are followed")
    if urlsplit(here).scheme == "https" and urlsplit(there).scheme == "http":
        _refuse(method, visited, shown, "which is not encrypted; write that address if you accept it")
    if with_credentials and origin_of(there) != origin_of(visited[0]):
        _refuse(method, visited, shown, "another server, which does not get the credentials; write that address")
    return there


def _refuse(method: str, visited: Sequence[str], there: str, why: str) -> NoReturn:
    way = " → ".join(display_url(each) for each in visited)
    raise PermanentError(f"{method} {way} is redirected to {there}, {why}")


def _reason(headers: Mapping[str, str], start: bytes) -> str:
    """What the server writes beside the status, if that is not a web page."""
    text = start.decode(errors="replace").strip()
    if not text or text.startswith("<") or "html" in headers.get("content-type", ""):
        return ""
    return f" ({clean(text[:_SHOWN])})"


def _login_advice(headers: Mapping[str, str], scheme: str | None) -> str:
    wanted = headers.get("www-authenticate", "").lower()
    if scheme is None:
        return "it wants an account: give username= and password=, or token="
    if scheme == "basic" and "digest" in wanted:
        return 'it wants a digest: write auth="digest"'
    if scheme == "digest" and wanted and not wanted.startswith("digest"):
        return 'it does not offer a digest first; auth="basic" sends the password as it is'
    return "check the token" if scheme == "bearer" else "check username and password"
