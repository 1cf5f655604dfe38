"""Redaction: the values of secrets, and what matches patterns of the user's own, such as serial numbers.

A secret that leadsman was given is a `Secret`, and hidden by its value as long as that lives, wherever an error repeats
it: as it is, quoted, percent-encoded, in base64, in hexadecimal digits, and cut at the end of a text.

The patterns of an app apply to all text that `leadsman.core.text.clean` makes safe, in the whole process, as long as
the app object lives. Text from a device may be made to hurt: a pattern that takes too long on the worst of texts would
block the event loop. Python cannot interrupt a search, so such a pattern is refused when it is declared. The rule looks
at the pattern alone, and so a pattern is refused on every machine or on none.
"""

import base64
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the only reader of patterns that there is
from typing import Any, Protocol, Self, TypeGuard
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit
from weakref import WeakSet, WeakValueDictionary

from leadsman.errors import InvalidType, InvalidValue

MAX_PATTERN_CHARS = 2000
"""Characters that a pattern is applied to at most."""
MAX_STEPS = 10_000_000
"""Steps that a search may take on the worst text, about a tenth of a second: at each of its characters, each repeat may
be tried with each of its lengths, and each alternative."""
MIN_SECRET_CHARS = 6
"""Characters of a secret that is hidden by its value: a shorter one is a part of too many words."""
MAX_LINE_CHARS = 20_000
"""Characters of a text in which secrets are looked for; what follows is not shown."""
HIDDEN = "***"
"""Takes the place of each match."""
_BEHIND_A_CUT = "…'\". "
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class Redaction:
    """The patterns of one app, compiled and checked.

    Raises:
        InvalidType, InvalidValue: see `pattern_of`.
    """

    __slots__ = ("__weakref__", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str | bytes) or not isinstance(patterns, Iterable):
            raise InvalidType(
                f"redact is {patterns!r}; write a list of regular expressions, such as [r'SN-[0-9]{{8}}']"
            )
        self.patterns = tuple(pattern_of(pattern) for pattern in patterns)
        if self.patterns:
            _ACTIVE.add(self)


class SecretValue(Protocol):
    """A `SecretStr` or `SecretBytes` of pydantic, or anything that keeps its value as they do."""

    def get_secret_value(self) -> str | bytes: ...


class Secret(str):
    """A text that is hidden in whatever leaves the process, as long as this object lives. Of a URL, which is often not
    repeated whole, its credentials, the values of its query and the levels of its path that a token may be, too."""

    hidden: frozenset[str]
    """The values that are hidden."""

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.hidden = frozenset(each for each in cls.values_in(str(text)) if len(each) >= MIN_SECRET_CHARS)
        _SECRETS[id(self)] = self
        return self

    @staticmethod
    def values_in(text: str) -> Iterator[str]:
        """The values in a text that are hidden."""
        yield from (text, text.strip())
        if "://" in text:
            yield from credentials_in(text)
            yield from _parts_of(text)

    def __repr__(self) -> str:
        return repr(HIDDEN)


class Address(Secret):
    """A text with URLs, of which only the credentials are hidden."""

    @staticmethod
    def values_in(text: str) -> Iterator[str]:
        """The values in a text that are hidden."""
        return credentials_in(text)


class Public(str):
    """A word, such as the name of an app, that is shown as long as this object lives, even if it is a secret, too."""

    __slots__ = ("__weakref__",)

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        _PUBLIC[id(self)] = self
        return self


_ACTIVE: WeakSet[Redaction] = WeakSet()
_SECRETS: WeakValueDictionary[int, Secret] = WeakValueDictionary()
_PUBLIC: WeakValueDictionary[int, Public] = WeakValueDictionary()
"""By the identity of the objects: two with the same text live for times of their own."""


def is_secret_value(value: object) -> TypeGuard[SecretValue]:
    """Whether it is a secret of pydantic, or its class is derived from one."""
    return hasattr(type(value), "get_secret_value")


