"""The routes of the HTTP endpoint, as an ASGI application, and its long responses: documents that are made in slices,
and streams of happenings."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.events import AppFault
from leadsman.core.introspection.pages import DocumentWriter
from leadsman.core.introspection.requests import SECTIONS, sender_of
from leadsman.core.introspection.service import PollResult, Service
from leadsman.core.introspection.watching import Happenings, HappeningsWatcher
from leadsman.core.loop.slices import Slices, Work
from leadsman.core.mqtt.answers import Json, decode
from leadsman.core.mqtt.topics import encode
from leadsman.core.text import describe
from leadsman.errors import Busy, PayloadError, RequestRefused, UnknownDevice, missing
from leadsman.extensions.http.rules import PROTECTION, AccessRules, RequestHead

try:
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route, Router
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise missing("HTTP endpoints", "starlette", "http") from error

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Introspection, Problem, Verdict
    from leadsman.extensions.http.metrics import Exposition

SEND_TIMEOUT = 60.0
"""Seconds in which a client must take an answer that is made in slices. A few clients that read slowly would otherwise
keep all others from large answers for minutes."""
BEAT_INTERVAL = 5.0
"""Seconds between two signs of life in a stream."""
GATHERING = 0.05
"""Seconds between two messages of a stream: what happens meanwhile is sent together."""
RECONNECT_MILLISECONDS = 2000
"""Milliseconds after which a browser connects again, when a stream has ended."""


class SlicedResponse:
    """A response that `work` makes in slices; `end` has its pieces then."""

    def __init__(
        self, service: Service, slices: Slices, work: Work, end: Callable[[], list[bytes]], media_type: str
    ) -> None:
        self._service = service
        self._slices = slices
        self._work = work
        self._end = end
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.under_way():
            pieces = await self._pieces()
            length = sum(map(len, pieces))
            headers = [(b"content-type", self._media_type.encode()), (b"content-length", str(length).encode())]
            headers.append((b"cache-control", b"no-store"))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                async with asyncio.timeout(SEND_TIMEOUT):
                    for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        await asyncio.sleep(0)  # the socket may take all of them in one turn of the loop
            except TimeoutError:
                return  # the server ends a connection whose answer is not complete
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> list[bytes]:
        made: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

        def work() -> Work:
            try:
                yield from self._work
                pieces = self._end()
            except Exception as error:
                if not made.done():
                    made.set_exception(error)
            else:
                if not made.done():
                    made.set_result(pieces)

        self._slices.begin("an answer over HTTP", work())
        return await made


class HappeningsStream:
    """A stream of happenings, as server-sent events. It ends when the client or the app does, and when the client takes
    them too slowly."""

    def __init__(self, watcher: HappeningsWatcher, beat: Callable[[], bytes]) -> None:
        self._watcher = watcher
        self._beat = beat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def until_disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._watcher.close()

        listening = asyncio.get_running_loop().create_task(until_disconnected())
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_all(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._watcher.close()
            listening.cancel()

    async def _send_all(self, send: Send) -> None:
        watcher = self._watcher
        first = b"data: %b\n\n" % encode({"type": "reset"}) if watcher.reset else b""
        text = b"retry: %d\n\n%bid: %d\ndata: %b\n\n" % (RECONNECT_MILLISECONDS, first, watcher.last, self._beat())
        beat_at = asyncio.get_running_loop().time() + BEAT_INTERVAL
        while True:
            await send({"type": "http.response.body", "body": text, "more_body": True})
            await asyncio.sleep(GATHERING)
            now = asyncio.get_running_loop().time()
            entries = await watcher.receive(max(0.0, beat_at - now))
            if entries is None:
                return
            text = b"".join(b"id: %d\ndata: %b\n\n" % entry for entry in entries)
            if asyncio.get_running_loop().time() >= beat_at or not entries:
                text += b"data: %b\n\n" % self._beat()
                beat_at = asyncio.get_running_loop().time() + BEAT_INTERVAL


MAX_HEAD_BYTES = 16 * 1024
"""Bytes of the path, the query and the headers of a request."""
MAX_BODY_BYTES = 16 * 1024
"""Bytes of the body of a request."""
BODY_TIMEOUT = 10.0
"""Seconds in which the body of a request must arrive."""
POLL_TIMEOUT = 60.0
"""Seconds to wait for a requested poll."""
MAX_WATCHERS = 16
"""Streams of happenings at the same time."""
ACTIONS = ("poll", "hold", "release", "isolate", "close", "disable")
"""Requests that a person may make of a device."""
METRICS = "text/plain; version=0.0.4; charset=utf-8"
JSON, HEALTH, PROBLEM = "application/json", "application/health+json", "application/problem+json"


Handler = Callable[[Request], Awaitable[ASGIApp]]
"""Answers the requests of one path."""


class StaticFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        """Identifies this version of the file."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'


