"""A session: its events, the lines of its file, and what its events hold: replies and errors. Pure.

The first line is the head, each further line one event, and the last one the end:

    {"session": 1, "app": "kitchen", "began": "2026-11-27T20:40:00.000Z"}
    {"at": 0.003, "wire": "serial /dev/ttyUSB0", "n": 1, "event": "open"}
    {"at": 0.021, "n": 1, "event": "opened"}
    {"at": 0.022, "wire": "serial /dev/ttyUSB0", "n": 2, "event": "send", "text": "P?\\r\\n"}
    {"at": 0.139, "n": 2, "event": "received", "text": "21.5\\r\\n"}
    {"at": 600.0, "event": "end"}

What the app does on a wire begins an exchange, with a number of its own. What the device does belongs to an exchange.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from leadsman import errors
from leadsman.adapters.caldav.backend import ReplyTooLarge
from leadsman.core.loop.clock import rfc3339
from leadsman.core.resilience.failure import RetryRequested
from leadsman.core.storage.given_file import read_given
from leadsman.core.text import clean, describe, is_nested_deeper, written_by_newer
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import SessionError

if TYPE_CHECKING:
    from leadsman.extensions.sessions.document import SessionHead, SessionLine

VERSION = 1
"""Of the format."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Bytes of a file. A recording ends there."""
MAX_DEPTH = 4
"""Levels of lists and objects in a line."""
MAX_SESSION_SECONDS = 366 * 86_400.0
"""Seconds of a session."""
RECORD_AGAIN = "record it again, or fix the line"

Fields = Mapping[str, Any]
"""JSON: text, numbers, None, and lists and objects of them."""


class Shape(NamedTuple):
    """The fields of an event."""

    asks: bool = False
    """Whether the app does it, and so begins an exchange."""
    has_data: bool = False
    """Whether it has bytes; of those that may have none, the bytes are empty."""
    fields: Mapping[str, tuple[type, ...]] = {}
    """Its other fields, and their types."""


_TEXT, _MAYBE_TEXT, _NUMBER, _MAP, _FLAG = (str,), (str, type(None)), (int,), (dict,), (bool,)
_UUID: Mapping[str, tuple[type, ...]] = {"address": _TEXT, "uuid": _TEXT}
FAILED = Shape(fields={"error": _TEXT, "message": _TEXT})

SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "serial": {
        "open": Shape(asks=True),
        "opened": Shape(),
        "send": Shape(asks=True, has_data=True),
        "received": Shape(has_data=True),
        "lost": Shape(fields={"message": _MAYBE_TEXT}),
        "closed": Shape(),
        "failed": FAILED,
    },
    "http": {
        "ask": Shape(asks=True, has_data=True, fields={"method": _TEXT, "url": _TEXT}),
        "answered": Shape(fields={"status": _NUMBER, "headers": _MAP}),
        "body": Shape(has_data=True, fields={"ended": _FLAG}),
        "failed": FAILED,
    },
    "bluetooth": {
        "scan": Shape(asks=True),
        "scanning": Shape(),
        "advertised": Shape(
            fields={
                "address": _TEXT,
                "name": _MAYBE_TEXT,
                "rssi": _NUMBER,
                "services": (list,),
                "manufacturer": _MAP,
                "service_data": _MAP,
            }
        ),
        "connect": Shape(asks=True, fields={"address": _TEXT}),
        "connected": Shape(),
        "has": Shape(fields={"uuid": _TEXT, "found": _FLAG}),
        "read": Shape(asks=True, fields=_UUID),
        "value": Shape(has_data=True),
        "write": Shape(asks=True, has_data=True, fields=_UUID),
        "subscribe": Shape(asks=True, fields=_UUID),
        "unsubscribe": Shape(asks=True, fields=_UUID),
        "disconnect": Shape(asks=True, fields={"address": _TEXT}),
        "done": Shape(),
        "notified": Shape(has_data=True, fields={"uuid": _TEXT}),
        "lost": Shape(),
        "failed": FAILED,
    },
    "calendars": {
        "search": Shape(asks=True, fields={"calendar": _MAYBE_TEXT, "start": _TEXT, "end": _TEXT, "zone": _TEXT}),
        "search_all": Shape(asks=True, fields={"calendar": _MAYBE_TEXT}),
        "changes": Shape(asks=True, fields={"calendar": _MAYBE_TEXT, "token": _MAYBE_TEXT}),
        "names": Shape(asks=True),
        "found": Shape(fields={"texts": (list,)}),
        "changed": Shape(fields={"token": _MAYBE_TEXT, "objects": (int, type(None))}),
        "failed": FAILED,
    },
    "i2c": {
        "open": Shape(asks=True),
        "opened": Shape(),
        "transfer": Shape(asks=True, has_data=True, fields={"address": _TEXT, "count": _NUMBER}),
        "received": Shape(has_data=True),
        "failed": FAILED,
    },
    "onewire": {
        "list": Shape(asks=True),
        "listed": Shape(fields={"names": (list,)}),
        "read": Shape(asks=True, fields={"thermometer": _TEXT}),
        "content": Shape(has_data=True),
        "failed": FAILED,
    },
    "program": {
        "run": Shape(asks=True, fields={"command": _TEXT}),
        "ended": Shape(has_data=True, fields={"code": _NUMBER, "errors": _TEXT}),
        "failed": FAILED,
    },
}
"""The events of each kind of wire."""


