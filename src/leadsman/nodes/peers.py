"""What a node knows of the other nodes of its app, from their documents."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from leadsman.nodes.brief import LIFE, Brief
from leadsman.nodes.document import NodeDocument, brief_of, read_document

MOST = 256
"""Nodes that are kept."""
LEAST_LIFE = 1.0
"""Seconds for which a document without a TTL is kept at least."""


class _Peer(NamedTuple):
    at: float
    life: float
    brief: Brief
    """Not the document, which may name 2000 devices."""

    def lives(self, now: float) -> bool:
        return now < self.at + self.life


class Peers:
    """Keeps what it hears of each node, until its document is gone or too old.

    Args:
        now: seconds of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard: dict[str, _Peer] = {}

    def hear(self, node: str, payload: bytes) -> None:
        """Take the message at the topic of a node."""
        self._heard.pop(node, None)
        document = read_document(node, payload)
        if document is None:
            return
        now = self._now()
        if len(self._heard) >= MOST:
            self._heard = {name: heard for name, heard in self._heard.items() if heard.lives(now)}
        if len(self._heard) < MOST:
            self._heard[node] = _Peer(now, self._life(document), brief_of(document))

    def forget(self) -> None:
        """Nothing is heard any more."""
        self._heard.clear()

    def known(self) -> Mapping[str, Brief]:
        """The nodes by name."""
        now = self._now()
        return {node: heard.brief for node, heard in sorted(self._heard.items()) if heard.lives(now)}

    @staticmethod
    def _life(document: NodeDocument) -> float:
        return max(LEAST_LIFE, LIFE * document["ttl_s"])
