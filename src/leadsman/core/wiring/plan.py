"""The plan of an app: everything that is needed to run it, checked and complete."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast
from urllib.parse import quote

from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.extension import Extension
from leadsman.core.mqtt.broker import Brokers
from leadsman.core.mqtt.topics import Identity, Topics, check_filter
from leadsman.core.registration.registry import Registry
from leadsman.core.registration.setup import Setup, Show
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.resilience.overrides import PolicyOverride
from leadsman.core.settings.sections import Sections
from leadsman.core.text import describe
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, labelled

if TYPE_CHECKING:
    from leadsman.core.extension_tools import Topic
    from leadsman.core.monitoring.trace_row import TraceRow
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.injection import Handler
    from leadsman.core.registration.source import Source
    from leadsman.core.resilience.catalogue import Catalogue
    from leadsman.core.runtime.adapter_recovery import LastResort
    from leadsman.notices import Notice


S = TypeVar("S")


class NoHome(ConfigurationError):  # noqa: N818  # as NotInstalled
    """The user has no home directory, and no variable names a place for state."""


def _home(variables: Mapping[str, str]) -> Path:
    """The home directory: ``$HOME``, else that of the user database. A container may run as somebody without one."""
    if given := variables.get("HOME") or os.environ.get("HOME"):
        return Path(given)
    try:
        import pwd  # not on Windows

        home = pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        home = ""
    if not home:
        raise NoHome("this user has no home directory; set STATE_DIRECTORY")
    return Path(home)


OPERATIONS = ("hold", "release", "circuit")
"""Requests about a device at ``{request}/set`` below it."""


class LiveParts:
    """The parts of a running app that its program asks."""

    __slots__ = ("ask_poll", "listeners", "trace")

    def __init__(self) -> None:
        self.ask_poll: Callable[[str], None] | None = None
        """Asks for a poll of a device, while devices are polled."""
        self.listeners: list[tuple[type[Notice], Handler]] = []
        """The functions that get notices, each with the kind that it takes."""
        self.trace: Callable[[frozenset[str] | None, float], list[TraceRow]] | None = None
        """Gives the rows of the trace of the running app or of its last run, once there are any: those of some devices,
        or all, from a time on, epoch seconds."""

    def end(self) -> None:
        """The app runs no more. Its trace stays."""
        self.ask_poll = None


class Plan(NamedTuple):
    """What `leadsman.core.wiring.build` makes an app of."""

    identity: Identity
    brokers: Brokers
    adapters: tuple[ManagedAdapter, ...]
    sections: Sections
    """What the settings of leadsman have settled."""
    shares: Literal["app", "devices"] | None
    """What this node shares with others: the whole app, of which one node acts, or its devices; None: nothing."""
    registry: Registry
    """The registrations, and the settings of single devices."""
    catalogue: "Catalogue | None"
    """The named policies; None where no handler needs one."""
    overrides: PolicyOverride
    """Policies that temporarily override the handlers' own."""
    settings_file: str | None
    """Where settings were read, for the log."""
    variables: Mapping[str, str]
    """Environment variables, which set where state, health file and service manager are."""
    dry_run: bool
    show: Show | None
    """Takes what is shown while the app runs; None: nothing is."""
    heartbeat: float
    lifespan: Callable[[], AbstractAsyncContextManager[object]] | None
    last_resort: "LastResort | None"
    keep_state: bool
    """Whether the failure state of devices is kept over a restart."""
    live: LiveParts
    """Where the app that runs puts what its program may ask."""
    extensions: tuple[Extension, ...]
    """What extends the app, apart from what leadsman ships."""
    section_of: Callable[[type], object]
    """See `section`."""

    def section(self, kind: type[S]) -> S:
        """The values of the section of an extension.

        Args:
            kind: the class of the section.

        Raises:
            InvalidValue: no extension of the app has it.
        """
        return cast("S", self.section_of(kind))

    @property
    def topics(self) -> Topics:
        """The topics of the app."""
        return self.identity.topics

    @property
    def state_directory(self) -> Path:
        """Where the app keeps what must survive it: systemd's ``$STATE_DIRECTORY``, else below ``$XDG_STATE_HOME``,
        else in the home directory. A relative ``$XDG_STATE_HOME`` does not count (XDG Base Directory Specification).

        Raises:
            NoHome: there is none, and no such variable.
        """
        if given := self.variables.get("STATE_DIRECTORY", "").split(":")[0]:
            return Path(given)
        state = Path(self.variables.get("XDG_STATE_HOME", ""))
        if not state.is_absolute():
            state = _home(self.variables) / ".local" / "state"
        return state / "leadsman" / quote(self.identity.state_name, safe=" @+")

    @property
    def residents(self) -> list[str]:
        """The names of the devices that are here from the start of the app to its end, enabled or not: all of them, or
        none in a cluster, where they come and go with their shards."""
        return [] if self.shares == "devices" else self.registry.names

    @property
    def polled(self) -> list[Telemetry]:
        """The telemetries that are enabled."""
        return [telemetry for telemetry in self.registry.telemetries.values() if telemetry.enabled]

    @property
    def readers(self) -> "list[Telemetry | Source]":
        """The handlers that give readings: the telemetries and sources that are enabled."""
        return [*self.polled, *(source for source in self.registry.sources.values() if source.enabled)]

    @property
    def handlers(self) -> "list[Telemetry | Source | Command]":
        """Everything that is enabled."""
        return [*self.readers, *(command for command in self.registry.commands.values() if command.enabled)]

    def devices(self) -> frozenset[str]:
        """The names of the devices that are registered and enabled. Side jobs are not devices."""
        return frozenset(each.name for each in self.handlers) - self.jobs

    @property
    def filters(self) -> dict[str, str]:
        """The topic filters that the app subscribes to, by the requests that arrive there: ``introspect``, and those
        of ``set``, ``operator`` and ``get`` that make sense for this app."""
        found = {"introspect": self.topics.introspect}
        if any(command.enabled for command in self.registry.commands.values()):
            found["set"] = self.topics.of("+", "set")
        if self.readers:
            found["operator"] = self.topics.of("+", "+/set")
        if len(self.polled) > len(self.jobs):
            found["get"] = self.topics.of("+", "get")
        return found | self._root_filters

    @property
    def _root_filters(self) -> dict[str, str]:
        """The further topic filters for the root device, whose topics have a level less."""
        root, topics, commands = self.topics.root, self.topics, self.registry.commands
        found = {}
        if root is not None and root in commands and commands[root].enabled:
            found["root set"] = topics.of(root, "set")
        others = any(command.enabled for command in commands.values())  # then they match the filter of ``set``
        if root is not None and not others and any(each.name == root for each in self.readers):
            found |= {f"root {word}": topics.of(root, f"{word}/set") for word in OPERATIONS}
        if root is not None and any(each.name == root for each in self.polled):
            found["root get"] = topics.of(root, "get")
        return found

    @property
    def own_filters(self) -> dict[str, str]:
        """The topic filters of what the app itself publishes and reads again: its ``status``, where another app below
        this prefix shows itself, and its ``registry``. An app that is no node shows itself elsewhere to those that
        are."""
        found = {"status": self.topics.status, "registry": f"{self.topics.registry}/#"}
        return found if self.shares != "devices" else found | {"alone": f"{self.topics.prefix}/status"}

    @property
    def jobs(self) -> frozenset[str]:
        """The names of the side jobs that are enabled. They have no topics."""
        return frozenset(telemetry.name for telemetry in self.polled if telemetry.job)


