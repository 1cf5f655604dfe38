"""The values of a cluster: its terms, its members, and the leases that they hold; and the leases that one node has."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue, TermsDiffer

MIN_TTL, MAX_TTL = 1.0, 3600.0
"""Seconds. Below a second a pause of the garbage collector ends leases; above an hour nobody waits for a takeover."""
DEFAULT_TTL = 15.0
"""Seconds. A NATS cluster that loses a server stands still for up to 4 s while it elects a leader, and a node must get
a renewal through before 0.8 of this time is over."""
MAX_SHARDS = 65_536
MAX_PATIENCE = 10.0
"""Seconds, of `Terms.patience`."""
MAX_LABELS = 64
"""Of a member that is read: a node has a few."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NODE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_KEY = re.compile(r"[A-Za-z0-9_/-]+(\.[A-Za-z0-9_/-]+)*")
_OWNER = re.compile(rf"{_NODE.pattern}/{_NAME.pattern}")
_LABEL = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_MAX_LABEL_CHARS = 128
RENEW_AT = 0.25
"""A node renews after this part of the TTL."""
FENCE_AT = 0.8
"""A node stops after this part of the TTL without a renewal. The rest, 3 s of 15, is for clocks that run at different
speeds, and for what has begun already."""
DRAINING = "leadsman.draining"
"""The label of a node that a person has asked to give everything away; see `Member.draining`."""
UNANSWERED = "leadsman.unanswered"
"""The label of a node that gets no answers of the engine, though the engine may get what it asks; see
`Member.takes_part`."""


class Terms(Value):
    """The terms on which all nodes of a cluster must agree. The first node writes them into the engine, and a node with
    other ones is refused.

    Args:
        cluster: the name of the cluster: letters, digits, ``_`` and ``-``, at most 64. Two clusters on one engine have
            two names.
        ttl: seconds that a lease lasts without a renewal, 1 to 3600.
        shards: how many shards the cluster has, 1 to 65,536. A store only compares it.

    Raises:
        InvalidValue: a value is out of its range.
    """

    __slots__ = ("cluster", "shards", "ttl")

    cluster: str
    shards: int
    ttl: float

    def __init__(self, cluster: str, ttl: float = DEFAULT_TTL, shards: int = 1) -> None:
        if not _fits(cluster, _NAME):
            raise InvalidValue(f"cluster={cluster!r}: write letters, digits, _ and -, at most 64, such as 'house'")
        if not _within(ttl, MIN_TTL, MAX_TTL):
            raise InvalidValue(f"ttl={ttl!r}: write seconds between {MIN_TTL:g} and {MAX_TTL:g}, such as 15")
        if not _within(shards, 1, MAX_SHARDS) or not float(shards).is_integer():
            raise InvalidValue(f"shards={shards!r}: write a whole number between 1 and {MAX_SHARDS}, such as 256")
        self._hold(cluster=cluster, shards=int(shards), ttl=float(ttl))

    @property
    def patience(self) -> float:
        """Seconds after which a call to the engine ends with `LeaseStoreUnreachable`. It is sent again meanwhile, and
        its late answers count. They are what lies between the renewal and the stop of an owner (`RENEW_AT`,
        `FENCE_AT`), and at most 10."""
        return min(MAX_PATIENCE, 0.55 * self.ttl)

    def document(self) -> dict[str, int | float]:
        """The document that is written into the engine."""
        return {"shards": self.shards, "ttl": self.ttl}

    def compare(self, found: Mapping[str, object], where: str) -> None:
        """Compare with the document that the engine has.

        Args:
            found: that document.
            where: what has it, for the message: ``bucket leadsman-house``.

        Raises:
            TermsDiffer: a value is missing or differs.
        """
        for name, wanted in self.document().items():
            if found.get(name) != wanted:
                shown = "no value" if name not in found else repr(found[name])
                raise TermsDiffer(
                    f"cluster {self.cluster!r}: {name} is {wanted:g} here, and {shown} in {where}; give all nodes the"
                    f" same value, or stop them all, delete {where} and start them again"
                )


