"""The twin of `HttpClient`, which plays recorded answers."""

import contextlib
import inspect
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from leadsman.adapters.http.client import HttpClient
from leadsman.adapters.http.wire import Reply, Request, Wire
from leadsman.text import suggestion

MOST_REMEMBERED = 1000
"""Requests that a twin remembers."""


Answer = Any
"""Content: bytes and text as they are, anything else as JSON. Or a `Recorded`, or a function, plain or async, that
takes the `Request` and returns one of these."""


class Recorded(NamedTuple):
    """An answer of a server, as it was recorded or written."""

    content: Answer = b""
    """Bytes and text as they are; anything else is sent as JSON."""
    status: int = 200
    headers: Mapping[str, str] = {}

    def as_sent(self) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers with names in lower case, and the body."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if isinstance(self.content, bytes | str):
            content = self.content.encode() if isinstance(self.content, str) else self.content
        else:
            content = json.dumps(self.content).encode()
            headers = {"content-type": "application/json", **headers}
        return self.status, headers, content


class Recordings:
    """Answers by their paths.

    Args:
        answers: by a path such as ``/status``, with its query if that matters, or by a whole URL.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        """They may be changed at any time."""
        self.requests: deque[Request] = deque(maxlen=MOST_REMEMBERED)
        """The newest requests."""
        self._first: dict[str, deque[Answer]] = {}

    def play(self, path: str, *answers: Answer) -> None:
        """Give these answers first, each of them once."""
        self._first.setdefault(path, deque()).extend(answers)

    async def answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """What is answered: the status, the headers with names in lower case, and the body."""
        self.requests.append(request)
        parts = urlsplit(request.url)
        path = parts.path or "/"
        whole = request.url.partition("?")[0]
        for key in (request.url, whole, f"{path}?{parts.query}", path):
            if first := self._first.get(key):
                found = first.popleft()
                break
            if key in self.answers:
                found = self.answers[key]
                break
        else:
            found = Recorded(f"nothing is recorded for {path}; {suggestion(path, self.answers)}", 404)
        if callable(found):
            found = found(request)
            if inspect.isawaitable(found):
                found = await found
        status, headers, content = (found if isinstance(found, Recorded) else Recorded(found)).as_sent()
        if "etag" in headers and request.headers.get("If-None-Match") == headers["etag"]:
            return 304, {"etag": headers["etag"]}, b""
        return status, headers, content


class HttpTwin(HttpClient):
    """An `HttpClient` without a network. Whatever an answer goes through is that of `HttpClient`, but for the digest,
    which a twin does not ask for.

    Args:
        answers: see `Recordings`.
        url: as that of `HttpClient`; None where each call names a whole URL.
        options: those of `HttpClient`, such as ``daily_quota=``.
    """

    def __init__(
        self, answers: Mapping[str, Answer] | None = None, url: str | None = "http://twin.invalid", **options: Any
    ) -> None:
        self.recordings = Recordings(answers or {})
        """The answers. They may be changed at any time."""
        self._error: Exception | None = None
        super().__init__(url, **options)

    def play(self, path: str, *answers: Answer) -> None:
        """Give these answers first, each of them once."""
        self.recordings.play(path, *answers)

    def fail(self, error: Exception | None) -> None:
        """Raise this error at each request from now on; None answers normally again."""
        self._error = error

    def _load(self) -> None:
        pass

    def _make_wire(self) -> Wire:
        return _Played(self.recordings, lambda: self._error)


class _Played:
    def __init__(self, recordings: Recordings, error: Callable[[], Exception | None]) -> None:
        self._recordings = recordings
        self._error = error

    @contextlib.asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[Reply]:
        if (error := self._error()) is not None:
            raise error
        status, headers, content = await self._recordings.answer(request)
        yield Reply(status, headers, _in_pieces(content))

    async def close(self) -> None:
        pass


async def _in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65536):
        yield content[start : start + 65536]
