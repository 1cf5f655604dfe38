"""The contexts of handlers that ask for one."""

from leadsman.devices.roster import Departure, Device, Follower, Phase
from leadsman.runtime.context import Contexts
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Give each handler that asks for a context its own."""
    contexts = Contexts(core.state_directory, core.publisher, core.own_requests)

    def give(device: Device) -> None:
        if device.reader is not None and device.runner is not None:
            contexts.give(device.reader.needs, device.name, device.runner.retries)
        if device.command is not None and device.queue is not None:
            contexts.give(device.command.needs, device.name, device.queue.retries)

    def leave(device: Device, why: Departure) -> None:
        """A handler keeps its context: a call of it may still run."""

    for device in core.roster.values():
        give(device)
    core.roster.follow(Phase.STATE, Follower(give, leave))
    core.life.closes.append(contexts.finish)
