"""Which of several nodes that hear one sensor publishes its readings.

Each gateway with a Bluetooth adapter hears the advertisements of a sensor, some better than others. There is a lease
for each such device, and its owner publishes. The nodes report to each other how well they hear it. Only the owner
decides: it gives the device back when another node has heard it clearly better for a while, and that node takes it.
Nothing is ever taken from an owner that lives.

Everything about one device is a value, `Hearing`, with functions that are pure; `Hearings` keeps those of one node.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from leadsman.nodes.cluster.placement import Moves
from leadsman.nodes.lease.lease import Member
from leadsman.nodes.lease.store import ClusterSnapshot

BETTER = 6.0
"""dB by which another node must hear a device better than its owner. It is four times the power, and half of the
distance in the open. Received signals of one place differ by 5 dB from one advertisement to the next."""
IN_A_ROW = 3
"""Reports of that other node in a row that show it."""
REPORT_AT = 1 / 3
"""A node reports what it hears after each such part of the TTL: every 5 s of 15."""
STAY = 2.0
"""TTLs for which an owner keeps a device that it hears, whatever others report: a sensor that is carried about, or
noise beyond all measure, moves it no more often."""
WEIGHT = 0.25
"""Of the newest advertisement in the average of a signal. Noise of 5 dB to either side, evenly spread, is 1.1 dB in the
average (standard deviation, 2.9 dB times the root of WEIGHT / (2 - WEIGHT))."""
UNHEARD = -127.0
"""dBm for a device that a node did not hear: the least that Bluetooth can report (Core Specification, vol. 4, part E,
7.7.65.2)."""
LOUDEST = 20.0
"""dBm; the most that Bluetooth can report."""
_PREFIX = "heard."


def key_of(device: str) -> str:
    """The key of the lease of a device. It is a hash of the name, which comes through the air and may contain what no
    engine takes. No pool of shards has such a name."""
    return _PREFIX + hashlib.blake2b(device.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def is_heard(key: str) -> bool:
    """Whether a key is that of a device that is heard, and not that of a shard."""
    return key.startswith(_PREFIX)


class Other(NamedTuple):
    """The latest report of another node about a device."""

    signal: float
    """dBm, on average."""
    at: float
    """When it came, in seconds of this node's clock."""
    better: int = 0
    """In how many reports in a row it was better by `BETTER`."""
    since: float = -math.inf
    """When the first of these reports came."""


class Hearing(NamedTuple):
    """How a node hears one device. All times are those of its `Clock.uptime`."""

    signal: float
    """dBm, on average, at this node."""
    at: float
    """When this node heard it last."""
    others: Mapping[str, Other]
    """By the name of the node."""
    owned_since: float | None = None
    """Since when this node has the lease; None if it has not."""
    free_since: float | None = None
    """Since when this node sees that nobody has it; None if somebody has."""
    elsewhere: bool = False
    """Whether another node has it."""


def hear(known: Hearing | None, signal: float, now: float) -> Hearing:
    """This node has heard a device, `signal` dBm strong."""
    if known is None:
        return Hearing(signal, now, {})
    return known._replace(signal=known.signal + WEIGHT * (signal - known.signal), at=now)


def merge(known: Hearing, node: str, signal: float, now: float, interval: float) -> Hearing:
    """Another node has reported a device, which it hears `signal` dBm strong.

    What this node hears counts only if it has heard the device since the other node's report before. Reports that come
    in less than half of an interval are one: after a pause of the process or of the network several come at once.
    """
    before = known.others.get(node)
    if before is not None and now - before.at < interval / 2:
        return known
    own = known.signal if known.at >= (now - interval if before is None else before.at) else UNHEARD
    better, since = (0, now) if before is None or not before.better else (before.better, before.since)
    other = Other(signal, now, better + 1, since) if signal - own >= BETTER else Other(signal, now)
    return known._replace(others={**known.others, node: other})


def gives(known: Hearing, members: Collection[str], now: float, ttl: float) -> bool:
    """Whether an owner gives the device to another node that hears it better: a member, so that it can take it."""
    if known.owned_since is None:
        return False
    for node, other in known.others.items():
        if node in members and other.better >= IN_A_ROW and now - other.at <= ttl:
            unheard = known.at < other.since
            if unheard or now - known.owned_since >= STAY * ttl:
                return True
    return False


def takes_at(known: Hearing, node: str, members: Collection[str], now: float, ttl: float) -> float | None:
    """When a node takes a device that nobody has: at once if it hears it best; a third of a TTL after it was free if
    others hear it better, since these may be unable to take it. None if it has not heard it lately; it is asked again
    when it does."""
    if known.free_since is None or now - known.at > REPORT_AT * ttl:
        return None
    mine = known.signal, node
    best = all(
        (other.signal, name) < mine
        for name, other in known.others.items()
        if name in members and name != node and now - other.at <= ttl
    )
    return now if best else known.free_since + REPORT_AT * ttl