class Member(Value):
    """One run of one node.

    Args:
        node: the name of the node, stable over restarts: letters, digits, ``.``, ``_`` and ``-``, at most 128.
        run: what separates this process from every other one, also from those of the same name: a random hexadecimal
            number, new at each start.
        labels: what the node has that others may lack, such as ``ble``; at most 128 characters each.
        version: the version of the app.

    Raises:
        InvalidValue, InvalidType: an argument is wrong.
    """

    __slots__ = ("labels", "node", "run", "version")

    labels: frozenset[str]
    node: str
    run: str
    version: str

    def __init__(self, node: str, run: str, labels: Iterable[str] = (), version: str = "") -> None:
        if not _fits(node, _NODE):
            raise InvalidValue(f"node={node!r}: write letters, digits, ., _ and -, at most 128, such as 'gateway-1'")
        if not _fits(run, _NAME):
            raise InvalidValue(f"run={run!r}: write letters and digits, such as uuid.uuid4().hex")
        if isinstance(labels, str):
            raise InvalidType(f"labels={labels!r}: write a list of labels, such as [{labels!r}]")
        held = frozenset(labels)
        for label in held:
            if not _fits(label, _LABEL):
                raise InvalidValue(
                    f"label {label!r}: write 1 to 128 characters, none of them a control character, such as 'ble'"
                )
        self._hold(labels=held, node=node, run=run, version=version)

    @property
    def owner(self) -> str:
        """The name by which it holds leases: ``gateway-1/3f9a``."""
        return f"{self.node}/{self.run}"

    @property
    def draining(self) -> bool:
        """Whether the node hands over its devices, and accepts none. It is a label, so that every engine keeps it and
        every node of the cluster sees it."""
        return DRAINING in self.labels

    @property
    def takes_part(self) -> bool:
        """Whether the node has a part of the shards. One that drains has none, nor one that has stopped since it got no
        answers."""
        return self.labels.isdisjoint({DRAINING, UNANSWERED})

    def drained(self, draining: bool) -> "Member":
        """The same run, draining or not."""
        return self._labelled(DRAINING, draining)

    def unanswered(self, unanswered: bool) -> "Member":
        """The same run, with answers of the engine or without."""
        return self._labelled(UNANSWERED, unanswered)

    def _labelled(self, label: str, has: bool) -> "Member":
        labels = self.labels | {label} if has else self.labels - {label}
        return Member(self.node, self.run, labels, self.version)


def read_member(node: object, run: object, labels: object, version: object) -> Member | None:
    """A member as an engine has it, where anybody may have written anything. None if it is not valid."""
    if not isinstance(labels, list) or len(labels) > MAX_LABELS or not isinstance(version, str):
        return None
    try:
        return Member(node, run, labels, version[:_MAX_LABEL_CHARS])  # type: ignore[arg-type]  # it checks them
    except (InvalidValue, InvalidType, TypeError):
        return None


def is_owner(value: object) -> bool:
    """Whether this is the owner of a lease, as `Member.owner` writes it."""
    return isinstance(value, str) and len(value) <= 2 * _MAX_LABEL_CHARS and _OWNER.fullmatch(value) is not None


class Lease(NamedTuple):
    """The right to do what `key` stands for, until it is over."""

    key: str
    owner: str
    """`Member.owner` of the run that has it."""
    token: int
    """The fencing token: greater than that of every earlier lease in the cluster, and the same for as long as the lease
    is renewed. What is written with a smaller token than one that was seen for the key comes from an earlier owner."""
    ttl: float
    """Seconds that it lasts without a renewal, by the engine's clock."""

    @property
    def node(self) -> str:
        """The name of the node that has it."""
        return self.owner.rpartition("/")[0]


