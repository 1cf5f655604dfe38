"""The answer of a server: the meaning of its status (RFC 9110 §15), where a redirect may lead, and the content:
unpacked, up to a limit, and read as text or as JSON. Pure."""

import codecs
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from json import detect_encoding
from typing import Any, NamedTuple, NoReturn, TypeVar, overload
from urllib.parse import urljoin, urlsplit

from pydantic import TypeAdapter, ValidationError

from leadsman.adapters.http.wire import RequestLine
from leadsman.adapters.server import display_url, is_url, origin_of
from leadsman.core.resilience.failure import RetryRequested
from leadsman.core.resilience.retry_after import TRANSIENT, seconds_of
from leadsman.core.text import clean, count_noun, is_nested_deeper
from leadsman.errors import DeviceUnavailable, GarbledData, LeadsmanError, PermanentError

REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAX_REDIRECTS = 5
MIN_PAUSE_SECONDS = 1.0
"""Seconds. A shorter ``Retry-After`` names no pause, so the policy of the handler decides."""
_SHOWN_OF_ERROR = 200
"""Characters of the body of an error that its message shows."""
MAX_DEPTH = 50
"""Levels of lists and objects in each other."""
ENCODINGS = {
    "utf-8": "utf-8",
    "utf-8-sig": "utf-8",
    "utf-16": "utf-16-le",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    **{f"iso8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "iso8859-9": "cp1254",
    **{f"cp{page}": f"cp{page}" for page in range(1250, 1259)},
    **{
        name: name for name in ("koi8-r", "koi8-u", "gb2312", "gbk", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr")
    },
}
"""Encodings of text that are read, by the names of Python, and what browsers take for them (WHATWG Encoding §4.2). Some
others of Python take time that grows with the square of the length."""
FALLBACK = "cp1252"
"""Of what is not UTF-8 and names no encoding: that of browsers (WHATWG HTML §13.2.3.2)."""
_SUSPECT = re.compile(r"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{309}")
"""Signs in a text that is not a number, such as ``NaN``, or that no float can hold."""
_SHOWN = 60
"""Characters of an answer that an error shows."""
_NAMED = 3
"""Fields that an error names."""

ACCEPTED = "gzip"
"""Accept-Encoding. ``deflate`` is read as well, since some servers send it unasked."""
_SPARE = 4096
"""Bytes of a packed body beyond the limit of the unpacked one: headers of gzip, and blocks without content."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Of zlib (its manual, inflateInit2)."""
_WITHOUT_HEADER = -15
"""Some servers leave out the header that ``deflate`` should have (RFC 9110 §8.4.1.2)."""

_T = TypeVar("_T")


class AnswerTooLong(PermanentError):
    """An answer is longer than allowed. The same request would bring as much again."""


class Body:
    """The pieces of a body, unpacked. It never holds more than `most` bytes, and one piece.

    Args:
        encoding: the header ``Content-Encoding``.
        most: bytes.

    Raises:
        PermanentError: at construction: the body is packed in another way.
    """

    def __init__(self, encoding: str, most: int) -> None:
        self._most = most
        self._content = bytearray()
        self._received = 0
        name = encoding.strip().lower()
        if name not in ("", "identity") and name not in _WINDOW_BITS:
            raise PermanentError(f"the answer is packed as {clean(name)!r}, which was not asked for; only gzip is read")
        self._bits = _WINDOW_BITS.get(name, 0)
        self._head = b""
        self._unpacker: zlib._Decompress | None = None

    def __len__(self) -> int:
        return len(self._content)

    @property
    def content(self) -> bytes:
        """The body so far."""
        return bytes(self._content)

    def feed(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            AnswerTooLong: the body is longer than allowed.
            GarbledData: it cannot be unpacked.
        """
        self._received += len(piece)
        if self._received > self._most + (_SPARE if self._bits else 0):
            self._refuse()
        if not self._bits:
            self._content += piece
        elif piece:
            self._unpack(piece)

    def finish(self) -> bytes:
        """The whole body. Raises `GarbledData` if it broke off."""
        if self._head or (self._unpacker is not None and not self._unpacker.eof):
            raise GarbledData("the packed answer broke off")
        return self.content

    def _unpack(self, piece: bytes) -> None:
        if self._unpacker is None:
            piece = self._head + piece
            if len(piece) < 2:
                self._head = piece
                return
            self._head = b""
            if self._bits == 15 and (piece[0] & 15 != 8 or int.from_bytes(piece[:2]) % 31):  # RFC 1950 §2.2
                self._bits = _WITHOUT_HEADER
        try:
            while piece:
                if self._unpacker is None or self._unpacker.eof:
                    self._unpacker = zlib.decompressobj(self._bits)
                self._content += self._unpacker.decompress(piece, self._most + 1 - len(self._content))
                if len(self._content) > self._most:
                    self._refuse()
                piece = self._unpacker.unused_data
        except zlib.error as error:
            raise GarbledData(f"the packed answer cannot be read: {error}") from error

    def _refuse(self) -> NoReturn:
        raise AnswerTooLong(f"the answer is longer than {self._most:,} bytes; most_bytes= allows more")


class HttpAnswer(NamedTuple):
    """An answer with a status from 200 to 299; or with 304, and without content, to a request that asked only for what
    has changed."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes
    """Unpacked, at most `most_bytes` of the client."""
    place: RequestLine
    """The request. As text it has neither credentials nor a query: ``GET http://inverter.lan/status``."""

    def text(self) -> str:
        """The content as text: UTF-8 or UTF-16 if it is that; else in the encoding that its header names, such as
        ISO-8859-1; else in that of Windows for the west of Europe, as browsers take it.

        Raises:
            GarbledData: it is no such text; a retry may help.
        """
        name = _charset(self.headers.get("content-type", ""))
        try:
            return _decoded(self.content, name)
        except (ValueError, LookupError) as error:
            raise GarbledData(f"{self.place}: the answer is no text: {clean(str(error))}") from error

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[_T]) -> _T: ...

    def json(self, kind: Any = None) -> Any:
        """The content as JSON, in an encoding as `text` finds it. Zero bytes behind it are passed over.

        Args:
            kind: a model of pydantic, or any other type, that the JSON must fit. None: anything.

        Raises:
            GarbledData: it is not JSON, has NaN or an infinite number, or is nested deeper than `MAX_DEPTH` levels; a
                retry may help, since a server that starts, or a log-in page, answers so.
            PermanentError: it is JSON that does not fit `kind`. The message names the fields.
        """
        text = self.text().rstrip(" \t\r\n\0")  # some devices send their whole buffer
        if self._is_web_page(text):
            raise GarbledData(
                f"{self.place}: the answer is a web page with status {self.status}, and not JSON: a log-in page, a "
                "captive portal, or the wrong path"
            )
        if is_nested_deeper(text, MAX_DEPTH):
            raise GarbledData(f"{self.place}: the answer is nested deeper than {MAX_DEPTH} levels")
        found = None
        if kind is None or _SUSPECT.search(text):  # pydantic takes NaN and numbers that are too large
            try:
                found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
            except ValueError as error:
                raise self._no_json(text, str(error)) from error
        return found if kind is None else self._validate(kind, text)

    def _validate(self, kind: Any, text: str) -> Any:
        try:
            try:
                reader = _reader(kind)
            except TypeError:  # it has no hash
                reader = TypeAdapter(kind)
            return reader.validate_json(text)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False, include_context=False)
            if faults[0]["type"] == "json_invalid":
                raise self._no_json(text, faults[0]["msg"]) from error
            named = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in faults[:_NAMED]]
            more = f"; {count_noun(len(faults) - _NAMED, 'more')}" if len(faults) > _NAMED else ""
            raise PermanentError(
                clean(f"{self.place}: the JSON is not as expected: {'; '.join(named)}{more}")
            ) from error

    def _no_json(self, text: str, why: str) -> GarbledData:
        if not text.strip():
            return GarbledData(f"{self.place}: the answer is empty, and not JSON")
        return GarbledData(clean(f"{self.place}: the answer is not JSON ({why}): {text[:_SHOWN]!r}"))

    def _is_web_page(self, text: str) -> bool:
        start = text[:200].lstrip().lower()
        return start.startswith(("<!doctype html", "<html")) or (
            start.startswith("<") and "html" in self.headers.get("content-type", "").lower()
        )


