"""Several nodes share the app."""

from collections.abc import Iterable

from leadsman.core.extension import Extension, Join, JoinPhase
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan


def attach(core: Core) -> None:
    """Hear the other nodes, before the devices join."""
    core.node.attach(core)


def join(core: Core) -> None:
    """Be one of them."""
    core.node.join(core)


class Nodes(Extension):
    """This process is one of several that share the app."""

    name = "nodes"

    def joins(self, plan: Plan) -> Iterable[Join]:
        """See `Extension`."""
        return (JoinPhase.BEFORE_DEVICES, attach), (JoinPhase.DOORS, join)