class Held(NamedTuple):
    """A lease, and when the node asked for it.

    All times are those of `Clock.uptime`: the monotonic clock of a loop stands still while the host sleeps, and a node
    that wakes would trust a lease that somebody else has by now.
    """

    lease: Lease
    asked_at: float
    """When the `acquire` or `renew` that confirmed it was *sent*: the answer may have taken long."""

    @property
    def fence_at(self) -> float:
        """From when on it must not be used."""
        return self.asked_at + FENCE_AT * self.lease.ttl

    def usable(self, now: float) -> bool:
        """Whether the node may act on it. Ask before each poll and before each publish."""
        return now < self.fence_at


class HeldLeases:
    """The leases that one node has, and how long it may trust each of them without asking the engine. It does no more
    than to keep them; the caller asks the engine."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self.gained = 0
        """How many shards the node got since its start, those included that it had before."""
        self.lost = 0
        """How many it lost: a lease was over, somebody deleted it, or the engine did not confirm it in time."""
        self.released = 0
        """How many it gave back."""

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all leases, those that must not be used included."""
        return frozenset(self._held)

    def leases(self, keys: Iterable[str] | None = None) -> list[Lease]:
        """The leases of some keys, or all."""
        chosen = self._held if keys is None else keys
        return [self._held[key].lease for key in chosen if key in self._held]

    def usable(self, key: str, now: float) -> bool:
        """Whether the node may poll and publish for a shard. Ask before each poll and each publish."""
        return key in self._held and self._held[key].usable(now)

    def fence_at(self, now: float) -> float | None:
        """When the next lease that is usable ceases to be so; None without any."""
        return min((held.fence_at for held in self._held.values() if held.usable(now)), default=None)

    def unusable(self, now: float) -> frozenset[str]:
        """The keys of leases that must not be used, and may become usable by a renewal."""
        return frozenset(key for key, held in self._held.items() if not held.usable(now))

    def gain(self, leases: Iterable[Lease], asked_at: float) -> None:
        """The engine granted leases, as it was asked at `asked_at`."""
        for lease in leases:
            self._held[lease.key] = Held(lease, asked_at)
            self.gained += 1

    def renew(self, renewed: Mapping[str, Lease], asked: Iterable[Lease], asked_at: float) -> frozenset[str]:
        """The engine renewed these of the leases that it was asked for. Returns the keys of the others, which are
        lost."""
        lost: set[str] = set()
        for lease in asked:
            held = self._held.get(lease.key)
            if held is None or held.lease.token != lease.token:
                continue
            if lease.key in renewed:
                self._held[lease.key] = Held(renewed[lease.key], asked_at)
            else:
                del self._held[lease.key]
                self.lost += 1
                lost.add(lease.key)
        return frozenset(lost)

    def give_up(self, now: float) -> list[Lease]:
        """Forget the leases that must not be used. Returns them: the engine may have them still."""
        leases = self.leases(self.unusable(now))
        for lease in leases:
            del self._held[lease.key]
        self.lost += len(leases)
        return leases

    def drop(self, keys: Iterable[str]) -> None:
        """The node gave these back."""
        for key in keys:
            if self._held.pop(key, None) is not None:
                self.released += 1


def check_keys(keys: Iterable[str]) -> list[str]:
    """The keys, each once, in their order.

    Raises:
        InvalidType: a string was given where several keys are due.
        InvalidValue: a key has characters other than letters, digits, ``.``, ``_``, ``-`` and ``/``, an empty part
            beside a dot, or more than 128 characters.
    """
    if isinstance(keys, str):
        raise InvalidType(f"keys={keys!r}: write a list of keys, such as [{keys!r}]")
    chosen = list(dict.fromkeys(keys))
    for key in chosen:
        if not _fits(key, _KEY):
            raise InvalidValue(f"key {key!r}: write letters, digits, ., _, - and /, at most 128, such as 'shard.17'")
    return chosen


def _fits(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_LABEL_CHARS and pattern.fullmatch(value) is not None


def _within(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
