"""What the parts of an app offer each other, and which part does. Who asks for a kind imports nothing of that part."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.core.wiring.offers import Kind

if TYPE_CHECKING:
    from leadsman.core.introspection.registry import DeviceRegistry
    from leadsman.core.introspection.request_queue import RequestQueue
    from leadsman.core.introspection.service import Service
    from leadsman.core.monitoring.heartbeat import Heartbeat
    from leadsman.core.monitoring.statuses import Statuses
    from leadsman.core.runtime.failure_state import FailureStateStore
    from leadsman.core.runtime.found_devices import FoundDevices, Names
    from leadsman.core.runtime.subscriber import Subscriber


class OnDisk(NamedTuple):
    """The readings that wait for the broker on disk."""

    left: bool
    """Whether an earlier run left some."""
    keeps_readings: Callable[[], bool]
    """Whether the next run sends what the broker does not have."""


class Answers(Protocol):
    """What answers people and tools that ask about one running app. Each is created on first use."""

    @property
    def requests(self) -> "RequestQueue":
        """Where requests and commands wait for their turn."""
        ...

    @property
    def registry(self) -> "DeviceRegistry":
        """The list of the devices, with their topics."""
        ...

    @property
    def service(self) -> "Service":
        """Answers questions, and does what people request."""
        ...


TAKEN_NAMES: "Kind[Callable[[], Names]]" = Kind("the names that no found device may have", "what describes the devices")
"""A function, since few apps find devices."""
FOUND: "Kind[FoundDevices]" = Kind("the devices that are found at run time", "leadsman.core.parts.found_devices")
SUBSCRIBERS: "Kind[Mapping[str, Subscriber]]" = Kind(
    "the subscribers by topic filter", "leadsman.core.parts.subscriptions"
)
DISK: Kind[OnDisk] = Kind("the file of readings", "leadsman.core.parts.disk")
SAVED: "Kind[FailureStateStore]" = Kind("the saved failure state", "leadsman.core.parts.saved_state")
STATUSES: "Kind[Statuses]" = Kind("the statuses of the devices", "leadsman.core.parts.heartbeat")
HEARTBEAT: "Kind[Heartbeat]" = Kind("the heartbeat", "leadsman.core.parts.heartbeat")
ANSWERS: Kind[Answers] = Kind("what answers people and tools", "leadsman.core.parts.introspection")
