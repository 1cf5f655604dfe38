"""The devices that this node of a cluster hears, and others may hear too: who has them, and what the nodes report
to each other."""

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping

from leadsman.loop.clock import Clock
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics
from leadsman.nodes.cluster.hearing import Hearings, is_heard
from leadsman.nodes.cluster.node import ClusterNode
from leadsman.runtime.found_devices import FoundDevices

IN_ONE = 200
"""Devices in one message: 8 kB for those with names of 30 characters."""
LONGEST = 65_536
"""Bytes of a report; longer ones are ignored."""
_MOST = 1000
"""dBm, to either side; what is not even near a signal is not one."""


class HeardDevices:
    """The `leadsman.runtime.found_devices.Owners` of the devices that handlers hear on this node.

    Args:
        hearings: what this node and the others hear.
        node: what holds the leases.
        topics: of the app.
        clock: of the node.
    """

    def __init__(self, hearings: Hearings, node: ClusterNode, topics: Topics, clock: Clock) -> None:
        self.filter = topics.hears("+")
        """The topic filter of the reports of all nodes."""
        self.patience = hearings.interval
        """See `Owners`."""
        self.found: FoundDevices | None = None
        """The devices that were found on this node."""
        self._hearings = hearings
        self._node = node
        self._topic = topics.hears(topics.node)
        self._clock = clock
        self._tokens: dict[str, int] = {}
        """The fencing tokens of the devices at work on this node, by key."""
        self._at_work: set[str] = set()
        """Those of them whose readings are published, and do not only wait for the broker before the device is given
        back."""

    def heard(self, name: str, signal: float | None) -> bool:
        """See `Owners`."""
        if self._hearings.hear(name, 0.0 if signal is None else signal, self._clock.uptime()):
            self._node.look_again()
        return self.key(name) in self._at_work

    def has(self, name: str) -> bool:
        """See `Owners`."""
        return bool(self.token_of(name))

    def elsewhere(self, name: str) -> bool:
        """See `Owners`."""
        known = self._hearings.of(name)
        return known is not None and known.elsewhere

    def forget(self, name: str) -> bool:
        """See `Owners`."""
        others_hear_it = self._hearings.forget(name, self._clock.uptime())
        self._node.look_again()
        return others_hear_it

    def token_of(self, name: str) -> int | None:
        """The fencing token under which this node may act for a device now; 0 if it may not. None if this node does not
        hear such a device."""
        key = self.key(name)
        if key is None:
            return None
        return self._tokens.get(key, 0) if self._node.allows(key) else 0

    def key(self, name: str) -> str | None:
        """The key of a device that this node hears; None if it hears no such device."""
        return self._hearings.keys.get(name)

    def names(self, keys: Collection[str]) -> list[str]:
        """The devices of these keys, sorted; those of shards are left out."""
        return sorted(name for name, key in self._hearings.keys.items() if key in keys)

    def begin(self, tokens: Mapping[str, int]) -> None:
        """This node has got leases. Those of shards are left out, here and below."""
        self._tokens |= {key: token for key, token in tokens.items() if is_heard(key)}
        self._at_work |= {key for key in tokens if is_heard(key)}
        for name in self.names(tokens.keys()):
            if self.found is not None:
                self.found.own(name)

    def stop(self, keys: Collection[str]) -> None:
        """These leases are over, or will be given back: no reading of the devices is published any more, but what waits
        for the broker."""
        self._at_work.difference_update(keys)
        for name in self.names(keys):
            if self.found is not None:
                self.found.disown(name)

    def end(self, keys: Collection[str]) -> None:
        """These leases are used no more."""
        for key in keys:
            self._tokens.pop(key, None)

    def received(self, message: Received) -> None:
        """A node, which may be this one, has reported what it hears."""
        signals = _signals(message.payload)
        node = message.topic.split("/")[-2]
        if self._hearings.on_report(node, signals, self._clock.uptime()):
            self._node.look_again()

    async def report(self, link: Link) -> None:
        """Report what this node hears to the others, until cancelled. A report is worth nothing after the next one."""
        while True:
            await asyncio.sleep(self._hearings.interval)
            for document in _pages(self._hearings.report()):
                if link.up:
                    link.put(Message(self._topic, document, 0))


def _pages(signals: Mapping[str, float]) -> Iterator[bytes]:
    """The messages of one report."""
    every = list(signals.items())
    for start in range(0, len(every), IN_ONE):
        yield json.dumps({"devices": dict(every[start : start + IN_ONE])}).encode()


def _signals(payload: bytes) -> dict[str, float]:
    """The signals in a report; those that are none are left out."""
    try:
        devices = json.loads(payload)["devices"] if len(payload) <= LONGEST else {}
        signals = devices.items()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: signal for name, signal in signals if type(signal) in (int, float) and abs(signal) <= _MOST}
