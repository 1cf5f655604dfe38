"""This process as a node that is active while no other one is."""

import asyncio
import functools

from leadsman.mqtt.link import Access
from leadsman.nodes.standby.node import StandbyNode
from leadsman.nodes.standby.turns import serve_in_turns
from leadsman.wiring.core import Core, Node
from leadsman.wiring.plan import Plan
from leadsman.wiring.run import serve


async def serve_as_standby(plan: Plan, access: Access, stopping: asyncio.Event) -> int:
    """Run the app whenever it is this node's turn; see `leadsman.nodes.standby.turns.serve_in_turns`."""

    async def serve_active(plan: Plan, access: Access, ending: asyncio.Event, node: StandbyNode) -> int:
        return await serve(plan, access, ending, ActiveNode(node))

    return await serve_in_turns(serve_active, plan, access, stopping)


class ActiveNode(Node):
    """The node that takes over. Nothing of it touches a device before it owns the app.

    Args:
        node: decides whether it does.
    """

    def __init__(self, node: StandbyNode) -> None:
        self._node = node
        self.permitted = node.permitted
        self.snapshots = node.observer.snapshots
        self.ownership = node.ownership
        self.briefs, self.states = node.report.briefs, node.report.states

    @property
    def leaving(self) -> bool:
        """See `Node`."""
        return self._node.leaving

    def join(self, core: Core) -> None:
        """See `Node`."""
        core.life.waits.append(functools.partial(self._node.owner_or, core.environment.stopping))
