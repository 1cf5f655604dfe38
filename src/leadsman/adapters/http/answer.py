"""What a server answered, as text or as JSON. Pure."""

import codecs
import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from leadsman.adapters.http.wire import Place
from leadsman.errors import GarbledData, PermanentError
from leadsman.text import clean, count_noun
from leadsman.text.nesting import is_nested_deeper

MOST_DEPTH = 50
"""Levels of lists and objects in each other."""
ENCODINGS = frozenset({"utf-8", "utf-8-sig", "utf-16", "ascii", "iso8859-1", "iso8859-15", "cp1252"})
"""Encodings of text that are read. Some others of Python take time that grows with the square of the length."""
_SUSPECT = re.compile(r"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{309}")
"""What a text has that has a number which is none, or none that a float can hold."""
_SHOWN = 60
"""Characters of an answer that an error shows."""
_NAMED = 3
"""Fields that an error names."""

_T = TypeVar("_T")


class HttpAnswer(NamedTuple):
    """An answer with a status from 200 to 299."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes
    """Unpacked, at most `most_bytes` of the client."""
    place: Place
    """The request. As text it has neither credentials nor a query: ``GET http://inverter.lan/status``."""
    unchanged: bool = False
    """Whether the server answered that nothing has changed, so that this is what it answered before."""

    def text(self) -> str:
        """The content as text, in the encoding that its header names, else UTF-8.

        Raises:
            GarbledData: it is no such text; a retry may help.
        """
        name = "utf-8"
        for part in self.headers.get("content-type", "").split(";")[1:]:
            key, _, value = part.partition("=")
            if key.strip().lower() == "charset":
                name = value.strip().strip('"') or name
        try:
            if codecs.lookup(name).name not in ENCODINGS:
                raise LookupError(f"{name!r} is not read")
            return self.content.decode(name)
        except (ValueError, LookupError) as error:
            raise GarbledData(f"{self.place}: the answer is no text: {clean(str(error))}") from error

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[_T]) -> _T: ...

    def json(self, kind: Any = None) -> Any:
        """The content as JSON.

        Args:
            kind: a model of pydantic, or any other type, that the JSON must fit. None: anything.

        Raises:
            GarbledData: it is not JSON, has NaN or an infinite number, or is nested deeper than `MOST_DEPTH` levels; a
                retry may help, since a server that starts, or a log-in page, answers so.
            PermanentError: it is JSON that does not fit `kind`. The message names the fields.
        """
        try:
            text = self.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise GarbledData(f"{self.place}: the answer is not JSON in UTF-8") from error
        if self._is_web_page(text):
            raise GarbledData(
                f"{self.place}: the answer is a web page with status {self.status}, and not JSON: a log-in page, a "
                "captive portal, or the wrong path"
            )
        if is_nested_deeper(text, MOST_DEPTH):
            raise GarbledData(f"{self.place}: the answer is nested deeper than {MOST_DEPTH} levels")
        found = None
        if kind is None or _SUSPECT.search(text):  # pydantic takes NaN and numbers that are too large
            try:
                found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
            except ValueError as error:
                raise self._no_json(text, str(error)) from error
        return found if kind is None else self._fitting(kind, text)

    def _fitting(self, kind: Any, text: str) -> Any:
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
