"""What joins an app that wants it. The core names nothing of it; this list does, and each module of it is imported for
the apps that want it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from leadsman.core.extension import Extension
    from leadsman.core.settings.sections import Sections
    from leadsman.core.wiring.plan import Plan


class Shipped(NamedTuple):
    """An extension that leadsman ships."""

    module: str
    name: str
    """The name of its class there."""
    wanted: "Callable[[Plan], bool] | None" = None
    """Which apps want it; None: all."""
    loads: tuple[str, ...] = ()
    """Further modules that a run needs, which are imported before it begins."""


SUPERVISORS = frozenset({"NOTIFY_SOCKET", "LEADSMAN_HEALTH_FILE", "RUNTIME_DIRECTORY"})
"""Variables by which a service manager or a container asks whether the app works."""
SHIPPED = (
    Shipped("leadsman.extensions.discovery.part", "Descriptions", lambda plan: plan.sections.discovery is not None),
    Shipped(
        "leadsman.extensions.http.part",
        "HttpEndpoint",
        lambda plan: plan.sections.http is not None,
        ("leadsman.extensions.http.server", "leadsman.extensions.http.routes"),
    ),
    Shipped("leadsman.extensions.ledger.part", "Ledger"),
    Shipped("leadsman.extensions.trace.part", "FailureTrace"),
    Shipped(
        "leadsman.extensions.watchdog.part", "ProcessWatchdog", lambda plan: bool(plan.variables.keys() & SUPERVISORS)
    ),
    Shipped("leadsman.extensions.nodes.part", "Nodes", lambda plan: plan.sections.shared),
)
"""What leadsman ships, in the order in which it joins in each phase. A simulated day has none of it."""
LIBRARIES = (("cluster", "leadsman.extensions.nodes.lease.jetstream"),)
"""Modules that need a library which may not be installed, by the section of the settings that asks for it."""
SERVERS = (
    ("standby", "leadsman.extensions.nodes.standby.part", "serve_as_standby"),
    ("cluster", "leadsman.extensions.nodes.cluster.part", "serve_in_cluster"),
)
"""What runs the app on one of several nodes: the section of the settings that asks for it, the module and the
function."""
OFFERS = {
    "convention": "leadsman.extensions.discovery.part:convention_of_app",
    "described topics": "leadsman.extensions.discovery.part:described_topics",
    "hidden values": "leadsman.extensions.discovery.part:hidden_values_of",
    "device at": "leadsman.extensions.discovery.part:device_at",
    "failure state": "leadsman.extensions.nodes.failure_state:filters_of",
    "failure state of": "leadsman.extensions.nodes.failure_state:topic_of",
    "devices of nodes": "leadsman.extensions.nodes.shown:devices_of",
    "owners of devices": "leadsman.extensions.nodes.shown:owners_of",
    "node counts": "leadsman.extensions.nodes.brief:counts_text",
    "player": "leadsman.extensions.sessions.player:player_of",
}
"""What tools, the kit for tests and other extensions ask of an extension, if it is there: where the function is."""
COMMANDS = (
    "leadsman.extensions.ledger.commands",
    "leadsman.extensions.trace.commands",
    "leadsman.extensions.nodes.commands",
    "leadsman.extensions.sessions.commands",
)
"""Where commands about one of them are, each with a table of them."""
DOCUMENTED: Mapping[str, tuple[str, ...]] = {
    "leadsman.extensions.nodes.declared": (),
    "leadsman.extensions.trace.document": ("trace",),
    "leadsman.extensions.ledger.document": ("ledger",),
    "leadsman.extensions.http.document": ("recent",),
}
"""The modules with a ``DOCUMENTS``, a `leadsman.core.extension.Documents`; and the sections on request that each
declares, so that the command line knows them without an import."""


def _wanted(plan: "Plan") -> list[Shipped]:
    return [each for each in SHIPPED if each.wanted is None or each.wanted(plan)]


def shipped(plan: "Plan") -> "list[Extension]":
    """The extensions of the list that an app wants."""
    return [getattr(import_module(each.module), each.name)() for each in _wanted(plan)]


def load_modules(plan: "Plan") -> None:
    """Import these extensions, and what they need besides when the app runs."""
    for each in _wanted(plan):
        for module in (each.module, *each.loads):
            import_module(module)


def check_installed(sections: "Sections") -> None:
    """Import what shows that a library is there. Raises `NotInstalled`."""
    for section, module in LIBRARIES:
        if getattr(sections, section) is not None:
            import_module(module)


def server(sections: "Sections") -> tuple[str, str] | None:
    """The module and the name of the function that runs an app on one of several nodes; None where no other node
    shares it."""
    found = ((module, name) for section, module, name in SERVERS if getattr(sections, section) is not None)
    return next(found, None)


def offered(name: str) -> Callable[..., Any] | None:
    """A function of `OFFERS`, imported; None if what offers it is not there."""
    if name not in OFFERS:
        return None
    module, _, function = OFFERS[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
