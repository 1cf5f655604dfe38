"""The lease of an app that a pair shares: a retained document at ``{prefix}/lease`` that the owner renews, and how it
is read.

Anybody who may publish there can write anything, so each field is checked. No time in a document is compared with a
clock of another machine: `Renewal.sent` is of the owner's own clock, and only the owner reads it.
"""

import json
from typing import NamedTuple

from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.topics import encode

MAX_DOCUMENT_BYTES = 1024
"""Bytes of a document; one that we write has some 120."""
MAX_OWNER_CHARS = 200
"""Characters of the name of a node."""
MAX_TOKEN = 2**53
"""JSON numbers are exact up to there (RFC 8259 §6)."""
MAX_TTL_SECONDS = 3600.0
"""Seconds for which a lease may hold."""


class Renewal(NamedTuple):
    """A lease, as its owner renews it."""

    owner: str
    """The name of the node. Each process has another one."""
    token: int
    """Grows with each owner."""
    ttl: float
    """Seconds for which the lease holds after `sent`."""
    sent: float
    """When it was written, seconds of the owner's own clock. It comes back to the owner as the proof that the broker
    has this renewal; for the others it only makes two documents differ."""

    def encode(self, until: str) -> bytes:
        """The document; `until` is for people who read it."""
        owner, token, ttl, sent = self
        return encode({"owner": owner, "token": token, "ttl_s": ttl, "sent": sent, "until": until})


def read_renewal(payload: bytes) -> Renewal | None:
    """Read a document. None if it is no lease."""
    try:
        found = json.loads(payload) if len(payload) <= MAX_DOCUMENT_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    fields: list[Json] = [found.get(name) for name in ("owner", "token", "ttl_s", "sent")]
    match fields:
        case [str(owner), int(token), int() | float() as ttl, int() | float() as sent] if (
            not any(isinstance(each, bool) for each in fields)  # else true would be 1
            and 0 < len(owner) <= MAX_OWNER_CHARS
            and 0 < token <= MAX_TOKEN
            and 0 < ttl <= MAX_TTL_SECONDS
            and abs(sent) <= MAX_TOKEN
        ):
            return Renewal(owner, token, float(ttl), float(sent))
    return None
