"""Makes text from outside safe to show in a log, a topic or a terminal.

The patterns are text, which `re` compiles at first use and then keeps: most apps start, and many end, without a text
that needs one, and compiling them takes longer than the rest of this module.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from leadsman.core.text.redaction import MAX_LINE_CHARS, MAX_PATTERN_CHARS, redact, without_secrets
from leadsman.errors import PayloadError, RequestRefused

MAX_TEXT_CHARS = 500
"""Characters. A longer text is cut, since it is a payload and not an error message."""
_URL = r"(\w[\w+.-]{0,20})://(\S+)"
"""A URL, which may have credentials. The length of its scheme is bounded: else a long word takes as many steps as its
square. So it is with each repeat in these patterns that another one may follow."""
_BROKER_SCHEMES = frozenset({"mqtt", "mqtts", "ws", "wss", "mqtt+unix"})
_BETWEEN_URLS = r"(?:,|(?<!\s)\s)\s*(?=[a-z+]+://)"
_SCHEME = "(?:basic|digest|bearer)"
_NO_VALUE = rf"""(?![.,;:?)\]…"']{{1,6}}(?:\s|$))(?!"{_SCHEME}"|'{_SCHEME}'|{_SCHEME}(?:[\s.,;)]|$))"""
"""Not assigned: what ends a sentence or stands for a value, as in our own "give password=…, or token=…", and the names
of schemes, as in "write auth="digest"", which are no secrets."""
_VALUE = _NO_VALUE + r"""(?:\\{1,3}"[^"]*"?|b?"(?:[^"\\]|\\.)*"|b?'(?:[^'\\]|\\.)*'|b?["'].*|[^\s&"']\S*)"""
"""What is assigned to a word: in quotes, up to the end if the text was cut within them, or up to the next space. The
quotes of JSON that is itself in quotes have a backslash."""
_SECRETS = (
    r"(?is)\b(\w*(?:password|passwd|passphrase|token|secret|credentials?|authorization|api[_-]?key|access[_-]?key"
    r"|account[_-]?key|auth[_-]?key|encryption[_-]?key|private[_-]?key|shared[_-]?key))\b"
    rf"""(\\{{0,3}}["']?\s*(?:[=:]>?|%3[ad])\s*|>)(?:(?:basic|bearer|digest|negotiate|token|apikey)\s+)?{_VALUE}"""
)
"""A word for a secret and what is assigned to it: also as in JSON and XML, and after the scheme of RFC 9110 §11.4."""
_PAIRS = (
    r"""(?i)([(\[]\s*b?["'][\w-]{0,40}(?:authorization|auth|cookie|credentials?|key|pass|passphrase|passwd|password|pwd|secret|signature|token)["']\s*,\s*)"""
    r"""b?(?:"[^"]*"?|'[^']*'?)"""
)
"""A word for a secret and its value as a pair, as lists of headers have them."""
_SHORT_SECRETS = (
    rf"""(?is)(?:\b(key|appid|pin|sid|(?:\w{{0,40}}_)?(?:pwd|pass|sig|signature|auth))(=)|\b(x-[\w-]{{0,40}}key)(["']?\s*[=:]\s*)){_VALUE}|"""
    r"""(["'](?:pwd|pass|pin|auth|signature)["'])(\s*:\s*)b?(?:"[^"]*"?|'[^']*'?|[\w.+/-]+)|"""
    r"""\b(response)(=)["']?[0-9a-f]{32,}["']?"""
)
"""Words that mean other things, too: only in a query, in JSON, as the name of a header, or, of the response of a digest
(RFC 7616 §3.4), with hexadecimal digits."""
_AUTHORIZATION = r"""(?i)\b((?:proxy-)?authorization)(["']?\s*[=:]\s*["']?)[a-z][\w-]{0,30}\s+(?!…)[^\s"',]+"""
"""A scheme and its credentials (RFC 9110 §11.6.2)."""
_SCHEMES = r"(?i)\b(basic|bearer)( )(?=[\w+/.~-]{0,200}[\d=])[\w+/=.~-]{12,}"
"""Credentials without the name of their header. A digit or a = marks them off from "basic authentication"."""
_COOKIES = r"""(?i)\b((?:set-)?cookie)(["']?\s*[=:]\s*b?["']?)[^"'\n]+"""
_PEM = r"(?s)(-----BEGIN [A-Z0-9 ]{1,40}-----)(?:(?!-----END).)*"
_REST_OF_PEM = r"(?m)(?:^[A-Za-z0-9+/=]{16,80}\r?\n)+(?=-----END )"
"""What is left of one whose beginning was cut away. Its lines have 64 characters, some have 76."""
_JSON_STRING = r'(?s)"(?:[^"\\]|\\.)*+"?'
_BRACKET = r"[\[\]{}]"


def clean(text: str) -> str:
    """Escape control characters, hide the values of secret settings, credentials in URLs and after words such as
    ``password=``, and what the patterns of the app match, and cut what is too long.

    A device or a server may put anything into an error message: line breaks that forge log lines, escape sequences that
    drive a terminal, or the URL with its password.
    """
    text = without_pem(without_secrets(text[:MAX_LINE_CHARS])[:MAX_PATTERN_CHARS])
    folded = text.casefold()
    if any(part in folded for part in _PARTS):
        for pattern, hidden, parts in _HIDING:
            if any(part in folded for part in parts):
                text = re.sub(pattern, hidden, text)
    text = _printable(redact(text))
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def without_pem(text: str) -> str:
    """Hide what is between the first and the last line of a key or a certificate (RFC 7468 §2)."""
    text = re.sub(_PEM, r"\1***", text) if "-----BEGIN" in text else text
    return re.sub(_REST_OF_PEM, "***\n", text) if "\n-----END" in text else text


