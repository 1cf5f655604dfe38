"""The interface of an `HttpClient` to the network: one request, and one reply."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from leadsman.adapters.server import display_url
from leadsman.core.text.redaction import Secret


class Login(NamedTuple):
    """An account. For a bearer token, the name is empty."""

    username: str
    password: Secret


class RequestLine(NamedTuple):
    """The method and the URL, for messages. It is formatted only where there is one to write."""

    method: str
    url: str

    def __str__(self) -> str:
        return f"{self.method} {display_url(self.url)}"

    def __repr__(self) -> str:
        return str(self)


class HttpRequest(NamedTuple):
    """One request. Redirects are not followed."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    digest: Login | None = None
    connecting: Callable[[bool], None] = lambda _: None
    """Called with True when the first thing that a connection needs begins, and with False when it stands."""

    @property
    def place(self) -> RequestLine:
        """The method and the URL, for messages."""
        return RequestLine(self.method, self.url)


class HttpReply(NamedTuple):
    """The beginning of a reply, whose body is still to be read."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case. Several of one name are joined by commas (RFC 9110 §5.3)."""
    pieces: AsyncIterator[bytes]
    """The body as it is sent, compressed or not."""


class Wire(Protocol):
    """Connections to servers, or a twin of them."""

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpReply]:
        """Send a request. The reply, and its body, end with the context.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: a retry may help.
            PermanentError: the certificate, or the port.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
