"""What a node adds to the documents of its app: itself, and the nodes that share the app with it."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadsman.core.introspection.added_measures import AddedMeasures, gauge
from leadsman.core.parts.kinds import HEARTBEAT
from leadsman.core.wiring.core import Core
from leadsman.extensions.nodes.brief import STATES
from leadsman.extensions.nodes.report import NodeReport

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import NodeSection, Status


def add_to_documents(core: Core, report: NodeReport, node: "NodeSection | None" = None) -> None:
    """Add them to the heartbeat, to introspection and to what is measured.

    Args:
        core: the app.
        report: the nodes.
        node: this one, if it owns the app.
    """

    def add_to_heartbeat(document: "Status") -> None:
        if node is not None:
            document["node"] = node
        document["nodes"] = dict(Counter(report.states().values()))

    def add_to_app(section: dict[str, object]) -> None:
        if node is not None:
            section["node"] = node
        section["nodes"] = report.briefs()

    core.of(HEARTBEAT).sections.add(add_to_heartbeat)
    core.documents.app.add(add_to_app)
    core.documents.measures.append(lambda: measures(report))


def measures(report: NodeReport) -> AddedMeasures:
    """A number of nodes for each state."""

    def count() -> Mapping[str, float]:
        found = [node["state"] for node in report.briefs()]
        return {state: found.count(state) for state in STATES}

    return AddedMeasures(app={gauge("nodes", "Nodes that share the app, by their state.", "state"): count})
