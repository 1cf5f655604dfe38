"""This process as a node of a cluster, whose devices come and go with their shards."""

import asyncio
import functools

from leadsman.devices.shards import Shards
from leadsman.loop.clock import Clock, system_clock
from leadsman.mqtt.link import Access
from leadsman.mqtt.outbox import Outbox
from leadsman.nodes.cluster.cluster import Cluster
from leadsman.nodes.cluster.fenced_outbox import FencedOutbox
from leadsman.nodes.cluster.report import ClusterReport
from leadsman.wiring.core import Core, Node
from leadsman.wiring.plan import Plan
from leadsman.wiring.run import serve

HAND_OVER = 0.9
"""Seconds, of the two that `leadsman.process` allows for the end, for a node to give its devices up."""


async def serve_in_cluster(plan: Plan, access: Access, stopping: asyncio.Event) -> int:
    """Run the app as a node of its cluster; see `leadsman.wiring.run.serve`."""
    node = SharingNode(plan, system_clock(asyncio.get_running_loop()))
    return await serve(node.plan, access, stopping, node)


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

    def outbox(self) -> Outbox:
        """See `Node`."""
        return FencedOutbox(self._cluster)

    def has(self, device: str) -> bool:
        """See `Node`."""
        return self._cluster.has(device)

    def elsewhere(self, device: str, finder: str) -> bool | None:
        """See `Node`. Without a connection nobody can say."""
        up = self._core is not None and self._core.link.up
        return self._cluster.elsewhere(device, finder) if up else None

    def attach(self, core: Core) -> None:
        """See `Node`."""
        self._core = core
        core.link.expect_newer()
        self._report = ClusterReport(self._cluster, core.plan, core.link, core.environment.clock)
        self.briefs, self.states = self._report.briefs, self._report.states
        if core.plan.keep_state:
            self.snapshots = self._cluster.share_state(core.link)

    def join(self, core: Core) -> None:
        """See `Node`. Requests to drain wait for their turn with all others."""
        cluster, report, life = self._cluster, self._report, core.life
        listeners, requests = core.link.subscriptions.listeners, core.answers.requests
        listeners[report.drain_topic] = lambda received: requests.add(received, report.asked, report.refuse)
        if not core.plan.dry_run:
            foreign = cluster.foreign_nodes(core.link, core.environment.events)
            listeners[foreign.topic_filter] = foreign.received
        if core.found is not None:
            cluster.finders = core.found.finders
            if (heard := cluster.heard) is not None:
                heard.found, core.found.owners = core.found, heard
                listeners[heard.filter] = heard.received
        if core.plan.discovery is not None:
            from leadsman.parts.discovery import device_at

            cluster.described_at = device_at(core.plan, core.plan.discovery)
        save = _nothing if core.saved is None else core.saved.publish
        link, publisher = core.link, core.publisher
        shards = self.shards = Shards(core.roster, core.surroundings, publisher, link.piled_up, core.pending, save)
        life.starts.append(functools.partial(cluster.start, shards, link, core.end))
        life.starts.append(self._report.start)
        life.leaves.append(functools.partial(cluster.stop, HAND_OVER))
        life.goodbyes["the goodbye of the node"] = self._report.goodbye


def _nothing() -> None:
    """No state is kept."""
