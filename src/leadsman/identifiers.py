"""Makes identifiers of names. Home Assistant allows only ``[a-zA-Z0-9_-]`` in the topics of discovery."""

import base64
import hashlib
import re
import unicodedata

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*")
_OTHERS = re.compile(r"[^A-Za-z0-9_]+")
LONGEST = 64
"""Characters of a name that is its own identifier."""
_DIGITS = 6
"""Of the hash that tells two names apart which look the same without their other characters."""
_BYTES = 6
"""Of the hash that is a short identifier: 48 bits. Of 10,000 entities, two have one with a probability of 2e-7."""


def identifier(name: str) -> str:
    """An identifier for a name: the name itself if it has only letters of ASCII, digits, ``_`` and single ``-`` in
    between, and does not begin with ``_``. Else other characters are left out, and a part of the hash of the name
    follows, so that ``Küche`` and ``Kuche`` differ. It never contains ``--``."""
    if len(name) <= LONGEST and _PLAIN.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    short = _OTHERS.sub("_", plain).strip("_")[:LONGEST]
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{short or 'x'}-{digest}"


def joined(*names: str) -> str:
    """One identifier for several names, with ``--`` between theirs: other names make another one."""
    return "--".join(map(identifier, names))


def shortened(text: str) -> str:
    """A short identifier for a long one: 8 characters, which nobody can read, and others for another text."""
    digest = hashlib.sha256(text.encode()).digest()[:_BYTES]
    return base64.urlsafe_b64encode(digest).decode()
