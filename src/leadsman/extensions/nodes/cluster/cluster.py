"""This node of a cluster: what it does with its shards, under which token it publishes, and how it detects nodes of
another cluster. Imported only in a cluster."""

import asyncio
import functools
import hashlib
import logging
import math
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, cast

from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.events import AppFault
from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import Item
from leadsman.core.mqtt.outbox import Dropped, Outbox
from leadsman.core.mqtt.topics import NODES, Topics
from leadsman.core.observers import Observers
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.supervision import cancel, keep_running
from leadsman.core.text import clean, count_noun, describe, log_fields
from leadsman.errors import LeaseStoreRefused, TermsDiffer
from leadsman.extensions.nodes.brief import is_online
from leadsman.extensions.nodes.cluster.bundles import bundles_of
from leadsman.extensions.nodes.cluster.node import ClusterNode
from leadsman.extensions.nodes.cluster.placement import Pool, missing_labels, pools_of, shard_of
from leadsman.extensions.nodes.document import OwnedShard
from leadsman.extensions.nodes.failure_state import FailureStates
from leadsman.extensions.nodes.lease.jetstream import JetStreamStore
from leadsman.extensions.nodes.lease.lease import Member, Terms
from leadsman.extensions.nodes.lease.store import LeaseStore
from leadsman.extensions.nodes.settings import ClusterSettings
from leadsman.extensions.nodes.shared_app import SharedApp

_STOP_AT, _FLUSH_AT = 0.1, 0.07
"""Parts of the TTL, and seconds at most, for: the calls of a shard to end; the broker to take what was read before.
Together less than the fifth of the TTL that remains of a lease when it is fenced."""
RECALLED = "leases have ended, and readings of their devices were still under way"
"""Why this node ends a connection."""
_MAX_STEP_SECONDS = 0.4
_OUTBOX_CHECK_INTERVAL = 0.02
"""Seconds between two looks at the outbox."""
_CHECK_AT = 0.125
"""After this part of the TTL a node looks whether the engine answers, and whether a label is missing."""
UNREAD_EVERY = 60.0
"""Seconds between two lines about entries of the engine that cannot be read."""
LOST = "another node may have the device by now"
"""Why a message is dropped."""
MAX_FOREIGN_NODES = 256
"""Foreign nodes that are remembered."""
APART = 2.0
"""TTLs between two messages that prove that a node is foreign."""
SHOWN = 5
"""Devices that a log line names."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")

logger = logging.getLogger("leadsman")


class ShardHost(Protocol):
    """Where the devices of the shards of this node are read: by a part of the app, in a room above this one."""

    @property
    def environment(self) -> Environment:
        """That of the app, which stays while shards come and go."""

    def begin(self, key: str, names: Iterable[str], permitted: Callable[[], bool]) -> None:
        """Begin to read the devices of a shard. `permitted` is asked before any of their timers rings."""

    async def stop(self, keys: Iterable[str], grace: float) -> int:
        """End all that runs for these shards. Returns how many calls are alive after `grace` seconds."""

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the devices of these shards, whose polls have ended."""


