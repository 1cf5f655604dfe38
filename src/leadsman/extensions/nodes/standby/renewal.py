"""The lease of an app that a pair shares: a retained document at ``{prefix}/lease`` that the owner renews, and how it
is read.

Anybody who may publish there can write anything, so the types of the fields set what counts. No time in a document is
compared with a clock of another machine: `Renewal.sent` is of the owner's own clock, and only the owner reads it.
"""

import json
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, Strict, TypeAdapter

from leadsman.core.mqtt.topics import encode

MAX_DOCUMENT_BYTES = 1024
"""Bytes of a document; one that we write has some 120."""
MAX_OWNER_CHARS = 200
"""Characters of the name of a node."""
MAX_TOKEN = 2**53
"""JSON numbers are exact up to there (RFC 8259 §6)."""
MAX_TTL_SECONDS = 3600.0
"""Seconds for which a lease may hold."""


def _owner(name: str) -> str:
    if not 0 < len(name) <= MAX_OWNER_CHARS:
        raise ValueError("no name of a node")
    return name


def _exact(sent: object) -> object:
    """A whole number is compared before it is made a float, which rounds."""
    if isinstance(sent, int | float) and not abs(sent) <= MAX_TOKEN:
        raise ValueError("no time of a clock")
    return sent


class Renewal(NamedTuple):
    """A lease, as its owner renews it."""

    owner: Annotated[str, Strict(), AfterValidator(_owner)]
    """The name of the node. Each process has another one."""
    token: Annotated[int, Field(strict=True, gt=0, le=MAX_TOKEN)]
    """Grows with each owner."""
    ttl: Annotated[float, Field(strict=True, gt=0, le=MAX_TTL_SECONDS)]
    """Seconds for which the lease holds after `sent`."""
    sent: Annotated[float, BeforeValidator(_exact), Field(strict=True)]
    """When it was written, seconds of the owner's own clock. It comes back to the owner as the proof that the broker
    has this renewal; for the others it only makes two documents differ."""

    def encode(self, until: str) -> bytes:
        """The document; `until` is for people who read it."""
        owner, token, ttl, sent = self
        return encode({"owner": owner, "token": token, "ttl_s": ttl, "sent": sent, "until": until})


_RENEWALS = TypeAdapter(Renewal)


def read_renewal(payload: bytes) -> Renewal | None:
    """Read a document. None if it is no lease."""
    try:
        found = json.loads(payload) if len(payload) <= MAX_DOCUMENT_BYTES else None
        if not isinstance(found, dict):
            return None
        return _RENEWALS.validate_python([found.get(name) for name in ("owner", "token", "ttl_s", "sent")])
    except (ValueError, RecursionError):  # a ValidationError is a ValueError
        return None