class Hearings:
    """What one node hears, and what the others report. It keeps only devices that the node has heard itself, until they
    are forgotten, and drops what others report about any further one.

    Args:
        member: the node.
        ttl: of the leases, in seconds.
    """

    def __init__(self, member: Member, ttl: float) -> None:
        self.again_at = math.inf
        """When the plan should be asked for again although nothing has changed."""
        self._member = member
        self._ttl = ttl
        self.keys: dict[str, str] = {}
        """The keys of the devices that the node has heard, by their names."""
        self._known: dict[str, Hearing] = {}
        self._unreported: set[str] = set()
        self._nodes: frozenset[str] = frozenset()

    @property
    def interval(self) -> float:
        """Seconds between two reports."""
        return REPORT_AT * self._ttl

    def hear(self, device: str, signal: float, now: float) -> bool:
        """This node has heard a device. Returns whether the plan should be asked for, as nobody may have the device.

        Args:
            device: its name.
            signal: how strong, in dBm; the same for all if it is not known.
            now: seconds of `Clock.uptime`.
        """
        key = self.keys.get(device)
        if key is None:
            key = self.keys[device] = key_of(device)
        before = self._known.get(key)
        self._known[key] = hear(before, min(LOUDEST, max(UNHEARD, signal)), now)
        self._unreported.add(device)
        return before is None or (before.free_since is not None and now - before.at > self.interval)

    def of(self, device: str) -> Hearing | None:
        """How the node hears a device; None if it did not hear it."""
        key = self.keys.get(device)
        return None if key is None else self._known[key]

    def forget(self, device: str, now: float) -> bool:
        """The app has forgotten a device. If the node has its lease, the plan gives it back. Returns whether others
        heard it in the last TTL."""
        key = self.keys.pop(device, None)
        if key is None:
            return False
        self._unreported.discard(device)
        return any(now - other.at <= self._ttl for other in self._known.pop(key).others.values())

    def report(self) -> dict[str, float]:
        """How strong this node hears each device that it has heard since the last report, in dBm."""
        signals = {name: round(self._known[self.keys[name]].signal, 1) for name in sorted(self._unreported)}
        self._unreported.clear()
        return signals

    def on_report(self, node: str, signals: Mapping[str, float], now: float) -> bool:
        """Another node has reported what it hears. Returns whether the plan should be asked for, as that node hears a
        device better that this one has. What takes no part in the cluster is not listened to."""
        asked = False
        if node not in self._nodes or node == self._member.node:
            return False
        for device, signal in signals.items():
            key = self.keys.get(device)
            if key is not None:
                known = self._known[key] = merge(self._known[key], node, signal, now, self.interval)
                asked = asked or (known.owned_since is not None and known.others[node].better >= IN_A_ROW)
        return asked

    def plan(self, snapshot: ClusterSnapshot, nodes: Iterable[str], held: Iterable[str], now: float) -> Moves:
        """Which leases of devices to give back, and which to take.

        Args:
            snapshot: the cluster as its engine has it.
            nodes: those that take part. If this one does not, it gives all back.
            held: the keys that the node has, those of shards included.
            now: seconds of `Clock.uptime`.
        """
        members = self._nodes = frozenset(nodes)
        mine = {key for key in held if is_heard(key)}
        self.again_at = math.inf
        takes_part = self._member.node in members
        release, acquire = sorted(mine - self._known.keys() if takes_part else mine), []
        for key, before in self._known.items():
            known = self._known[key] = self._seen(before, key, snapshot, now, mine=key in mine, members=members)
            if not takes_part:
                continue
            if key in mine:
                if gives(known, members, now, self._ttl):
                    release.append(key)
                continue
            at = takes_at(known, self._member.node, members, now, self._ttl)
            if at is not None and at <= now:
                acquire.append(key)
            elif at is not None:
                self.again_at = min(self.again_at, at)
        return Moves(tuple(release), tuple(acquire))

    def _seen(
        self, known: Hearing, key: str, snapshot: ClusterSnapshot, now: float, *, mine: bool, members: frozenset[str]
    ) -> Hearing:
        """How the node hears a device, with its lease in the snapshot. Nodes that have left are forgotten."""
        others = known.others
        if not others.keys() <= members:
            others = {node: other for node, other in others.items() if node in members}
        if mine:
            since = now if known.owned_since is None else known.owned_since
            return known._replace(owned_since=since, free_since=None, elsewhere=False, others=others)
        lease = snapshot.leases.get(key)
        if lease is not None and lease.owner != self._member.owner:
            return known._replace(owned_since=None, free_since=None, elsewhere=True, others=others)
        free = now if known.free_since is None else known.free_since
        return known._replace(owned_since=None, free_since=free, elsewhere=False, others=others)