class Cluster:
    """This node: the `ShardCallbacks` of its shards in `leadsman.extensions.nodes.cluster.node`.

    Args:
        app: the app, with all its devices.
        clock: of the node.
    """

    def __init__(self, app: SharedApp, clock: Clock) -> None:
        settings = app.sections.of(ClusterSettings)
        assert settings is not None  # the caller checks this
        self.terms = Terms(cluster_name(app.topics.prefix), settings.ttl, settings.shards)
        self.member = Member(settings.node, secrets.token_hex(8), settings.labels, app.identity.version)
        shards: dict[str, list[str]] = {}
        found = []
        for bundle in bundles_of(app.handlers):
            shard = shard_of(bundle.name, bundle.labels, settings.shards)
            found.append(shard)
            shards.setdefault(shard.key, []).extend(bundle.devices)
        self.devices: Mapping[str, tuple[str, ...]] = {key: tuple(sorted(names)) for key, names in shards.items()}
        """The devices of each shard that has any, by its key; side jobs are among them."""
        self.pools = pools_of(set(found))
        """The shards that the same nodes can have."""
        self.owned: dict[str, OwnedShard] = {}
        """The shards at work on this node, by key."""
        self.missing: tuple[Pool, ...] = ()
        """The pools that nobody can read, since no node has all the labels that their devices need."""
        self.on_change: Observers[[]] = Observers("a change of the cluster", self._emit)
        """Called when shards have come or gone here, when nodes have, and when the engine is lost or back."""
        self.finders: Mapping[str, str] = {}
        """Who has found each device that was found at run time."""
        self.described_at: Callable[[str], str | None] = lambda _: None
        """The device of a topic of discovery; None for other topics."""
        store = cast("LeaseStore", JetStreamStore(settings.engine, self.terms, self.member))
        self.node = ClusterNode(store, self.member, self.terms, self.pools, clock, self)
        """Holds the leases."""
        self.clock = clock
        self._unread_at = -math.inf
        self._topics = app.topics
        self._key_of = {name: key for key, names in self.devices.items() for name in names}
        self._shards: ShardHost | None = None
        self._link: Link | None = None
        self._unreachable = False
        self._task: asyncio.Task[None] | None = None

    def token(self, topic: str) -> int | None:
        """The fencing token for a topic of a device; 0 if this node may not act for it now. None for a topic of no
        device, which any node may publish to."""
        below = topic.startswith(f"{self._topics.prefix}/")
        device = self._topics.device_of(topic) if below else self.described_at(topic)
        if device is None:
            return None
        device = self.finders.get(device, device)
        return self.token_of(device) or 0 if device in self._key_of else None

    def has(self, device: str) -> bool:
        """Whether this node answers for a device now: it may act for it, or is the only one that has it."""
        return self.token_of(self.finders.get(device, device)) is not None

    def token_of(self, device: str) -> int | None:
        """The fencing token under which this node may act for a device now; None if it may not. Ask before each act."""
        key = self._key_of.get(device)
        at_work = None if key is None else self.owned.get(key)
        return None if key is None or at_work is None or not self.node.allows(key) else at_work["token"]

    def members(self) -> set[str] | None:
        """The nodes that the engine has, and this one; None while the engine does not answer."""
        node = self.node
        if node.snapshot is None or node.unreachable_since is not None:
            return None
        return {self.member.node, *(member.node for member in node.snapshot.members)}

    def share_state(self, link: Link) -> FailureStates:
        """Hear the failure state of all devices, which the node that has each of them retains."""
        states = FailureStates(self._topics, self.clock.uptime)
        for topic_filter in states.topic_filters:
            link.listen(topic_filter, states.received)
        return states

    async def begin(self, tokens: Mapping[str, int]) -> None:
        """See `leadsman.extensions.nodes.cluster.node.ShardCallbacks`."""
        assert self._shards is not None  # it runs
        for key, token in tokens.items():
            self.owned[key] = {"token": token, "since": rfc3339(self.clock.wall())}
            self._shards.begin(key, self.devices[key], functools.partial(self.node.allows, key))
        self._report("takes", tokens)

    async def end(self, keys: Collection[str]) -> None:
        """See `leadsman.extensions.nodes.cluster.node.ShardCallbacks`. Earlier readings are sent first, if the broker
        accepts them in time."""
        assert self._shards is not None  # it runs
        ttl = self.terms.ttl
        fenced = {key for key in keys if not self.node.allows(key)}
        await self._shards.stop(keys, min(_MAX_STEP_SECONDS, _STOP_AT * ttl))
        await self._flush(keys, min(_MAX_STEP_SECONDS, _FLUSH_AT * ttl))
        for key in keys:
            self.owned.pop(key, None)
        self._shards.remove(keys)
        self._recall(fenced)
        self._report("gives up", keys)

    async def _flush(self, keys: Collection[str], timeout: float) -> None:
        """Wait until the broker has what was published for the devices of these shards, as long as that may be sent."""
        link = self._link
        if link is None:
            return
        deadline = self.clock.monotonic() + timeout
        mine = set(keys)
        while link.up and self.clock.monotonic() < deadline and any(map(self.node.allows, keys)):
            waiting = {self._key(self._topics.device_of(topic)) for topic in link.outbox.topics}
            if not mine & waiting:
                return
            await asyncio.sleep(_OUTBOX_CHECK_INTERVAL)

    def _recall(self, keys: Collection[str]) -> None:
        """Take back what is under way for the devices of leases that are over: the system would send it when the
        network is back, after what their next node has sent."""
        link = self._link
        if link is None or not link.up:
            return
        topics = (item.message.topic for item in link.outbox.flying if item.message.fence is not None)
        if any(self._key(self._topics.device_of(topic)) in keys for topic in topics):
            link.reset(RECALLED)

    def _key(self, device: str) -> str | None:
        """The key of the lease under which a device is published."""
        return self._key_of.get(self.finders.get(device, device))

    async def run(self, shards: ShardHost, link: Link) -> None:
        """Be a node until cancelled.

        Raises:
            LeaseStoreRefused, TermsDiffer: a person must fix it. No device is polled any more.
        """
        self._shards, self._link = shards, link
        loop = asyncio.get_running_loop()
        watching = loop.create_task(keep_running("watching the cluster", self._watch, shards.environment))
        try:
            await self.node.run()
        finally:
            watching.cancel()

    def start(self, shards: ShardHost, link: Link, end_app: Callable[[str], None]) -> None:
        """Begin to be a node. `end_app` is called with the reason if a person must fix something."""

        async def run() -> None:
            try:
                await self.run(shards, link)
            except (LeaseStoreRefused, TermsDiffer) as error:
                end_app(f"{type(error).__name__}: {describe(error)}")
                await asyncio.Event().wait()  # until the app has ended

        self._task = asyncio.get_running_loop().create_task(keep_running("the cluster", run, shards.environment))

    async def stop(self, grace: float) -> None:
        """Give all shards up, and wait at most `grace` seconds until that is done."""
        for wait in (
            grace,
            _OUTBOX_CHECK_INTERVAL,
            _OUTBOX_CHECK_INTERVAL,
        ):  # the later ones if the engine does not answer: its leases end by themselves
            if self._task is None or not await cancel([self._task], wait):
                return

    def adapters_here(self, app: SharedApp) -> tuple[ManagedAdapter, ...]:
        """The adapters that some handler may use on this node, and those that no handler asks for."""
        here, labels = set[int](), self.member.labels
        asked = set[int]()
        needed = {name: bundle.labels for bundle in bundles_of(app.handlers) for name in bundle.devices}
        for each in app.handlers:
            adapters = {id(need) for _, need in each.needs if isinstance(need, ManagedAdapter)}
            asked |= adapters
            if needed[each.name] <= labels:
                here |= adapters
        return tuple(each for each in app.adapters if id(each) in here or id(each) not in asked)

    async def _watch(self) -> None:
        """Log when the engine is lost and back, and what nobody can read."""
        known, unread = None, frozenset[str]()
        while True:
            snapshot = self.node.snapshot
            if snapshot is not None and snapshot.unread != unread:
                self._log_unread(snapshot.unread - unread)
                unread = snapshot.unread
            if snapshot is not None and snapshot.members != known:
                known = snapshot.members
                self._look_for_labels()
                self.on_change()
            self._log_whether_reached()
            await asyncio.sleep(_CHECK_AT * self.terms.ttl)

    def _log_unread(self, unread: Collection[str]) -> None:
        """Log what the engine has that counts for nothing: a few of it, once for a minute at most."""
        now = self.clock.monotonic()
        if not unread or now < self._unread_at:
            return
        self._unread_at = now + UNREAD_EVERY
        about = log_fields("engine entry unread", entries=len(unread), cluster=self.terms.cluster)
        what = "the engine of the cluster %s has entries that are no lease and no member: %s; delete them"
        logger.warning(what, self.terms.cluster, _list_names(sorted(unread)), extra=about)

    def _look_for_labels(self) -> None:
        assert self.node.snapshot is not None  # the caller checks this
        members = (self.member, *self.node.snapshot.members)
        missing = missing_labels(self.pools, (member.labels for member in members))
        if missing == self.missing:
            return
        for pool in missing:
            if pool not in self.missing:
                names = [name for key in pool.keys for name in self.devices[key]]
                labels = ", ".join(sorted(pool.needs))
                about = log_fields("label missing", labels=labels, devices=len(names))
                what = "no node has what %s needs: %s; start a node with these labels"
                logger.warning(what, _list_names(names), clean(labels), extra=about)
        self.missing = missing

    def _log_whether_reached(self) -> None:
        lost = self.node.unreachable_since is not None
        if lost is self._unreachable:
            return
        self._unreachable = lost
        name, fields = self.terms.cluster, {"node": self.member.node, "cluster": self.terms.cluster}
        if lost:
            about, left = log_fields("engine lost", **fields), self.node.stops_in()
            stops = "has stopped until it does" if left is None else f"stops in {left:.2g} s unless it does"
            what = "the engine of the cluster %s does not answer; this node, %s, %s"
            logger.warning(what, name, self.member.node, stops, extra=about)
        else:
            about = log_fields("engine back", **fields)
            logger.info("the engine of the cluster %s answers %s again", name, self.member.node, extra=about)
        self.on_change()

    def _report(self, verb: str, keys: Collection[str]) -> None:
        names = sorted(name for key in keys for name in self.devices.get(key, ()))
        about = log_fields("shards moved", node=self.member.node, devices=len(names))
        logger.info("this node, %s, %s %s", self.member.node, verb, _list_names(names), extra=about)
        self.on_change()

    def _emit(self, fault: AppFault) -> None:
        assert self._shards is not None  # it runs
        self._shards.environment.events.emit(fault)


