"""What the parts of an app offer each other, and which part does. Who asks for a kind imports nothing of that part."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.wiring.offers import Kind

if TYPE_CHECKING:
    from leadsman.discovery.registered import Described
    from leadsman.introspection.registry import DeviceRegistry
    from leadsman.introspection.request_queue import RequestQueue
    from leadsman.introspection.service import Service
    from leadsman.introspection.watching import Watching
    from leadsman.ledger.reports import LedgerReports
    from leadsman.monitoring.document import NodeSection
    from leadsman.monitoring.heartbeat import Heartbeat
    from leadsman.monitoring.statuses import Statuses
    from leadsman.monitoring.trace import Trace
    from leadsman.nodes.brief import Brief, State
    from leadsman.nodes.failure_state import FailureStates
    from leadsman.runtime.failure_state import FailureStateStore
    from leadsman.runtime.found_devices import FoundDevices, Names
    from leadsman.runtime.subscriber import Subscriber


class OnDisk(NamedTuple):
    """The readings that wait for the broker on disk."""

    left: bool
    """Whether an earlier run left some."""
    keeps_readings: Callable[[], bool]
    """Whether the next run sends what the broker does not have."""


class Traced(NamedTuple):
    """The trace of the app, which begins when there is something for it."""

    traces: "list[Trace]"
    """The trace, once there is something in it."""
    resume: Callable[[Mapping[str, float]], None]
    """Goes on with the outages of an earlier run: since when, epoch seconds, by device."""


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


WATCHING: "Kind[Watching]" = Kind("what is kept for people who watch", "leadsman.parts.http")
DESCRIBED: "Kind[Described]" = Kind("the devices as they are described to others", "leadsman.parts.discovery")
TAKEN_NAMES: "Kind[Callable[[], Names]]" = Kind("the names that no found device may have", "leadsman.parts.discovery")
"""A function, since few apps find devices."""
LEDGERS: "Kind[LedgerReports]" = Kind("the ledgers", "leadsman.parts.ledger")
FOUND: "Kind[FoundDevices]" = Kind("the devices that are found at run time", "leadsman.parts.found_devices")
SUBSCRIBERS: "Kind[Mapping[str, Subscriber]]" = Kind("the subscribers by topic filter", "leadsman.parts.subscriptions")
DISK: Kind[OnDisk] = Kind("the file of readings", "leadsman.parts.disk")
TRACE: Kind[Traced] = Kind("the trace", "leadsman.parts.trace")
SAVED: "Kind[FailureStateStore]" = Kind("the saved failure state", "leadsman.parts.saved_state")
STATUSES: "Kind[Statuses]" = Kind("the statuses of the devices", "leadsman.parts.heartbeat")
HEARTBEAT: "Kind[Heartbeat]" = Kind("the heartbeat", "leadsman.parts.heartbeat")
ANSWERS: Kind[Answers] = Kind("what answers people and tools", "leadsman.parts.introspection")

# Offered by a node that shares the app with others, and by no other one.
NODE: "Kind[NodeSection]" = Kind("what documents show of this node", "leadsman.parts.standby")
BRIEFS: "Kind[Callable[[], list[Brief]]]" = Kind("the nodes of the app", "leadsman.parts.cluster")
NODE_STATES: "Kind[Callable[[], Mapping[str, State]]]" = Kind("the states of the nodes", "leadsman.parts.cluster")
FAILURE_STATES: "Kind[FailureStates]" = Kind("the failure state on other nodes", "leadsman.parts.cluster")
