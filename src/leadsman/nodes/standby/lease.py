"""The lease: a retained document at ``{prefix}/lease`` that the owner of an app renews, and how it is read.

Anybody who may publish there can write anything, so a document is checked before it counts. No time in it is compared
with a clock of another machine: `Lease.sent` is of the owner's own clock, and only the owner reads it.
"""

import json
from typing import NamedTuple

from leadsman.mqtt.topics import encode

LARGEST = 1024
"""Bytes of a document; one that we write has some 120."""
LONGEST_OWNER = 200
"""Characters of the name of a node."""
LARGEST_TOKEN = 2**53
"""JSON numbers are exact up to there (RFC 8259 §6)."""
LONGEST_TTL = 3600.0
"""Seconds for which a lease may hold."""


class Lease(NamedTuple):
    """What the owner of an app says of itself."""

    owner: str
    """The name of the node. Each process has another one."""
    token: int
    """Grows with each owner."""
    ttl: float
    """Seconds for which it holds after `sent`."""
    sent: float
    """When it was written, seconds of the owner's own clock. It comes back to the owner as the proof that the broker
    has this renewal; for all others it only says that two documents differ."""


def encoded(lease: Lease, until: str) -> bytes:
    """The document; `until` is for people who read it."""
    return encode({"owner": lease.owner, "token": lease.token, "ttl_s": lease.ttl, "sent": lease.sent, "until": until})


def decoded(payload: bytes) -> Lease | None:
    """Read a document. None if it is no lease."""
    if len(payload) > LARGEST:
        return None
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    owner, token, ttl, sent = (found.get(key) for key in ("owner", "token", "ttl_s", "sent"))
    if not isinstance(owner, str) or not 0 < len(owner) <= LONGEST_OWNER:
        return None
    if not isinstance(token, int) or isinstance(token, bool) or not 0 < token <= LARGEST_TOKEN:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= LONGEST_TTL:
        return None
    if isinstance(sent, bool) or not isinstance(sent, int | float) or not abs(sent) <= LARGEST_TOKEN:
        return None
    return Lease(owner, token, float(ttl), float(sent))


def is_online(payload: bytes) -> bool | None:
    """Whether a document at ``{prefix}/status`` says that the app is online; None if it says neither."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    state = found.get("state") if isinstance(found, dict) else None
    return state == "online" if state in ("online", "offline") else None
