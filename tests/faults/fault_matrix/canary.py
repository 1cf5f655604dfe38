"""The password of every app, and how it is looked for in what a row leaves behind."""

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

CANARY = "canary-5f3b9c-in-a-cage"
"""The password of every app, its token for HTTP, and the content of its secret file. It must appear in no output."""
CAGE = "secret"
"""The name of the only file that may hold it."""


def _shapes(secret: str) -> frozenset[bytes]:
    """The secret as it is, in percent-encoding, in hexadecimal digits, and inside base64 at any of its three positions
    (RFC 4648 §4), as in a header of HTTP."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), "".join(f"%{byte:02X}" for byte in raw).encode(), raw.hex().encode()}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        found.add(encoded[4 if before else 0 : len(encoded) // 4 * 4 - 4])  # without what its neighbours decide
    return frozenset(found)


_FORMS = re.compile(b"|".join(map(re.escape, _shapes(CANARY))), re.IGNORECASE)


def holds_canary(data: bytes) -> bool:
    """Whether the secret is in these bytes, in one of its forms."""
    return _FORMS.search(data) is not None


def leaks(directory: Path, messages: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Each place below `directory` and among the messages in which the secret is."""
    for path in directory.rglob("*"):
        if path.is_file() and path.name != CAGE and holds_canary(path.read_bytes()):
            yield f"the password is in {path.relative_to(directory)}"
    for topic, payload in messages:
        if holds_canary(payload) or holds_canary(topic.encode()):
            yield f"the password was published to {topic}"
            return
