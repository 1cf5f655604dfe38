"""This process as a node of a cluster, whose devices come and go with their shards."""

import asyncio
import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from leadsman.core.devices.group import DeviceGroup
from leadsman.core.devices.roster import Departure
from leadsman.core.event_bus import EventBus
from leadsman.core.events import Event, LinkDown
from leadsman.core.loop.clock import Clock, system_clock
from leadsman.core.loop.timers import Timers
from leadsman.core.mqtt.connection_state import UNSUPPORTED_VERSION
from leadsman.core.mqtt.link import Access
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.parts.kinds import ANSWERS, FOUND, SAVED
from leadsman.core.question import Question
from leadsman.core.resilience.environment import Environment
from leadsman.core.resilience.overrides import handler_context
from leadsman.core.wiring.core import Core, Node
from leadsman.core.wiring.plan import Plan
from leadsman.core.wiring.run import serve
from leadsman.errors import VersionRefused
from leadsman.extensions.nodes.added import add_to_documents
from leadsman.extensions.nodes.cluster.cluster import Cluster, FencedOutbox, ForeignNodes
from leadsman.extensions.nodes.cluster.report import ClusterReport
from leadsman.extensions.nodes.failure_state import FailureStates

HAND_OVER = 0.9
"""Seconds, of the two that `leadsman.core.wiring.process` allows for the end, for a node to give its devices up."""


async def serve_in_cluster(plan: Plan, access: Access, stopping: asyncio.Event) -> int:
    """Run the app as a node of its cluster; see `leadsman.core.wiring.run.serve`."""
    node = SharingNode(plan, system_clock(asyncio.get_running_loop()))
    return await serve(node.plan, access, stopping, node)


_DEVICE_AT: Question[Callable[[Plan], Callable[[str], str | None]]] = Question("device at")


class SharingNode(Node):
    """A node that reads some of the devices, while other nodes read the others.

    Args:
        plan: the app, with the devices of all nodes.
        clock: of the node.
    """

    shared = True

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._cluster = Cluster(plan, clock)
        self.plan = plan._replace(adapters=self._cluster.adapters_here(plan))
        """The app, with the adapters that are used on this node."""
        self.shards: Shards | None = None
        """The shards at work on this node; None before it has joined."""
        self._core: Core | None = None
        self._failure_states: FailureStates | None = None

    @property
    def failure_states(self) -> FailureStates | None:
        """See `Node`."""
        return self._failure_states

    def outbox(self) -> Outbox:
        """See `Node`."""
        return FencedOutbox(self._cluster.token)

    def has(self, device: str) -> bool:
        """See `Node`."""
        return self._cluster.has(device)

    def elsewhere(self, finder: str) -> bool | None:
        """See `Node`. Without a connection that is unknown."""
        up = self._core is not None and self._core.link.up
        return self._cluster.token_of(finder) is None if up else None

    def attach(self, core: Core) -> None:
        """See `Node`."""
        self._core = core
        core.link.require_newer()
        core.environment.events.subscribe(self._observe, readings=False)
        self._report = ClusterReport(self._cluster, core.plan, core.link, core.environment.clock)
        if core.plan.keep_state:
            self._failure_states = self._cluster.share_state(core.link)

    def _observe(self, event: Event) -> None:
        """A broker that refuses MQTT 5 at the start is a fault of the settings. Later it may be one for a while."""
        core = self._core
        if core is None or not isinstance(event, LinkDown) or core.link.connects:
            return
        if core.link.refusal == UNSUPPORTED_VERSION:
            why = "a cluster needs MQTT 5, for the tokens of its messages; use a broker that speaks it"
            core.end(VersionRefused(f"{event.reason}; {why}"))

    def join(self, core: Core) -> None:
        """See `Node`. Requests to drain wait for their turn with all others."""
        cluster, report, life = self._cluster, self._report, core.life
        add_to_documents(core, report)
        link, requests = core.link, core.of(ANSWERS).requests
        link.listen(report.drain_topic, lambda received: requests.add(received, report.asked, report.refuse))
        if not core.plan.dry_run:
            foreign = ForeignNodes(cluster, core.plan.topics, link)
            link.listen(foreign.topic_filter, foreign.received)
        if (found := core.find(FOUND)) is not None:
            cluster.finders = found.finders
        if (device_at := _DEVICE_AT.answer(core.plan.sections.shipped)) is not None:
            cluster.described_at = device_at(core.plan)
        shards = self.shards = Shards(core)
        life.starts.append(functools.partial(cluster.start, shards, core.link, core.end))
        life.starts.append(self._report.start)
        life.before_stop.append(functools.partial(cluster.stop, HAND_OVER))
        life.last_messages.append(("the last status of the node", self._report.goodbye))


class _ShardEvents(EventBus):
    """The bus of the app, for the devices of one shard: a call that outlives the shard on this node reports nothing of
    a device that is gone."""

    __slots__ = ("_app", "over")

    def __init__(self, app: EventBus, clock: Clock) -> None:
        super().__init__(clock)
        self._app = app
        self.over = False
        """Whether the devices are gone."""

    def emit(self, event: Event) -> None:
        """See `EventBus`."""
        if not self.over or getattr(event, "entity", None) is None:
            self._app.emit(event)


class _Shard(NamedTuple):
    """The devices of one shard, which are read here."""

    names: tuple[str, ...]
    group: DeviceGroup
    events: _ShardEvents


class Shards:
    """The shards of this node: the devices of each have a group of their own, which ends with the lease.

    Args:
        core: the app.
    """

    def __init__(self, core: Core) -> None:
        self.environment = core.environment
        """That of the app, which stays while shards come and go."""
        self._core = core
        self._shards: dict[str, _Shard] = {}

    def begin(self, key: str, names: Iterable[str], permitted: Callable[[], bool]) -> None:
        """Begin to read the devices of a shard. `permitted` is asked before any of their timers rings."""
        core, app = self._core, self.environment
        events = _ShardEvents(app.events, app.clock)
        timers = handler_context().run(Timers, asyncio.get_running_loop(), events.emit, core.link.piled_up, permitted)
        environment: Environment = app._replace(timers=timers, events=events, stopping=asyncio.Event())
        group = DeviceGroup(core.device_services, core.publisher._replace(environment=environment))
        shard = self._shards[key] = _Shard(tuple(names), group, events)
        for name in shard.names:
            core.roster.join(group.make(name))
        saved = core.find(SAVED)
        group.start({} if saved is None else {name: saved.pending.pop(name, 0.0) for name in shard.names})

    async def stop(self, keys: Iterable[str], grace: float) -> int:
        """End the polls, the sources and the commands of these shards, and wait at most `grace` seconds for them.
        Returns how many calls are still alive."""
        groups = [self._shards[key].group for key in keys if key in self._shards]
        for group in groups:
            group.environment.stopping.set()
        alive = sum(await asyncio.gather(*(group.stop(grace) for group in groups)))
        for group in groups:
            group.environment.timers.stop()
        if (saved := self._core.find(SAVED)) is not None:
            saved.publish()
        return alive

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the devices of these shards, whose polls have ended. Another node goes on at their topics."""
        for key in keys:
            shard = self._shards.pop(key, None)
            if shard is not None:
                shard.events.over = True
                for name in shard.names:
                    self._core.roster.leave(name, Departure.MOVED)
