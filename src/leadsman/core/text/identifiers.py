"""Makes identifiers of names. Home Assistant allows only ``[a-zA-Z0-9_-]`` in the topics of discovery."""

import base64
import re
import unicodedata

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*")
_OTHERS = re.compile(r"[^A-Za-z0-9_]+")
_NOT_LOWERCASE = re.compile(r"[^a-z0-9]+")
MAX_NAME_CHARS = 64
"""Characters of a name that is its own identifier."""
_DIGITS = 6
"""Of the hash that distinguishes two names that look the same without their other characters."""
_BYTES = 6
"""Of the hash that is a short identifier: 48 bits. Of 10,000 entities, two have one with a probability of 2e-7."""


def identifier(name: str) -> str:
    """An identifier for a name: the name itself if it has only letters of ASCII, digits, ``_`` and single ``-`` in
    between, and does not begin with ``_``. Else other characters are left out, and a part of the hash of the name
    follows, so that ``Küche`` and ``Kuche`` differ. It never contains ``--``."""
    if len(name) <= MAX_NAME_CHARS and _PLAIN.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    short = _OTHERS.sub("_", plain).strip("_")[:MAX_NAME_CHARS]
    return f"{short or 'x'}-{_digest(name)}"


def join_names(*names: str) -> str:
    """One identifier for several names, with ``--`` between theirs: other names make another one."""
    return "--".join(map(identifier, names))


def shorten(text: str) -> str:
    """A short identifier for a long one: 8 characters, which nobody can read, and others for another text."""
    return base64.urlsafe_b64encode(_sha256(text.encode())[:_BYTES]).decode()


def lowercase_identifier(name: str) -> str:
    """An identifier for a name in lower case: ``a`` to ``z``, digits, and single ``-`` in between. Two names may have
    the same one; a name without such characters gets a part of its hash."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return _NOT_LOWERCASE.sub("-", plain)[:MAX_NAME_CHARS].strip("-") or f"x{_digest(name)}"


def _digest(name: str) -> str:
    return _sha256(name.encode(errors="surrogatepass")).hex()[:_DIGITS]


def _sha256(text: bytes) -> bytes:
    import hashlib  # 2 ms of a start, for OpenSSL; most names are their own identifiers

    return hashlib.sha256(text).digest()