def _charset(content_type: str) -> str:
    """The encoding that a header names, in lower case; empty if it names none."""
    for part in content_type.split(";")[1:]:
        key, _, value = part.partition("=")
        if key.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()[:_SHOWN]  # no name is longer; an error has it
    return ""


def _decoded(content: bytes, charset: str) -> str:
    """The text of a content.

    UTF-8 goes first, also where the header names another one: servers name ISO-8859-1 by themselves, and a text in
    another encoding that has any sign beyond ASCII is hardly ever valid UTF-8.

    Raises:
        UnicodeDecodeError: it is no text in the encoding that it should have.
        LookupError: the encoding is not read.
    """
    found = detect_encoding(content)  # by a byte order mark, or where zeros are (RFC 4627 §3)
    try:
        return content.decode(found)
    except UnicodeDecodeError:
        if found != "utf-8":
            raise
    name = codecs.lookup(charset or FALLBACK).name
    if name not in ENCODINGS:
        raise LookupError(f"{charset!r} is not read")
    return content.decode(FALLBACK if name.startswith("utf-8") else ENCODINGS[name])


@lru_cache(maxsize=128)
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


class HttpRefused(PermanentError):
    """The server refused the request, such as with 401, 403 or 404. A retry in this cycle does not help.

    Attributes:
        status: of the answer.
    """

    __module__ = "leadsman.adapters.http"  # as policies in files name it

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class HttpUnavailable(DeviceUnavailable):
    """The server cannot answer now: 408, 425, 429 or 5xx. A retry may help.

    Attributes:
        status: of the answer.
    """

    __module__ = "leadsman.adapters.http"  # as policies in files name it

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