def reveal(value: object) -> object:
    """The text of a secret of pydantic. Anything else as it is."""
    if not is_secret_value(value):
        return value
    secret = value.get_secret_value()
    return secret.decode(errors="surrogateescape") if isinstance(secret, bytes) else str(secret)


def secret_or_none(name: str, value: object) -> Secret | None:
    """An argument that is a secret, hidden from now on.

    Raises:
        InvalidType: it is not text; the message does not show it.
    """
    text = reveal(value)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidType(f"{name} has the type {type(text).__name__}; write text or a SecretStr")
    return Secret(text)


def address_of(value: str | SecretValue) -> Secret:
    """A URL that may have credentials, hidden from now on: all of it if it was given as a secret."""
    if isinstance(value, Secret):
        return value
    text = str(reveal(value))
    return Secret(text) if is_secret_value(value) else Address(text)


def credentials_in(text: str) -> Iterator[str]:
    """The credentials in URLs: as they are written, and without percent-encoding. A user without a password is a token,
    but not where servers have users without passwords."""
    for scheme, user, colon, password in re.findall(_USER_INFO, text) if "@" in text else ():
        if colon or scheme.lower() in _TOKEN_SCHEMES:
            secret = password if colon else user
            yield from (secret, unquote(secret))
    for secret in re.findall(_QUERY_SECRETS, text) if "=" in text else ():
        yield from (secret, unquote(secret))


_USER_INFO = r"(\w[\w+.-]{0,20})://([^\s/?#:@,]*)(?:(:)([^\s/?#]*))?@"
"""RFC 3986 §3.2.1."""
_TOKEN_SCHEMES = ("nats", "tls", "http", "https")
_QUERY_SECRETS = r"(?i)[?&]\w{0,40}(?:password|passwd|token|secret|api_?key)=([^\s&#]+)"
_LONG_CHARS = 16


