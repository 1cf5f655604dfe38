"""This process, among those that share the app; see `leadsman.wiring.core.Node`."""

from leadsman.wiring.core import Core


def attach(core: Core) -> None:
    """Hear the other nodes, before the devices join."""
    core.node.attach(core)


def join(core: Core) -> None:
    """Be one of them."""
    core.node.join(core)
