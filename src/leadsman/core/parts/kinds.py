"""What the parts of an app offer each other, and which part does. Who asks for a kind imports nothing of that part."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.core.wiring.offers import Kind

if TYPE_CHECKING:
    from leadsman.core.introspection.registry import DeviceRegistry
    from leadsman.core.introspection.request_queue import RequestQueue
    from leadsman.core.introspection.service import Service
    from leadsman.core.introspection.watching import Watching
    from leadsman.core.monitoring.document import NodeSection
    from leadsman.core.monitoring.heartbeat import Heartbeat
    from leadsman.core.monitoring.statuses import Statuses
    from leadsman.core.runtime.failure_state import FailureStateStore
    from leadsman.core.runtime.found_devices import FoundDevices, Names
    from leadsman.core.runtime.subscriber import Subscriber
    from leadsman.extensions.discovery.registered import Described
    from leadsman.extensions.ledger.reports import LedgerReports
    from leadsman.extensions.nodes.brief import Brief, State
    from leadsman.extensions.nodes.failure_state import FailureStates
    from leadsman.extensions.trace.trace import Trace


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


WATCHING: "Kind[Watching]" = Kind("what is kept for people who watch", "leadsman.extensions.http.part")
DESCRIBED: "Kind[Described]" = Kind("the devices as they are described to others", "leadsman.extensions.discovery.part")
TAKEN_NAMES: "Kind[Callable[[], Names]]" = Kind(
    "the names that no found device may have", "leadsman.extensions.discovery.part"
)
"""A function, since few apps find devices."""
LEDGERS: "Kind[LedgerReports]" = Kind("the ledgers", "leadsman.extensions.ledger.part")
FOUND: "Kind[FoundDevices]" = Kind("the devices that are found at run time", "leadsman.core.parts.found_devices")
SUBSCRIBERS: "Kind[Mapping[str, Subscriber]]" = Kind(
    "the subscribers by topic filter", "leadsman.core.parts.subscriptions"
)
DISK: Kind[OnDisk] = Kind("the file of readings", "leadsman.core.parts.disk")
TRACE: Kind[Traced] = Kind("the trace", "leadsman.extensions.trace.part")
SAVED: "Kind[FailureStateStore]" = Kind("the saved failure state", "leadsman.core.parts.saved_state")
STATUSES: "Kind[Statuses]" = Kind("the statuses of the devices", "leadsman.core.parts.heartbeat")
HEARTBEAT: "Kind[Heartbeat]" = Kind("the heartbeat", "leadsman.core.parts.heartbeat")
ANSWERS: Kind[Answers] = Kind("what answers people and tools", "leadsman.core.parts.introspection")

# Offered by a node that shares the app with others, and by no other one.
NODE: "Kind[NodeSection]" = Kind("what documents show of this node", "leadsman.extensions.nodes.standby.part")
BRIEFS: "Kind[Callable[[], list[Brief]]]" = Kind("the nodes of the app", "leadsman.extensions.nodes.cluster.part")
NODE_STATES: "Kind[Callable[[], Mapping[str, State]]]" = Kind(
    "the states of the nodes", "leadsman.extensions.nodes.cluster.part"
)
FAILURE_STATES: "Kind[FailureStates]" = Kind(
    "the failure state on other nodes", "leadsman.extensions.nodes.cluster.part"
)
