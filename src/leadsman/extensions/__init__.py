"""What joins an app that wants it. The core names nothing of it; this list does, and each module of it is imported for
the apps that want it. A row goes with its folder, and all of what it names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class ShippedSection(NamedTuple):
    """A section of the settings. Modules are named below the package of its extension."""

    place: str
    """The module, and the name of its `leadsman.core.settings.sections.Section` there."""
    server: str = ""
    """The module and the function that run the app where the section is on; empty: the app runs on this node alone."""


class Shipped(NamedTuple):
    """What leadsman ships. Modules are named below its package."""

    package: str
    extension: str = ""
    """The module and the class that join an app: where one of its sections is on, or one of `variables` is set. Empty:
    nothing joins."""
    always: bool = False
    """Whether it joins every app."""
    variables: frozenset[str] = frozenset()
    loads: tuple[str, ...] = ()
    """Further modules that a run needs, which are imported before it begins."""
    sections: Mapping[str, ShippedSection] = MappingProxyType({})
    """Its sections of the settings, by name."""
    documents: str = ""
    """The module with its ``DOCUMENTS``, a `leadsman.core.extension.Documents`."""
    on_request: tuple[str, ...] = ()
    """The sections of introspection on request that these declare, so that the command line knows them without an
    import."""
    commands: str = ""
    """The folder of its commands, with a table of them, ``COMMANDS``."""
    answers: Mapping[str, str] = MappingProxyType({})
    """The functions that answer a `leadsman.core.question.Question`, by its name."""


SHIPPED = (
    Shipped(
        "leadsman.extensions.discovery",
        "part:Descriptions",
        sections={"discovery": ShippedSection("settings:SECTION")},
        answers={
            "convention": "part:convention_of_app",
            "described topics": "part:described_topics",
            "hidden values": "part:hidden_values_of",
            "device at": "part:device_at",
        },
    ),
    Shipped(
        "leadsman.extensions.http",
        "part:HttpEndpoint",
        loads=("server", "routes"),
        sections={"http": ShippedSection("settings:SECTION")},
        documents="document",
        on_request=("recent",),
    ),
    Shipped(
        "leadsman.extensions.ledger",
        "part:Ledger",
        always=True,
        documents="document",
        on_request=("ledger",),
        commands="commands",
    ),
    Shipped(
        "leadsman.extensions.trace",
        "part:FailureTrace",
        always=True,
        documents="document",
        on_request=("trace",),
        commands="commands",
    ),
    Shipped(
        "leadsman.extensions.watchdog",
        "part:ProcessWatchdog",
        # By these a service manager or a container asks whether the app works.
        variables=frozenset({"NOTIFY_SOCKET", "LEADSMAN_HEALTH_FILE", "RUNTIME_DIRECTORY"}),
    ),
    Shipped(
        "leadsman.extensions.nodes",
        "part:Nodes",
        sections={
            "standby": ShippedSection("settings:STANDBY", "standby.part:serve_as_standby"),
            "cluster": ShippedSection("settings:CLUSTER", "cluster.part:serve_in_cluster"),
        },
        documents="declared",
        commands="commands",
        answers={
            "failure state": "failure_state:filters_of",
            "failure state of": "failure_state:topic_of",
            "devices of nodes": "shown:devices_of",
            "owners of devices": "shown:owners_of",
            "node counts": "brief:counts_text",
        },
    ),
    Shipped("leadsman.extensions.sessions", commands="commands", answers={"player": "player:player_of"}),
)
"""What leadsman ships, in the order in which it joins in each phase. A simulated day has none of it."""