_ADVICE: Mapping[int, str] = {
    403: "the server accepts the account, and not this request: check its rights",
    404: "there is nothing at this address: check url and path",
    405: "the server does not allow this method here",
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
        scheme: of the credentials sent: ``basic``, ``digest`` or ``bearer``; None for nothing.
        wall: the time of our clock, epoch seconds.

    Returns:
        For 408, 425, 429 and 5xx, `RetryRequested` if the server names a pause, else `HttpUnavailable`; `GarbledData`
        for what is no status, and `HttpRefused` for any other. A policy obeys the header at fewer statuses, see
        `leadsman.core.resilience.retry_after`.
    """
    reason = _reason(headers, start)
    if status in TRANSIENT or 500 <= status <= 599:
        pause = seconds_of(headers.get("retry-after"), headers.get("date"), wall)
        if pause is not None and pause >= MIN_PAUSE_SECONDS:
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
    try:
        there = urljoin(visited[-1], location.strip())
    except ValueError:
        there = ""
    why = _why_not(method, visited, there, with_credentials=with_credentials)
    if why is not None:
        way = " → ".join(map(display_url, visited))
        shown = display_url(there) if is_url(there) else clean(repr(location[:_SHOWN_OF_ERROR]))
        raise PermanentError(f"{method} {way} is redirected to {shown}, {why}")
    return there


def _why_not(method: str, visited: Sequence[str], there: str, *, with_credentials: bool) -> str | None:
    """Why a redirect must not be followed; None if it may."""
    if not is_url(there):
        return "which is no address of a server"
    if urlsplit(there).username is not None:
        return "with an account of its own, which is not sent; write that address"
    if method not in ("GET", "HEAD"):
        return "and only GET is repeated elsewhere; write that address"
    if there in visited:
        return "so the redirects go in a circle"
    if len(visited) > MAX_REDIRECTS:
        return f"and no more than {MAX_REDIRECTS} redirects are followed"
    if urlsplit(visited[-1]).scheme == "https" and urlsplit(there).scheme == "http":
        return "which is not encrypted; write that address if you accept it"
    if with_credentials and origin_of(there) != origin_of(visited[0]):
        return "another server, which does not get the credentials; write that address"
    return None


def _reason(headers: Mapping[str, str], start: bytes) -> str:
    """The text of the server beside the status, if that is not a web page."""
    text = start.decode(errors="replace").strip()
    if not text or text.startswith("<") or "html" in headers.get("content-type", ""):
        return ""
    return f" ({clean(text[:_SHOWN_OF_ERROR])})"


def _login_advice(headers: Mapping[str, str], scheme: str | None) -> str:
    wanted = headers.get("www-authenticate", "").lower()
    if scheme is None:
        return "it requires an account: set username=… and password=…, or token=…"
    if scheme == "basic" and "digest" in wanted:
        return 'it wants a digest: write auth="digest"'
    if scheme == "digest" and wanted and not wanted.startswith("digest"):
        return 'it does not offer a digest first; auth="basic" sends the password as it is'
    return "check the token" if scheme == "bearer" else "check username and password"
