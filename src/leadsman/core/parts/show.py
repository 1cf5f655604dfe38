"""What is shown of an app while it runs: its readings, and the calls that fail."""

from collections.abc import Mapping

from leadsman.core.devices.roster import RosterPhase, forgetting
from leadsman.core.events import AttemptFailed, PollFailed
from leadsman.core.readings.reading import Reading
from leadsman.core.wiring.core import Core


def join(core: Core) -> None:
    """Pass them on. The readings are taken from the publishers, so this comes before the devices."""
    show = core.plan.show
    if show is None:
        return
    units: dict[str, Mapping[str, str]] = {}  # of the fields, by device

    def on_reading(reading: Reading) -> None:
        if (known := units.get(reading.entity)) is None:
            known = units[reading.entity] = _units(core, reading.entity)
        show(reading, known)

    core.listen(on_reading)
    core.roster.follow(RosterPhase.STATUS, forgetting(lambda device: units.pop(device, None)))
    events = core.environment.events
    events.subscribe_to(PollFailed, lambda event: show(event, {}))
    events.subscribe_to(AttemptFailed, lambda event: show(event, {}))


def _units(core: Core, device: str) -> Mapping[str, str]:
    from leadsman.core.introspection.schema import terms_of_registration

    reader = core.roster[device].reader if device in core.roster else None
    terms = {} if reader is None else terms_of_registration(reader)
    return {field: each["unit"] for field, each in terms.items() if "unit" in each}