def plan_of(
    setup: Setup,
    *,
    variables: Mapping[str, str],
    heartbeat: float = 30.0,
    lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None,
    last_resort: "LastResort | None" = None,
    keep_state: bool = False,
    live: LiveParts | None = None,
) -> Plan:
    """Complete the setup of an app, whose settings are loaded, with what belongs to one run; see `Plan`."""
    plan = Plan(
        identity=setup.identity,
        brokers=setup.brokers,
        adapters=setup.adapters,
        sections=setup.sections,
        shares=setup.shares,
        registry=setup.registry,
        catalogue=setup.catalogue,
        overrides=setup.overrides,
        settings_file=setup.settings_file,
        variables=variables,
        dry_run=setup.dry_run,
        show=setup.show,
        heartbeat=heartbeat,
        lifespan=lifespan,
        last_resort=last_resort,
        keep_state=keep_state,
        live=live or LiveParts(),
        extensions=setup.extensions,
        section_of=setup.section,
    )
    plan.registry.check_written(extension_topics(plan))
    return plan


def extension_topics(plan: Plan) -> "list[tuple[str, Topic]]":
    """The topics of the extensions of an app, each with the name of its extension.

    Raises:
        InvalidType, InvalidValue: one is no topic, or what lists them raised an error.
    """
    found = []
    for extension in plan.extensions:
        with labelled(f"extension {extension.name!r}"):
            try:
                topics = list(extension.topics(plan))
            except Exception as error:  # of the author's code
                raise InvalidValue(f"topics raised {type(error).__name__}: {describe(error)}; correct it") from None
            for topic in topics:
                _check_topic(topic)
                found.append((extension.name, topic))
    return found


def _check_topic(topic: object) -> None:
    from leadsman.core.extension_tools import Topic  # few extensions have topics

    if not isinstance(topic, Topic):
        raise InvalidType(f"topics gave {topic!r}; write Topic('write', 'house/alarm')")
    access: str = topic.access
    if access not in ("write", "read"):
        raise InvalidValue(f"topics has the access {access!r}; write 'write' or 'read'")
    check_filter(topic.filter)
