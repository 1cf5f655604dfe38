"""Text from outside, made safe to show: in a log, a topic or a terminal."""

import re
from collections.abc import Iterable

LONGEST = 500
"""Characters; an error message longer than this is a payload."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]*@")
_SECRETS = re.compile(r"(?i)\b(password|passwd|token|secret|authorization)\b(\s*[=:]\s*)\S+")


def clean(text: str) -> str:
    """Escape control characters, hide credentials in URLs and after words such as ``password=``, and cut what is too long.

    A device or a server may put anything into an error message: line breaks that forge log lines, escape sequences that
    drive a terminal, or the URL with its password.
    """
    text = _SECRETS.sub(r"\1\2***", _CREDENTIALS.sub("***@", text[: 4 * LONGEST]))
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def text_of(error: BaseException) -> str:
    """The message of an error, empty where it has none. It is made by somebody's code, which may break, too."""
    try:
        return clean(str(error))
    except Exception as fault:
        return f"its text cannot be read: {type(fault).__name__}"


def told(error: BaseException) -> str:
    """An error in words: its message, or its type where it has none."""
    return text_of(error) or type(error).__name__


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What somebody who wrote `word` may have meant."""
    import difflib  # only who made a mistake pays for it

    return next(iter(difflib.get_close_matches(word, sorted(known), n=1)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """What somebody who wrote `word` may have meant, as the end of a message."""
    names = sorted(known)
    near = nearest(word, names)
    return f"did you mean {near!r}?" if near is not None else f"known are {', '.join(names) or 'none'}"