class FencedOutbox(Outbox):
    """The outbox of a node: it stamps each message with the token of the moment at which it is put, and drops it when
    its turn comes if the token is another one by then. A process that was frozen finds out here that another node has
    its devices, before a byte is written.

    Args:
        token: see `Cluster.token`.
    """

    def __init__(self, token: Callable[[str], int | None]) -> None:
        super().__init__()
        self._token = token

    def put(self, message: Message) -> list[Dropped]:
        """See `Outbox`."""
        return super().put(message._replace(fence=self._token(message.topic)))

    def hand_over(self, message: Message, size: int | None = None) -> Item | None:
        """See `Outbox`. One that may not be sent is put, so that its loss is counted."""
        token = self._token(message.topic)
        return None if token == 0 else super().hand_over(message._replace(fence=token), size)

    def pop(self, now: float) -> tuple[Item | None, list[Dropped]]:
        """See `Outbox`. What may not be sent any more is dropped."""
        lost: list[Dropped] = []
        while True:
            item, expired = super().pop(now)
            lost += expired
            if item is None or self._may_go(item.message):
                return item, lost
            lost += self.drop(item, LOST, "fenced")

    def _may_go(self, message: Message) -> bool:
        if message.fence is None:
            return True
        return message.fence != 0 and message.fence == self._token(message.topic)