class Event(NamedTuple):
    """The traffic of a wire at one moment."""

    at: float
    """Seconds since the beginning."""
    wire: str
    """The kind of the wire and, if it has one, its name: ``serial /dev/ttyUSB0``."""
    n: int
    """The number of the exchange."""
    what: str
    data: bytes | None = None
    more: Mapping[str, Any] = {}
    """Its other fields."""
    line: int = 0
    """In the file; 0 of one that was not read."""

    @property
    def kind(self) -> str:
        """The kind of the wire."""
        return self.wire.partition(" ")[0]

    @property
    def content(self) -> dict[str, Any]:
        """All but the time and the place, as JSON."""
        return {"event": self.what, **self.more, **({} if self.data is None else _encode(self.data))}

    def as_line(self) -> str:
        """The line of the file, with its end."""
        wire = {"wire": self.wire} if SHAPES[self.kind][self.what].asks else {}
        return _line({"at": round(self.at, 3), **wire, "n": self.n, **self.content})


T = TypeVar("T")


class ReplyShape(NamedTuple, Generic[T]):
    """The reply to a call: an event for the returned value."""

    what: str
    """The event."""
    kept: Callable[[T], tuple[bytes | None, Fields]]
    """The bytes of the event and its other fields, made of the returned value."""
    found: Callable[[Event], T]
    """The returned value, made of the event."""


class RecordedSession(NamedTuple):
    """A whole session."""

    app: str
    began: float
    """Epoch seconds, to the millisecond."""
    length: float
    """Seconds."""
    events: tuple[Event, ...]
    name: str = "the session"
    """Of its file."""


def head(app: str, began: float) -> str:
    """The first line of a file."""
    found: SessionHead = {"session": VERSION, "app": app, "began": rfc3339(began)}
    return _line(found)


def end(at: float) -> str:
    """The last line of a file."""
    found: SessionLine = {"at": round(at, 3), "event": "end"}
    return _line(found)


