"""The parts that every app has. All other parts are made of these."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leadsman.devices.roster import Roster
from leadsman.ledger.reports import LedgerReports
from leadsman.monitoring.health import HealthRecords
from leadsman.mqtt.link import Link
from leadsman.resilience.environment import Environment
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.other_topics import OtherTopics
from leadsman.runtime.publisher import PublisherContext
from leadsman.slices import Slices
from leadsman.wiring.plan import Plan

if TYPE_CHECKING:
    from leadsman.discovery.registered import Described
    from leadsman.introspection.watching import Watching
    from leadsman.nodes.document import Brief
    from leadsman.standby.member import Ownership
    from leadsman.standby.snapshots import Snapshots
    from leadsman.wiring.cluster import Cluster
    from leadsman.wiring.cluster_report import ClusterReport


class Core(NamedTuple):
    """The parts that every app uses."""

    plan: Plan
    environment: Environment
    records: HealthRecords
    ledgers: LedgerReports
    link: Link
    publisher: PublisherContext
    shared: SharedResources
    end_app: Callable[[str, BaseException], None]
    """Ends the app, because a device that must work does not."""
    roster: Roster
    """The devices."""
    slices: Slices
    """Does what is too long for one turn of the loop."""
    watching: "Watching | None"
    """What is kept for people who watch; None where nobody can."""
    others: OtherTopics
    """Further retained topics of the devices."""
    described: "Described | None" = None
    """The devices as others are told about them; None where discovery is off."""
    snapshots: "Snapshots | None" = None
    """The failure state of the devices on the node that was active before; None if it is not shared."""
    ownership: "Ownership | None" = None
    """What this node says of itself; None if it shares the app with no other."""
    nodes: "Callable[[], list[Brief]] | None" = None
    """The nodes that share the app, this one included; None if it shares it with no other."""
    cluster: "Cluster | None" = None
    """This node of a cluster; None outside one."""
    cluster_report: "ClusterReport | None" = None
    """What it says of itself; None outside a cluster."""
