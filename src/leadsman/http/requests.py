"""The requests of the HTTP endpoint, and who answers which: as much of ASGI as it needs.

ASGI (asgi.readthedocs.io, HTTP connection scope) has a request as a mapping, and a body as messages. The paths have at
most one part that varies, the name of a device.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl

from leadsman.http.responses import Receive, Scope, Send

Answer = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Sends a response, as an ASGI application does."""
DEVICE = "{device}"
"""Stands in a path for the name of a device."""


class HttpError(Exception):
    """A request is answered with a problem. The message says why.

    Attributes:
        status: the status of the response.
        headers: headers of the response.
    """

    def __init__(self, status: int, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = dict(headers or {})
        super().__init__(detail or HTTPStatus(status).phrase)


class DisconnectedError(Exception):
    """The client went before its request was complete. Nobody waits for an answer."""


class Request:
    """One request.

    Args:
        scope: what ASGI says of it.
        receive: gives the messages of its body.
        device: the name in its path; empty if the path has none.
    """

    def __init__(self, scope: Scope, receive: Receive, device: str) -> None:
        self._scope = scope
        self._receive = receive
        self.device = device
        self.method: str = scope["method"]
        self.path: str = scope["path"]

    @property
    def client(self) -> str:
        """The address that it came from; ``HTTP`` over a unix socket."""
        client = self._scope.get("client")
        return "HTTP" if not client else str(client[0])

    @property
    def query(self) -> list[tuple[str, str]]:
        """The names and values of its query, in their order."""
        return parse_qsl(self._scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def header(self, name: str) -> str | None:
        """See `header_of`."""
        return header_of(self._scope, name)

    async def body(self, most: int) -> bytes:
        """Its body.

        Raises:
            HttpError: it has more than `most` bytes.
            DisconnectedError: the client went.
        """
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            body += message.get("body", b"")
            if len(body) > most:
                raise HttpError(413, f"a body may have {most} bytes")
            if not message.get("more_body", False):
                return bytes(body)


Handler = Callable[[Request], Awaitable[Answer]]
"""Answers the requests of one path."""


class Routes:
    """Finds who answers a request.

    Args:
        gets, posts: the handlers of GET and of POST, by their paths. Who answers GET answers HEAD too, whose body the
            server leaves out. A path may have `DEVICE` as one of its levels.
    """

    def __init__(self, gets: Mapping[str, Handler], posts: Mapping[str, Handler]) -> None:
        self.paths = {path: {"GET", "HEAD"} for path in gets} | {path: {"POST"} for path in posts}
        """The methods of each path."""
        handlers = {**gets, **posts}
        self._patterns = [(_pattern(path), methods, handlers[path]) for path, methods in self.paths.items()]

    def find(self, method: str, path: str) -> tuple[Handler, str]:
        """The handler, and the name of the device in the path.

        Raises:
            HttpError: nothing is at this path, or the method is another one.
        """
        for pattern, methods, handler in self._patterns:
            if (match := pattern.fullmatch(path)) is not None:
                if method not in methods:
                    raise HttpError(405, headers={"allow": ", ".join(sorted(methods))})
                return handler, "".join(match.groups())
        raise HttpError(404)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile("([^/]+)".join(map(re.escape, path.split(DEVICE))))


def header_of(scope: Scope, name: str) -> str | None:
    """A header of a request, the first one of that name in lower case; None if there is none."""
    wanted = name.encode("latin-1")
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), None)
