"""The description of an app for a convention of discovery. All values are plain, and none depends on a convention."""

from collections.abc import Mapping
from typing import NamedTuple

from leadsman.core.introspection.fields import Field


class ControlDescription(NamedTuple):
    """What a command sets as a whole, such as a lamp, or what readings show as a whole, the versions of a program. A
    field of the readings with the same path shows the state of each field that is set."""

    kind: str
    """One of those in `leadsman.core.readings.controls.KINDS`."""
    fields: Mapping[str, Field]
    """Those that the command sets, or that the readings show, by their roles."""
    current: tuple[str, ...] | None = None
    """Of a thermostat, the path in the readings of the temperature that is measured."""


class CommandDescription(NamedTuple):
    """The command that a device takes at ``set``."""

    fields: tuple[Field, ...]
    """Those that can be sent alone, without those of the control. There may be none."""
    parameter: str | None
    """The parameter of the handler that gets the payload; None where it takes none."""
    control: ControlDescription | None = None
    """The control that some fields are together."""


class EventDescription(NamedTuple):
    """The messages of a device that sends events, and has no state."""

    field: Field
    """The field of its readings that names what happened, an enum."""
    device_class: str | None
    """One of `leadsman.core.readings.device_classes.OF_EVENTS`."""


class DeviceDescription(NamedTuple):
    """One device of an app."""

    name: str
    fields: tuple[Field, ...]
    """Those of its readings."""
    command: CommandDescription | None
    stale_after: float | None
    """Seconds after which its last published reading is no longer true; None if a reading that does not change is not
    published again, or if it has none."""
    read: bool
    """Whether it gives readings, and does not only take commands."""
    polled: bool
    """Whether it can be polled, held and released by request."""
    circuit: bool
    """Whether it has a circuit breaker."""
    retained: bool = True
    """Whether the broker keeps its readings."""
    title: str | None = None
    """Its name for people; None if that is `name`."""
    area: str | None = None
    """The room or the place that is suggested for it."""
    event: EventDescription | None = None
    """Its events, if it sends any."""
    content: tuple[str, str] | None = None
    """The word of its topic for bytes, and their media type; None if its readings are values."""
    only_fields: bool = False
    """Whether its readings are no JSON object: each value is at a topic of its own."""
    update: ControlDescription | None = None
    """Which fields of its readings are the versions of a program or a firmware."""


class RetainedMessage(NamedTuple):
    """One retained message. An empty payload removes what the broker has."""

    topic: str
    payload: bytes