def _parts_of(url: str) -> Iterator[str]:
    """What may be a secret in a URL that is one: the user, what is in the query and behind #, and those levels of the
    path that are long or have a digit."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return
    found = [parts.username or "", parts.fragment, *(value for _, value in parse_qsl(parts.query))]
    found += [each for each in parts.path.split("/") if len(each) >= _LONG_CHARS or any(map(str.isdigit, each))]
    for each in found:
        yield from (each, unquote(each))


def shapes_of(secret: str) -> Iterator[str]:
    """How a secret may stand in a text: as it is, as Python and JSON quote it, percent-encoded (RFC 3986 §2.1), in
    hexadecimal digits, and inside base64 at each of its three positions (RFC 4648 §4), where a user and a colon may
    precede it. Of one that has several lines, each long line."""
    for each in (secret, *(line for line in secret.splitlines() if "\n" in secret and len(line) >= _LONG_CHARS)):
        try:
            raw = each.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raw = each.encode(errors="surrogatepass")
        yield from (each, repr(each)[1:-1], json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
        yield from (repr(raw)[2:-1], raw.decode(errors="replace"), raw.hex(), raw.hex().upper())
        encoded = quote(raw, safe=""), quote(raw), quote_plus(raw)
        yield from (*encoded, *(re.sub("%..", lambda found: found[0].lower(), text) for text in encoded))
        for before in range(3):
            for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
                text = alphabet(b"\0" * before + raw).decode()
                inner = text[4 if before else 0 : len(text) // 4 * 4 - 4]  # without what its neighbours decide
                if len(inner) >= MIN_SECRET_CHARS:
                    yield inner


def without_secrets(text: str) -> str:
    """The text, with `HIDDEN` in place of each secret that is known in this process."""
    known = frozenset[str]().union(*(secret.hidden for each in _SECRETS.valuerefs() if (secret := each()) is not None))
    if not known:
        return text
    shapes = _shapes(known.difference(word for each in _PUBLIC.valuerefs() if (word := each()) is not None))
    hidden = sorted(span for shape in shapes for span in _places_of(shape, text))
    parts, end = [], 0
    for begin, until in hidden:
        if begin >= end:
            parts += [text[end:begin], HIDDEN]
        end = max(end, until)
    return "".join((*parts, text[end:]))


def _places_of(shape: str, text: str) -> Iterator[tuple[int, int]]:
    """Where this shape stands in a text, and where it begins if the text was cut in the middle of it."""
    begin = text.find(shape)
    while begin >= 0:
        yield begin, begin + len(shape)
        begin = text.find(shape, begin + len(shape))
    begin = _begin_of_cut(shape, text)
    if begin < len(text):
        yield begin, len(text)


def _begin_of_cut(shape: str, text: str) -> int:
    """Where this shape begins in a text that was cut in the middle of it; the end of the text if it was not. Behind
    the cut there may be what shows it, or a quote."""
    cut = len(text.rstrip(_BEHIND_A_CUT))
    begin = text.find(shape[:MIN_SECRET_CHARS], max(0, cut - len(shape)))
    while begin >= 0:
        if shape.startswith(text[begin:cut]):
            return begin
        begin = text.find(shape[:MIN_SECRET_CHARS], begin + 1)
    return len(text)


@lru_cache(maxsize=1)
def _shapes(secrets: frozenset[str]) -> tuple[str, ...]:
    """The shapes of these secrets, the longest first."""
    return tuple(sorted({shape for secret in secrets for shape in shapes_of(secret)}, key=len, reverse=True))


def redact(text: str) -> str:
    """The text, with `HIDDEN` in place of each match of a pattern."""
    for redaction in tuple(_ACTIVE):
        for pattern in redaction.patterns:
            text = pattern.sub(HIDDEN, text[:MAX_PATTERN_CHARS])  # `HIDDEN` may be longer than what it hides
    return text


def pattern_of(pattern: object) -> re.Pattern[str]:
    """Compile a pattern.

    Raises:
        InvalidType: it is not text.
        InvalidValue: it is not a regular expression, it matches empty text, or it may take too long.
    """
    if not isinstance(pattern, str):
        raise InvalidType(f"redact has {pattern!r}; write a regular expression as text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # a pattern that will mean something else
            compiled = re.compile(pattern)
            steps = _steps(_parser.parse(pattern))
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise InvalidValue(f"redact has {pattern!r}, which is not a regular expression: {error}; fix it") from None
    if steps > MAX_STEPS:
        raise InvalidValue(
            f"redact has {pattern!r}, which may take too long on a long text; write an upper limit, such as {{1,40}}, "
            "instead of + and *, and nothing of variable length and no | inside a repeat"
        )
    if compiled.search("") is not None:
        raise InvalidValue(f"redact has {pattern!r}, which matches empty text; write a pattern that needs a character")
    return compiled


def _steps(parsed: Any) -> float:
    """The steps of a search on the worst text. Infinity if a repeat has parts whose length varies: one text can be
    divided among them in ways whose number doubles with each character."""
    steps: float = MAX_PATTERN_CHARS
    for operation, argument in _operations(parsed):
        if operation in _REPEATS:
            fewest, most, body = (argument[0], int(argument[1]), argument[2])
            if most > 1 and any(_varies(inner, value) for inner, value in _operations(body)):
                return float("inf")
            steps *= min(max(most, most - fewest + 1), MAX_PATTERN_CHARS)
        elif operation == "BRANCH":
            steps *= len(argument[1])
    return steps


def _varies(operation: str, argument: Any) -> bool:
    """Whether an operation may match texts of several lengths, or in several ways."""
    return operation in ("BRANCH", "GROUPREF", "GROUPREF_EXISTS") or (
        operation in _REPEATS and argument[1] > argument[0]
    )


def _operations(parsed: Any) -> Iterator[tuple[str, Any]]:
    """All operations of a parsed pattern, those inside of others included."""
    for operation, argument in parsed:
        yield str(operation), argument
        for inner in _inside(argument):
            yield from _operations(inner)


def _inside(argument: Any) -> Iterator[Any]:
    """The parsed patterns in the argument of an operation."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _inside(each)
