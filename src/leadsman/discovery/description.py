"""What a convention of discovery is told about an app. All values are plain, and nothing here knows a convention."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from leadsman.mqtt.topics import Topics

Kind = Literal["number", "text", "boolean", "enum", "timestamp", "date"]
"""What a value is. Whatever else JSON has, such as a list, is no field."""


class Field(NamedTuple):
    """One value of a payload, with the words of its `leadsman.sensor.Sensor`."""

    path: tuple[str, ...]
    """The keys that lead to it; empty where the payload itself is the value."""
    kind: Kind
    name: str
    """For people."""
    unit: str | None = None
    device_class: str | None = None
    state_class: str | None = None
    precision: int | None = None
    icon: str | None = None
    category: str | None = None
    options: tuple[str, ...] = ()
    """The values of an enum."""
    quoted: bool = True
    """Whether these are text in JSON, and no numbers."""
    whole: bool = False
    """Whether a number has no decimals."""
    minimum: float | None = None
    """The smallest number, or the length of the shortest text. Only the payloads of commands have bounds."""
    maximum: float | None = None
    step: float | None = None
    pattern: str | None = None


class Command(NamedTuple):
    """What a device takes at ``set``."""

    fields: tuple[Field, ...]
    """Those that can be sent alone. There may be none."""
    parameter: str | None
    """The parameter of the handler that gets the payload; None where it takes none."""


class Device(NamedTuple):
    """One device of an app."""

    name: str
    fields: tuple[Field, ...]
    """Those of its readings."""
    command: Command | None
    stale_after: float | None
    """Seconds after which its last published reading is no longer true; None if a reading that does not change is not
    published again, or if it has none."""
    read: bool
    """Whether it gives readings, and does not only take commands."""
    polled: bool
    """Whether it can be polled, held and released by request."""
    circuit: bool
    """Whether it has a circuit breaker."""


class AppDescription(NamedTuple):
    """One app."""

    name: str
    version: str
    leadsman: str
    topics: Topics
    ids: Mapping[str, str]
    """Names that devices had before, by their names; they keep the identity of that name."""


class Retained(NamedTuple):
    """One retained message."""

    topic: str
    payload: bytes


class Convention(Protocol):
    """How the devices of an app are described to others. Pure."""

    @property
    def topics(self) -> Mapping[str, str | None]:
        """The topics of all descriptions, with the names of the devices; None is the app itself."""
        ...

    def describe(self, device: Device) -> Retained:
        """The description of one device."""
        ...

    def describe_app(self) -> Retained:
        """The description of the app itself."""
        ...

    def is_ours(self, payload: bytes) -> bool:
        """Whether this app published a description: then it may replace or remove it."""
        ...

    def steps(self, found: bytes, wanted: bytes) -> Sequence[bytes]:
        """The payloads that lead from the description that the broker has to the wanted one, which is the last."""
        ...

    @property
    def own(self) -> str:
        """The topic filter of the descriptions of this app."""
        ...

    @property
    def births(self) -> str:
        """Where a program that reads descriptions says that it has started."""
        ...

    def is_birth(self, payload: bytes) -> bool:
        """Whether a message there says so."""
        ...
