"""Who may use the HTTP endpoint, and the headers that protect a browser. Pure.

* A request must name this machine, an address, or a configured name in ``Host``. A page of another site that makes its
  own name point here (DNS rebinding) cannot.
* A request that changes something must come from our own page, or from no page at all (``Origin``, ``Sec-Fetch-Site``).
* A page of another site may link to us, but may ask for no data in the background. It could not read the answers, but
  could open all the streams that there are.
* Where a token is set, each request must carry it, except for the page itself, which has no data, and the probes.
"""

import hmac
import ipaddress
from collections.abc import Collection
from typing import NamedTuple

from leadsman.extensions.http.settings import Endpoint

PROTECTION = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response."""
_SAFE = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"same-origin", "none", None})
"""``Sec-Fetch-Site`` of our own page, of an address that a person typed, and of a program."""


class RequestHead(NamedTuple):
    """The parts of a request that the rules need: its method and path, and some of its headers."""

    method: str
    path: str
    host: str | None = None
    origin: str | None = None
    site: str | None = None
    """``Sec-Fetch-Site``: where the request comes from, set by the browser."""
    mode: str | None = None
    """``Sec-Fetch-Mode``: ``navigate`` if a person follows a link."""
    authorization: str | None = None


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    detail: str


class AccessRules:
    """The rules of one endpoint.

    Args:
        endpoint: its token and its names.
        machine: the names of this machine.
        public: the paths that need no token.
    """

    def __init__(self, endpoint: Endpoint, machine: Collection[str], public: Collection[str]) -> None:
        self._token = None if endpoint.token is None else endpoint.token.encode()
        self._names = frozenset({"localhost", *endpoint.hosts, *(name.lower() for name in machine)})
        self._public = frozenset(public)

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Why a request is refused; None if it is not."""
        if head.host is None or not self._is_ours(host_name(head.host)):
            return Refusal(421, "this endpoint does not have this name; use its address, or add the name to http.hosts")
        if head.method not in _SAFE and not _is_same_origin(head):
            return Refusal(403, "a page of another origin must not do this")
        if head.path in self._public:
            return None
        if head.site not in _OWN_SITES and head.mode not in (None, "navigate"):
            return Refusal(403, "a page of another origin must not ask for this")
        if self._token is not None and not self._has_token(head.authorization):
            return Refusal(401, "send the token as 'Authorization: Bearer …'")
        return None

    def _is_ours(self, name: str) -> bool:
        """Whether a host name is one of this endpoint. An address is: nobody else can make it point elsewhere. The
        unspecified one, 0.0.0.0 or ::, is that of nobody, and some browsers take it for this machine."""
        if name in self._names:
            return True
        try:
            return not _unspecified(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _has_token(self, authorization: str | None) -> bool:
        scheme, _, given = (authorization or "").partition(" ")
        assert self._token is not None  # asked only then
        same = hmac.compare_digest(given.strip().encode(errors="replace"), self._token)
        return same and scheme.lower() == "bearer"


def _unspecified(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_unspecified


def host_name(host: str) -> str:
    """The name or the address in a ``Host`` header, without its port and without the brackets of IPv6. A header with
    anything else in it is returned as it is."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return host.lower() if rest and not (rest[0] == ":" and rest[1:].isdecimal()) else name.lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _is_same_origin(head: RequestHead) -> bool:
    if head.site not in _OWN_SITES:
        return False
    if head.origin is None:
        return True
    return head.origin.lower() in (f"{scheme}://{head.host}".lower() for scheme in ("http", "https"))