class Application:
    """Answers the requests of one endpoint.

    Args:
        service: answers them.
        happenings: what happens in the app.
        slices: does work that is too long for one turn of the loop.
        rules: who may ask.
        files: the files of the page and the OpenAPI document, by their paths.
        emit: takes our own faults.
    """

    def __init__(
        self,
        service: Service,
        happenings: Happenings,
        slices: Slices,
        rules: AccessRules,
        files: Mapping[str, StaticFile],
        emit: Callable[[AppFault], None],
    ) -> None:
        self._service = service
        self._happenings = happenings
        self._slices = slices
        self._rules = rules
        self._files = files
        self._emit = emit
        self._expose: type[Exposition] | None = None
        gets: dict[str, Handler] = {
            "/introspect": self._introspect,
            "/introspect/{device}": self._introspect_device,
            "/trace": self._trace,
            "/ledger": self._ledger,
            "/why/{device}": self._why,
            "/registry": self._registry,
            "/events": self._events,
            "/livez": self._alive,
            "/readyz": self._ready,
            "/healthz": self._health,
            "/metrics": self._metrics,
            **dict.fromkeys(files, self._file),
        }
        posts = [f"/devices/{{device}}/{action}" for action in ACTIONS]
        self.routes = [
            *(Route(path, handler) for path, handler in gets.items()),
            *(Route(path, self._device, methods=["POST"]) for path in posts),
        ]
        """The routes, for the OpenAPI document."""
        self._router = Router(self.routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI defines."""
        started = False

        async def protected(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *PROTECTION]
            await send(message)

        try:
            await self._answer(scope, receive, protected)
        except ClientDisconnect:
            return
        except Exception as error:
            self._emit(AppFault("the HTTP endpoint", error))
            if started:
                raise
            await _problem(500, "a fault of the app; its log says more")(scope, receive, protected)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        names = ("host", "origin", "sec-fetch-site", "sec-fetch-mode", "authorization")
        refused = self._rules.refusal(RequestHead(scope["method"], scope["path"], *map(headers.get, names)))
        try:
            if _head_size(scope) > MAX_HEAD_BYTES:
                raise HTTPException(431, f"path and headers may have {MAX_HEAD_BYTES} bytes")
            if refused is not None:
                raise HTTPException(refused.status, refused.detail)
            if scope["path"].endswith("\n"):  # the pattern of a route ends with a dollar, which passes it over
                raise HTTPException(404)
            scope["app"] = self  # else the router answers by itself where there is no route
            await self._router(scope, receive, send)
        except HTTPException as error:
            await _problem(error.status_code, error.detail, error.headers)(scope, receive, send)
        except (PayloadError, RequestRefused) as error:
            status = next(status for kind, status in _STATUS_OF.items() if isinstance(error, kind))
            again = {"retry-after": "3"} if status == 503 else None
            await _problem(status, describe(error), again)(scope, receive, send)

    # Documents

    async def _introspect(self, request: Request) -> ASGIApp:
        return self._describe(_query(request))

    async def _introspect_device(self, request: Request) -> ASGIApp:
        sections = ["devices", "jobs", "recent"]
        return self._describe({"sections": sections, **_query(request), "devices": [request.path_params["device"]]})

    async def _trace(self, request: Request) -> ASGIApp:
        return self._describe({**_query(request), "sections": ["trace"]})

    async def _ledger(self, request: Request) -> ASGIApp:
        return self._describe({**_query(request), "sections": ["ledger"]})

    async def _why(self, request: Request) -> ASGIApp:
        device, whole = request.path_params["device"], DocumentWriter()
        for _ in self._service.describe(
            self._service.understood({"sections": [*SECTIONS, "fields"], "devices": [device]}), whole
        ):
            pass  # one device is one slice
        why = await asyncio.get_running_loop().run_in_executor(None, _load_why)
        return _json(why(device, json.loads(b"".join(whole.end()))))

    def _describe(self, wanted: dict[str, Json]) -> SlicedResponse:
        understood = self._service.understood(wanted)
        whole = DocumentWriter()
        return self._respond(self._service.describe(understood, whole), whole.end)

    async def _registry(self, request: Request) -> ASGIApp:
        self._service.admit(large=self._service.is_large)
        whole = DocumentWriter()
        for section, value in self._service.registry.head().items():
            whole.value(section, value)
        return self._respond(self._service.registry.list_devices(whole), whole.end)

    async def _metrics(self, request: Request) -> ASGIApp:
        if self._expose is None:  # few apps are scraped, and the import takes memory and time
            try:
                self._expose = await asyncio.get_running_loop().run_in_executor(None, _load_metrics)
            except ImportError:
                detail = 'install the client of Prometheus: pip install "leadsman[metrics]"'
                raise HTTPException(404, detail) from None
        self._service.admit(large=self._service.is_large)
        exposition = self._expose(self._service.measures())
        return self._respond(exposition.write(), exposition.end, METRICS)

    def _respond(self, work: Work, end: Callable[[], list[bytes]], media_type: str = JSON) -> SlicedResponse:
        return SlicedResponse(self._service, self._slices, work, end, media_type)

    async def _alive(self, request: Request) -> ASGIApp:
        return _json({"status": "pass"})

    async def _ready(self, request: Request) -> ASGIApp:
        ready = self._service.ready
        return _json({"status": "pass" if ready else "fail"}, 200 if ready else 503)

    async def _health(self, request: Request) -> ASGIApp:
        health = self._service.health()
        return _json(health, 503 if health["status"] == "fail" else 200, HEALTH)

    async def _file(self, request: Request) -> ASGIApp:
        file = self._files[request.scope["path"]]
        headers = {"cache-control": "no-cache", "etag": file.tag}
        if file.tag in (request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    async def _events(self, request: Request) -> ASGIApp:
        if request.method == "HEAD":  # a stream would keep the connection, with nothing to send
            return Response(media_type="text/event-stream", headers={"cache-control": "no-store"})
        if self._happenings.watchers >= MAX_WATCHERS:
            raise Busy(f"{MAX_WATCHERS} streams are open already")
        last = request.headers.get("last-event-id")
        after = None if last is None else int(last) if last.isdecimal() and len(last) < 20 else -1
        return HappeningsStream(self._happenings.watch(after), lambda: encode(self._service.beat()))

    # Requests about a device

    async def _device(self, request: Request) -> ASGIApp:
        body = await _body(request)
        device, action = request.path_params["device"], request.scope["path"].rsplit("/", 1)[-1]
        by = sender_of(body, f"somebody at {request.client.host if request.client else 'HTTP'}")
        if action == "poll":
            return await self._poll(device, body.get("payload", "") if isinstance(body, dict) else "")
        if action in ("hold", "release"):
            return _json(self._service.hold(device, by) if action == "hold" else self._service.release(device, by))
        return _json(self._service.circuit(device, action, by))

    async def _poll(self, device: str, request: Json) -> Response:
        answer: asyncio.Future[PollResult] = asyncio.get_running_loop().create_future()

        def polled(result: PollResult) -> None:
            if not answer.done():
                answer.set_result(result)

        self._service.poll(device, polled, request)
        try:
            async with asyncio.timeout(POLL_TIMEOUT):
                result = await answer
        except TimeoutError:
            raise HTTPException(504, f"the poll takes longer than {POLL_TIMEOUT:g} s") from None
        if result.error is not None:
            raise HTTPException(502, result.error)
        return _json({"device": device, "reading": result.fields})


def _load_metrics() -> "type[Exposition]":
    """Import what writes measures for Prometheus, which has an extra of its own."""
    from leadsman.extensions.http.metrics import Exposition

    return Exposition


def _load_why() -> "Callable[[str, Introspection], Verdict]":
    """Import what gives a verdict, for which few ask."""
    from leadsman.core.introspection.why import why

    return why


def _head_size(scope: Scope) -> int:
    lengths = [len(name) + len(value) for name, value in scope["headers"]]
    return len(scope["raw_path"]) + len(scope["query_string"]) + sum(lengths)


def _query(request: Request) -> dict[str, Json]:
    """The request for a document in the query of a URL: ``sections=app,mqtt&devices=boiler&after=7``."""
    wanted: dict[str, Json] = {}
    for key, value in request.query_params.multi_items():
        if key in ("after", "since"):
            try:
                wanted[key] = float(value)
            except ValueError:
                wanted[key] = value
        elif key == "sections":
            wanted.setdefault(key, []).extend(value.split(","))
        else:
            wanted.setdefault(key, []).append(value)
    return wanted


async def _body(request: Request) -> Json:
    """The decoded body of a request; empty text if it has none."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"a body may have {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time") from None
    if not body:
        return ""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"send {JSON}")
    value, _ = decode(bytes(body))
    if not isinstance(value, dict):
        raise PayloadError('send nothing, or an object such as {"by": "ann"}')
    return value


def _json(
    value: object, status: int = 200, media_type: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(encode(value), status, {"cache-control": "no-store", **(headers or {})}, media_type)


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    problem: Problem = {"title": _TITLES.get(status, "The request was refused"), "status": status, "detail": detail}
    wanted = {"www-authenticate": "Bearer"} if status == 401 else {}
    return _json(problem, status, PROBLEM, {**wanted, **(headers or {})})


_STATUS_OF: Mapping[type[Exception], int] = {UnknownDevice: 404, PayloadError: 400, Busy: 503, RequestRefused: 409}
_TITLES = {404: "Not found", 405: "Method not allowed", 500: "A fault", 502: "The device failed", 503: "Busy"}


def static_files(paths: Iterable[Path]) -> dict[str, StaticFile]:
    """The files of the page, by the paths of their URLs. The page itself is at ``/``; others have their names.

    Indentation, and comments that fill whole lines, are not sent. The lines stay, so that an error in a browser names
    the right one.
    """
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".json": JSON}
    return {
        "/" if path.name == "index.html" else f"/{path.name}": StaticFile(_read_sent(path), kinds[path.suffix])
        for path in sorted(paths)
        if path.suffix in kinds
    }


def _read_sent(path: Path) -> bytes:
    """The bytes sent of a file. No text of the page goes over several lines, so no line of it looks like a comment."""
    content = path.read_bytes()
    if path.suffix not in (".html", ".css", ".js"):
        return content
    content = re.sub(rb"^[ \t]+", b"", content, flags=re.MULTILINE)
    if path.suffix != ".js":
        return content
    return _COMMENTS.sub(lambda found: b"\n" * found[0].count(b"\n"), content)


_COMMENTS = re.compile(rb"^//[^\n]*$|^/\*\*(?s:.*?)\*/$", re.MULTILINE)
"""Comments in JavaScript that fill whole lines."""