def read_session(path: Path | str) -> RecordedSession:
    """Read a file. Raises `SessionError`, which names the line, and what to do."""
    name = clean(str(path))
    try:
        data = read_given(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise SessionError(f"{name} cannot be read: {describe(error)}; name a file of leadsman record") from None
    if len(data) > MAX_FILE_BYTES:
        raise SessionError(f"{name} has more than {MAX_FILE_BYTES // 1024 // 1024} MiB, which no session has")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SessionError(f"{name} line {line}: there are bytes that are no UTF-8; {RECORD_AGAIN}") from None
    return session_of(text, name)


def session_of(text: str, name: str) -> RecordedSession:
    """The session in the text of a file with this name. Raises as `read_session`."""
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    reader = _SessionReader(name, len(lines))
    app, began = reader.head(lines[0] if lines else "")
    for number, line in enumerate(lines[1:], 2):
        reader.read_line(number, line)
    if reader.length is None:
        raise reader.cut("the end is missing", "append")
    return RecordedSession(app, began, reader.length, tuple(reader.events), name)


class _SessionReader:
    """Reads one line after the other."""

    def __init__(self, name: str, lines: int) -> None:
        self.events: list[Event] = []
        self.length: float | None = None
        self._name = name
        self._lines = lines
        self._at = 0.0
        self._number = 1
        self._wires: dict[int, str] = {}
        """Of the exchanges, by their numbers."""

    def head(self, line: str) -> tuple[str, float]:
        """Read the first line."""
        head = self._parse(line) if line.startswith("{") else None
        if head is None or "session" not in head:
            raise self._wrong("this is no session; leadsman record APP writes one", "")
        version = head["session"]
        if version != VERSION or isinstance(version, bool):
            if isinstance(version, int) and version > VERSION:
                raise self._wrong(
                    f"the session {written_by_newer(_show(version), VERSION)}", "update leadsman, or record it again"
                )
            raise self._wrong(f"the session has version {_show(version)}, and this leadsman reads {VERSION}")
        app, began = head.get("app"), head.get("began")
        if not isinstance(app, str) or not isinstance(began, str):
            raise self._wrong("app and began are missing, or no text")
        try:
            return app, datetime.fromisoformat(began).timestamp()
        except (ValueError, OverflowError, OSError):
            raise self._wrong(f"began is {_show(began)}, which is no time such as 2026-11-27T20:40:00Z") from None

    def read_line(self, number: int, line: str) -> None:
        """Read another line."""
        self._number = number
        if self.length is not None:
            raise self._wrong("something follows the end", "delete it, or the end above it")
        found = self._parse(line)
        self._at = self._time(found.get("at"))
        if found.get("event") == "end" and "wire" not in found:
            self.length = self._at
        else:
            self.events.append(self._event(found))

    def _parse(self, line: str) -> dict[str, Any]:
        try:
            if is_nested_deeper(line, MAX_DEPTH):
                raise self._wrong(f"it is nested deeper than {MAX_DEPTH}")
            found = json.loads(line, parse_constant=_refuse_constant)
        except ValueError as error:
            if self._number == self._lines > 1:
                raise self.cut("the line is cut off", "replace it by") from None
            raise self._wrong(f"this is no JSON: {describe(error)}") from None
        if not isinstance(found, dict):
            raise self._wrong("this is no object in {}")
        return found

    def _time(self, at: object) -> float:
        if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at <= MAX_SESSION_SECONDS:
            raise self._wrong(f"at is {_show(at)}; it must be 0 to {MAX_SESSION_SECONDS:.0f} seconds")
        if at < self._at:
            raise self._wrong(f"at is {at:g}, which is before {self._at:g} of the line above")
        return float(at)

    def _event(self, found: dict[str, Any]) -> Event:
        n, what = found.pop("n", None), found.pop("event", None)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise self._wrong(f"n is {_show(n)}; it must be 1 or more")
        wire = self._wire(n, found.pop("wire", None))
        kind = wire.partition(" ")[0]
        shapes = SHAPES.get(kind)
        if shapes is None:
            raise self._wrong(f"wire is of the kind {clean(kind)!r}", suggestion(kind, SHAPES))
        if not isinstance(what, str) or what not in shapes:
            raise self._wrong(f"event is {_show(what)}", suggestion(str(what), shapes))
        shape = shapes[what]
        if shape.asks is (n in self._wires):
            raise self._wrong(f"exchange {n} begins for the second time" if shape.asks else self._nobody(n))
        self._wires[n] = wire
        data = self._data(found, shape)
        for field, types in shape.fields.items():
            value = found.get(field, ...)
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise self._wrong(f"{field} of {what!r} is {_show(found.get(field))}")
        del found["at"]
        self._check_bytes(what, found)
        return Event(self._at, wire, n, what, data, found, self._number)

    def _wire(self, n: int, wire: object) -> str:
        """The wire of an event: its own, or that of its exchange."""
        if wire is None and n in self._wires:
            return self._wires[n]
        if wire is None:
            raise self._wrong(self._nobody(n))
        if not isinstance(wire, str):
            raise self._wrong("wire is no text")
        return wire

    @staticmethod
    def _nobody(n: int) -> str:
        return f"it belongs to exchange {n}, which no line above begins"

    def _data(self, found: dict[str, Any], shape: Shape) -> bytes | None:
        text, hex_ = found.pop("text", None), found.pop("hex", None)
        if not shape.has_data:
            return None
        if isinstance(text, str) and hex_ is None:
            return text.encode(errors="replace")
        try:
            if isinstance(hex_, str) and text is None:
                return bytes.fromhex(hex_)
        except ValueError:
            pass
        raise self._wrong(f"its bytes are missing or wrong: text is {_show(text)}, and hex is {_show(hex_)}")

    def _check_bytes(self, what: str, found: Fields) -> None:
        """Check what stands inside of fields: the bytes of an advertisement, and lists of text."""
        try:
            if what == "advertised":
                if any(int(company) < 0 for company in found["manufacturer"]):
                    raise ValueError("manufacturer")
                for data in (*found["manufacturer"].values(), *found["service_data"].values()):
                    bytes.fromhex(data)
            lists = (each for field in ("services", "texts", "names") for each in found.get(field, ()))
            if not all(isinstance(each, str) for each in (*lists, *found.get("headers", {}).values())):
                raise ValueError("texts")
        except (ValueError, TypeError):
            raise self._wrong(f"a field of {what!r} has something that does not belong there") from None

    def cut(self, what: str, do: str) -> SessionError:
        """The error of a file whose end is missing."""
        return self._wrong(what, f"record it again, or {do} this line, to play what is there: {end(self._at).strip()}")

    def _wrong(self, what: str, do: str = RECORD_AGAIN) -> SessionError:
        return SessionError(f"{self._name} line {self._number}: {what}{'; ' if do else ''}{do}")


def _line(found: Fields) -> str:
    text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair
        text = json.dumps(found)
    return f"{text}\n"


def _encode(data: bytes) -> dict[str, str]:
    """Bytes as text if a person can read that, else in hexadecimal digits."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex(" ")}
    return {"text": text} if all(each.isprintable() or each in "\r\n\t" for each in text) else {"hex": data.hex(" ")}


def _show(value: object) -> str:
    return clean(json.dumps(value, ensure_ascii=False, default=str)[:60])


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


_KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.DeviceTimeout,
        errors.DeviceUnavailable,
        errors.GarbledData,
        errors.InvalidValue,
        errors.NotInstalled,
        errors.PermanentError,
        ReplyTooLarge,
        errors.TransientError,
        OSError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}
"""The errors that a wire may raise, by name."""


def fields_of(error: Exception) -> Fields:
    """The fields kept of an error."""
    found: dict[str, object] = {"error": type(error).__name__, "message": str(error)}
    number = getattr(error, "errno", None)
    if type(number) is int:
        found["errno"] = number
    if isinstance(error, RetryRequested):
        found |= {"seconds": error.delay, "message": error.reason or ""}
    if isinstance(properties := getattr(error, "retry_properties", None), dict):
        found["properties"] = {key: value for key, value in properties.items() if isinstance(value, str | int)}
    return found


def error_of(fields: Fields) -> Exception:
    """The error that is raised again. One of a class that is not known here is a `RuntimeError`, as a bug of a library
    is."""
    name, message, number, delay = (fields.get(key) for key in ("error", "message", "errno", "seconds"))
    text = str(message)
    if name == "RetryRequested":
        return RetryRequested(delay if isinstance(delay, int | float) and 0 <= delay < 1e9 else None, text)
    if type(number) is int:
        return OSError(number, text.removeprefix(f"[Errno {number}] "))
    error = _KNOWN.get(str(name), RuntimeError)(text)
    if isinstance(properties := fields.get("properties"), dict) and isinstance(error, errors.DeviceError):
        error.retry_properties = properties  # type: ignore[attr-defined]  # what a policy may ask for
    return error
