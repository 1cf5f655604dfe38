"""The contexts of handlers that ask for one."""

from leadsman.devices.roster import Departure, Device, Follower, Phase
from leadsman.runtime.context import Contexts
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Give each handler its own."""
    contexts = Contexts(core.state_directory, core.publisher, core.own_requests)
    follower = _follower(contexts)
    for device in core.roster.values():
        follower.join(device)
    core.roster.follow(Phase.STATE, follower)
    core.life.closes.append(contexts.finish)


def _follower(made: Contexts) -> Follower:
    """Gives each handler that asks for one its context."""

    def join(device: Device) -> None:
        if device.reader is not None and device.runner is not None:
            made.give(device.reader.needs, device.name, device.runner.retries)
        if device.command is not None and device.queue is not None:
            made.give(device.command.needs, device.name, device.queue.retries)

    def leave(device: Device, why: Departure) -> None:
        """A handler keeps its context: a call of it may still run."""

    return Follower(join, leave)