class ForeignNodes:
    """Detects nodes of another cluster below our prefix: two clusters with two engines would read every device twice.

    A node that starts is one of the engine's nodes before it publishes that it is online. So it is a foreign one if it
    is online at two times, two TTLs apart, at which the engine does not have it. Nothing is concluded while the engine
    does not answer.

    Args:
        cluster: this node, and those that the engine has.
        topics: of the app.
        link: is told of a foreign node, and when that is gone.
    """

    def __init__(self, cluster: Cluster, topics: Topics, link: Link) -> None:
        self.topic_filter = f"{topics.prefix}/{NODES}/+/status"
        """Where they publish it."""
        self._cluster = cluster
        self._prefix = topics.prefix
        self._link = link
        self._seen: dict[str, float] = {}
        self._reported: str | None = None

    def received(self, message: Received) -> None:
        """Take the status of a node."""
        node, members, now = message.topic.split("/")[-2], self._cluster.members(), self._cluster.clock.uptime()
        if message.retain or message.redelivered or members is None:
            return
        if node in members or not is_online(message.payload):
            self._seen.pop(node, None)
            if node == self._reported:
                self._reported = None
                self._report(None)
        elif len(self._seen) < MAX_FOREIGN_NODES or node in self._seen:
            since = self._seen.setdefault(node, now)
            if self._reported is None and now - since >= APART * self._cluster.terms.ttl:
                self._reported = node
                self._report(
                    f"the node {clean(node)!r} publishes below {self._prefix + '/'!r}, and our engine does not know it,"
                    " so it has another engine. Give all nodes the same engine, or another prefix"
                )

    def _report(self, reason: str | None) -> None:
        self._link.report_conflict("node", reason)


def cluster_name(prefix: str) -> str:
    """The name of the cluster of an app at the engine: its topic prefix, as far as NATS takes its characters. So two
    clusters never publish below one prefix by the same engine."""
    name = _NOT_IN_A_NAME.sub("_", prefix)
    if name == prefix and len(name) <= 48:
        return name
    return f"{name[:48]}-{hashlib.blake2b(prefix.encode(), digest_size=4).hexdigest()}"


def _list_names(names: Collection[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{count_noun(len(listed), 'device')}: {', '.join(map(clean, listed[:SHOWN]))}{more}"
