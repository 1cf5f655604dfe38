"""The contexts of handlers that ask for one."""

from collections.abc import Callable

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.registration.injection import ContextDependency, Dependencies
from leadsman.core.runtime.context import Context
from leadsman.core.runtime.store import Stores, Writer
from leadsman.core.wiring.core import Core


def join(core: Core) -> None:
    """Give each handler that asks for a context its own. Their stores are written while the app runs."""
    stores, requests, publisher = Stores(core.state_directory), core.own_requests, core.publisher

    def give(needs: Dependencies, name: str, attempts: Callable[[], int]) -> None:
        for _, dependency in needs:
            if isinstance(dependency, ContextDependency):
                dependency.value = Context(name, attempts, publisher, stores, requests)

    def follow(device: Device) -> None:
        if device.reader is not None and device.runner is not None:
            give(device.reader.needs, device.name, device.runner.retries)
        if device.command is not None and device.queue is not None:
            give(device.command.needs, device.name, device.queue.retries)

    def leave(device: Device, why: Departure) -> None:
        """A handler keeps its context: a call of it may still run."""

    for device in core.roster.values():
        follow(device)
    core.roster.follow(RosterPhase.STATE, Follower(follow, leave))
    core.life.close.append(Writer(stores, core.environment.timers).finish)