def without_secret_lines(text: str) -> str:
    """Hide those secrets in a text that have several lines, before it is divided into its lines."""
    return without_pem(without_secrets(text)) if "\n" in text else text


def _without_value(found: re.Match[str]) -> str:
    return "".join(part for part in found.groups() if part is not None) + "***"


def escape(text: str) -> str:
    """Escape control characters, so that the text cannot drive a terminal, and hide the values of secrets."""
    return _printable(without_secrets(text))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def text_of(error: BaseException) -> str:
    """The message of an error, or empty text. The code that makes the message may raise an error, too."""
    try:
        return clean(str(error))
    except Exception as fault:
        return f"its text cannot be read: {type(fault).__name__}"


def mask_url(url: str) -> str:
    """The URL of a broker, or a text that was meant as one, without its credentials.

    The host begins after the last @. A text without an @ whose port is not a number may be a password, so it is hidden.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    if "@" in rest:
        return f"{scheme}{separator}***@{rest.rpartition('@')[2]}"
    return url if separator and _port_is_number(rest) else f"{scheme}{separator}***"


def split_urls(text: str) -> list[str]:
    """The URLs in a text, with a comma or white space before the scheme of the next one."""
    return re.split(_BETWEEN_URLS, text.strip())


def _without_credentials(match: re.Match[str]) -> str:
    """A URL in a text. An @ after the host stays if it cannot end a password: the paths of calendars have one."""
    scheme, rest = match.groups()
    if "@" not in rest:
        return match.group()
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if scheme in _BROKER_SCHEMES or "@" in authority or not _port_is_number(authority):
        return f"{scheme}://***@{rest.rpartition('@')[2]}"
    return match.group()


def _port_is_number(rest: str) -> bool:
    return re.match(r"(\[[^\]]*\]|[^:/?#]*)(:\d*)?([/?#]|$)", rest) is not None


_HIDING = (
    (_PAIRS, r"\1***", ("auth", "cookie", "credential", "key", "pass", "pwd", "secret", "signature", "token")),
    (_URL, _without_credentials, ("@",)),
    (_AUTHORIZATION, r"\1\2***", ("authorization",)),
    (_SECRETS, r"\1\2***", ("authorization", "credential", "key", "pass", "secret", "token")),
    (_SCHEMES, r"\1\2***", ("basic", "bearer")),
    (_SHORT_SECRETS, _without_value, ("appid", "auth", "key", "pass", "pin", "pwd", "response", "sid", "sig")),
    (_COOKIES, r"\1\2***", ("cookie",)),
)
"""Each pattern, what takes the place of a match, and parts of texts: in one without any of them it hides nothing, and
need not be compiled."""
_PARTS = tuple(dict.fromkeys(part for *_, parts in _HIDING for part in parts))
"""A text without any of these has nothing that a pattern above hides. Most texts have none."""


def describe(error: BaseException) -> str:
    """Describe an error: its message, or its type if it has none; and the server that an HTTP client could not ask, if
    the message does not name it."""
    text = text_of(error) or type(error).__name__
    server = _server_of(error)
    return text if server is None or server in text else f"{text} at {server}"


def _server_of(error: BaseException) -> str | None:
    """The scheme, host and port of the request that failed, which errors of httpx and requests have. The path and what
    follows may have secrets."""
    if not isinstance(error, Exception):
        return None
    try:
        url = urlsplit(str(getattr(getattr(error, "request", None), "url", "")))
        port = "" if url.port is None else f":{url.port}"
        return clean(f"{url.scheme}://{url.hostname}{port}") if url.scheme and url.hostname else None
    except Exception:  # of any class: the attribute may be a property of somebody else
        return None


def explain(error: BaseException) -> str:
    """The reason why a request was refused or failed, for its sender. The class of the error is included if it adds
    information."""
    if isinstance(error, PayloadError | RequestRefused):
        return describe(error)
    return f"{type(error).__name__}: {describe(error)}"


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 poll``, ``2 polls``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence lists them: ``a, b and c``."""
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def written_by_newer(number: object, known: int) -> str:
    """What is said of a file whose layout has a larger number than the one that is known. Whoever says it has left the
    file as it is; docs/adr/state.md lists them all."""
    return f"was written by a newer version of leadsman (layout {number}, this one knows {known})"


def log_fields(event: str, device: str | None = None, **more: object) -> dict[str, object]:
    """The fields of a log line for JSON logs: the ``extra`` argument of a logger call. Text passes through `clean`."""
    about = {"event": event, "device": device, **more}
    texts = {name: clean(value) if isinstance(value, str) else value for name, value in about.items()}
    return {"fields": {name: value for name, value in texts.items() if value is not None}}


def is_nested_deeper(text: str, levels: int) -> bool:
    """Whether the brackets and braces of a JSON text, those of its strings left out, are open more than `levels` deep
    anywhere, before it is parsed: the parser of Python gives up at a depth that differs from version to version, and
    what it has read may be too deep for what follows. It takes time in proportion to the length, also for a text that
    is no JSON."""
    if text.count("[") + text.count("{") <= levels:
        return False
    depth = 0
    for bracket in re.findall(_BRACKET, re.sub(_JSON_STRING, "", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > levels:
            return True
    return False
