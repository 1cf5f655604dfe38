"""How devices fail is remembered over a restart, and over a change of the node."""

from collections.abc import Mapping

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.event_bus import Phase
from leadsman.core.events import Event, LinkUp
from leadsman.core.parts.kinds import FOUND, SAVED
from leadsman.core.runtime.failure_state import FailureStateStore, StatesElsewhere
from leadsman.core.wiring.core import Core


def _nothing(name: str) -> Mapping[str, object]:
    """No handler finds devices."""
    return {}


async def join(core: Core) -> None:
    """Restore what an earlier run saved, and save what changes from now on."""
    readers = core.runners.readers
    found, tables = core.find(FOUND), [make() for make in core.tables]
    kept = _nothing if found is None else found.kept
    store = FailureStateStore(core.state_directory, readers, core.environment, kept, tables)
    core.offer(SAVED, store)
    if (states := core.node.failure_states) is not None:
        _share(core, store, states)
    # In a cluster the handler finds its devices again, where it is.
    rejoin = None if found is None or core.node.shared else found.restore
    await store.restore(core.records, core.outages, core.environment.stopping, rejoin)
    for table in tables:
        table.restore(store)
    core.environment.events.subscribe(store.observe, Phase.SAVE)
    core.roster.follow(RosterPhase.STATE, _follower(core, store))
    core.life.last_messages.append(("the failure state", store.publish))
    core.life.after_delivery.append(lambda _: store.finish())


def _share(core: Core, store: FailureStateStore, states: StatesElsewhere) -> None:
    """Publish the failure state for the other nodes."""

    def publish(name: str, document: str) -> None:
        if (message := states.message(name, document)) is not None:
            core.link.put(message)

    readers = core.runners.readers
    for name in readers:
        core.others.keep(name, (states.topic(name),))
    shared = store.share(states.found(), publish)

    def repeat(event: Event) -> None:
        """A broker that has forgotten the session may have forgotten what it retained, too."""
        if isinstance(event, LinkUp) and core.link.connects > 1 and not core.link.resumed:
            for name in readers:
                shared.change(name)

    core.environment.events.subscribe(repeat, readings=False)


def _follower(core: Core, store: FailureStateStore) -> Follower:
    """Lets devices that join later be remembered, too. One that another node had goes on where it was there."""

    def join(device: Device) -> None:
        name = device.name
        if device.runner is None:
            return
        document, age, states = None, 0.0, core.node.failure_states
        if states is not None:
            core.others.keep(name, (states.topic(name),))
            document, age = states.of(name) or (None, 0.0)
        store.adopt(name, document, age, core.records, core.outages)

    def leave(device: Device, why: Departure) -> None:
        store.pending.pop(device.name, None)
        if device.runner is not None:
            store.forget(device.name, at_once=why is Departure.FORGOTTEN)

    return Follower(join, leave, lambda device: store.change(device.name))
