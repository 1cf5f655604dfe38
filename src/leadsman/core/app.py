"""The `App` class: what a user holds. It registers handlers, and starts, stops and rehearses an app."""

import asyncio
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from leadsman._version import UNVERSIONED
from leadsman.core.extension import Extension
from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.loop.user_code import program_of
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.connection import Connector
from leadsman.core.mqtt.topics import Topics, check_instance, check_name
from leadsman.core.registration.injection import is_async, name_of, takes_one
from leadsman.core.registration.router import Registrar, Registration
from leadsman.core.registration.setup import (
    AdapterSource,
    Declaration,
    MakeAdapters,
    MakeRedaction,
    Setup,
    check_settings,
)
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.resilience.policy import Policy, named_policy
from leadsman.core.text import log_fields
from leadsman.core.text.redaction import Redaction
from leadsman.core.text.suggestion import suggestion
from leadsman.core.value import Value
from leadsman.core.wiring.plan import LiveParts, Plan, plan_of
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from pydantic import BaseModel

    from leadsman.core.monitoring.trace_row import TraceRow
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.source import Source
    from leadsman.core.resilience.predicate import Predicate
    from leadsman.core.runtime.adapter_recovery import LastResort
    from leadsman.core.settings.sources import Where
    from leadsman.notices import Notice

logger = logging.getLogger("leadsman")

A = TypeVar("A")
N = TypeVar("N", bound="Notice")


def _checked_extensions(given: Sequence[Extension]) -> tuple[Extension, ...]:
    from leadsman.core.registration.extensions import check_extensions  # only apps with extensions need it

    return check_extensions(given)


class App(Registrar):
    """An app: handlers that poll devices, accept commands and publish readings.

    Args:
        name: the app's name: the default for the topic prefix, for variables and for the MQTT client id.
        version: the app's version. The heartbeat publishes it.
        prefix: the topic prefix. The default is `name`. ``topic_prefix`` in the section ``mqtt`` of the settings
            overrides it.
        mqtt: the broker: a URL such as ``mqtts://user:password@host``, or a `Broker`; or a list of them, a primary and
            its replacements. None reads ``MQTT__URL``, or ``MQTT__HOST`` and the other ``MQTT__`` variables, or
            ``[mqtt]`` of the settings file. The fallback is ``mqtt://localhost:1883``.
        adapters: async context managers that handlers ask for by type; a dict with names where several have one type.
            Or a function that makes them from the settings; registrations are then checked once these are loaded.
        heartbeat: the time between two status documents when nothing changes.
        instance: distinguishes two processes of one app in the client id. They need different prefixes as well.
            ``instance`` in the section ``mqtt`` of the settings overrides it, and so does ``client_id``.
        settings: a pydantic model, which is filled from flags, secrets, environment, ``.env`` and file when the app
            runs; or an instance that is already filled.
        lifespan: a function that takes the app and returns an async context manager. The app enters it before the
            first poll and leaves it after the last one.
        keep_state: keep the failure state of devices over a restart: streaks, budgets, circuits, deferrals, holds,
            counters and the trace, in one file in the state directory; see `leadsman.core.runtime.failure_state`.
        redact: regular expressions, or a function that makes them from the settings. Text that they match in errors,
            log lines and introspection is shown as ``***``. Credentials are always hidden; see
            `leadsman.core.text.redaction`. Readings are published as they are.
        twins: a function that makes, from the settings, adapters without hardware, such as
            `leadsman.testing.SerialTwin`, for a dry run: one for each adapter, of the same type and name.
        discovery: ``"homeassistant"`` or a `leadsman.Discovery` describes the devices to others. ``convention`` in
            the section ``discovery`` of the settings overrides it.
        extensions: what extends the app; see `leadsman.Extension`.

    Raises:
        ConfigurationError: an argument is wrong. The message has the correction.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = UNVERSIONED,
        prefix: str | None = None,
        mqtt: "str | Broker | Sequence[str | Broker] | Brokers | None" = None,
        adapters: AdapterSource = (),
        heartbeat: Duration = 30,
        instance: str | None = None,
        settings: "type[BaseModel] | BaseModel | None" = None,
        lifespan: "Callable[[App], AbstractAsyncContextManager[object]] | None" = None,
        keep_state: bool = False,
        twins: MakeAdapters | None = None,
        redact: Sequence[str] | MakeRedaction = (),
        discovery: str | Value | None = None,
        extensions: Sequence[Extension] = (),
    ) -> None:
        if not isinstance(version, str):
            raise InvalidType(f"version is {version!r}; write text")
        if not isinstance(keep_state, bool):
            raise InvalidType(f"keep_state is {keep_state!r}; write True or False")
        if not (twins is None or callable(twins)):
            raise InvalidType(f"twins is {twins!r}; write a function of the settings that makes them")
        self.name = check_name(name, "the name of the app")
        self.setup = Setup(
            Declaration(
                name,
                Topics(name if prefix is None else prefix),
                "" if instance is None else f"-{check_instance(instance)}",
                None if mqtt is None else Brokers.of(mqtt),
                adapters,
                *check_settings(settings),
                twins,
                {"discovery": discovery},
                redact if callable(redact) else None,
                version,
                program_of(sys._getframe()),  # noqa: SLF001  # the documented way; it is only spelled so
                () if extensions == () else _checked_extensions(extensions),
            )
        )
        """What the app is set up with, for the command line and for tests."""
        self._heartbeat = positive_seconds(heartbeat, "heartbeat")
        self._lifespan = lifespan
        self._keep_state = keep_state
        self._last_resort: LastResort | None = None
        self._stopping: asyncio.Event | None = None
        self._live = LiveParts()
        self._redaction = Redaction(() if callable(redact) else redact)
        self._unloaded = False

    @property
    def version(self) -> str:
        """The version of the app."""
        return self.setup.declaration.version

    @property
    def telemetries(self) -> dict[str, Telemetry]:
        """Everything that is polled, by name; side jobs are included. Devices from settings appear once the settings
        are loaded."""
        return self.setup.registry.telemetries

    @property
    def sources(self) -> "dict[str, Source]":
        """The sources, by device name."""
        return self.setup.registry.sources

    @property
    def commands(self) -> "dict[str, Command]":
        """The commands, by device name."""
        return self.setup.registry.commands

    @property
    def settings(self) -> Any:
        """The settings, once they are loaded. Raises `InvalidValue` before, and if there are none."""
        return self.setup.settings

    @property
    def brokers(self) -> Brokers:
        """The brokers. Raises `InvalidValue` if they depend on settings that are not loaded yet."""
        return self.setup.brokers

    @property
    def topics(self) -> Topics:
        """The topics of the app. The settings and a dry run may change their prefix."""
        return self.setup.topics

    @property
    def client_id(self) -> str:
        """The MQTT client id. The settings and a dry run may change it."""
        return self.setup.client_id

    @property
    def dry_run(self) -> bool:
        """Whether this is a dry run; see `rehearse`."""
        return self.setup.dry_run

    def load(self, where: "Where | None" = None) -> None:
        """Read the settings and register the devices that they define. `run` and `serve` call this if it was not
        called before.

        Raises:
            ConfigurationError: settings are wrong, one fault a line; or the broker, the adapters or the devices made
                from them are.
        """
        self.setup.load(where)

    @contextmanager
    def unloaded(self, adapters: AdapterSource | None = None) -> Iterator[None]:
        """Temporarily return the app to its state before the settings were loaded, so that it can be loaded with
        others. At the end of the block the app is as before. For tests: `leadsman.testing.Harness` uses it.

        Args:
            adapters: adapters that replace the app's own; the same forms as for `App`.

        Raises:
            InvalidValue: the app is in such a block already, or an adapter that a handler asks for is missing.
        """
        if self._unloaded or self._stopping is not None:
            raise InvalidValue(f"the app {self.name!r} runs in another Harness; stop that one first")
        before, self._unloaded = self.setup, True
        try:
            self.setup = before.unloaded(adapters)
            yield
        finally:
            self.setup, self._unloaded = before, False

    def adapter(self, kind: type[A], name: str | None = None) -> A:
        """Return the adapter, or its twin, that handlers get for this type. It exists once the settings are loaded.

        Args:
            kind: the adapter's class.
            name: the adapter's name, where several have this class.

        Raises:
            InvalidValue: no adapter matches, or several do.
        """
        return self.setup.adapter(kind, name)

    def rehearse(self, twins: AdapterSource | None = None) -> None:
        """Turn the app into a dry run. A dry run touches nothing real and may run beside the app itself: it uses twins
        instead of the adapters, publishes below ``dry-run/{prefix}`` without retaining anything, has another client id,
        and keeps no state after its end. This loads the settings if they are not loaded yet.

        Args:
            twins: twins that replace the app's own.

        Raises:
            InvalidValue: the app has adapters and no twins, or not one for each adapter.
        """
        self.setup.use_twins(twins)
        self.setup.rehearse()

    def retry_policy(
        self, name: str, policy: Policy, *, priority: int = 0, predicate: "Predicate | bool" = True
    ) -> None:
        """Register a policy under a name. ``policy="…"`` and `execute_with_retry` look it up by this name. Handlers
        without retry options use, for each failure, the named policy with the highest priority whose predicate
        matches. A policy registered here overrides one of the same name in the settings file.

        Raises:
            InvalidValue, InvalidType: an argument is invalid, or the settings are loaded already.
        """
        self.setup.name_policy(named_policy(name, policy, priority, predicate))

    def retrying(self, policy: Policy | str, devices: Sequence[str] | None = None) -> AbstractContextManager[None]:
        """Temporarily override the retry policy. If this policy does not apply to a failure, because its `only_when`
        or the predicate of its name does not match, the handler's own policy decides.

        Inside a polled handler or a source, the override applies only to failures of its own block. Elsewhere, such as
        in a lifespan or in a command, it applies to all handlers, or to `devices`. The policy has counters of its own,
        which start at the first failure of an outage that it sees.

        Args:
            policy: a policy of the algebra, or the name of a family or of a policy.
            devices: the devices that it applies to; None for all polled devices.

        Raises:
            InvalidValue: no policy has that name, a device is unknown, or `devices` is given inside a handler.
        """
        return self.setup.override(policy, devices)

    def register(self, registration: Registration) -> None:
        """Add one registration. If its names come from the settings, it is kept until they are loaded."""
        if self._stopping is not None:
            what = f"{registration.kind} {registration.names!r}"
            raise InvalidValue(f"{what}: the app is running; register before it starts")
        self.setup.register(registration)

    def on(self, kind: "type[N]") -> "Callable[[Callable[[N], object]], Callable[[N], object]]":
        """Register the decorated function to be called with each notice of this kind, such as
        `leadsman.notices.CircuitOpened`. An ``async def`` runs on the event loop, a plain ``def`` in a thread.

        A function gets one notice after the other. What it raises, and a call of more than 30 s, is reported as a fault
        of the app; an async call is cancelled then. At most 100 notices wait for it, and further ones are dropped.

        Raises:
            InvalidType: `kind` is no notice, or the function does not take one.
            InvalidValue: the app is running.
        """
        from leadsman.notices import KINDS  # only apps that listen need it

        if kind not in KINDS:
            names = [each.__name__ for each in KINDS]
            name = getattr(kind, "__name__", repr(kind))
            raise InvalidType(f"on takes a notice and not {name}; {suggestion(name, names)}")
        if self._stopping is not None:
            raise InvalidValue(f"on({kind.__name__}): the app is running; register before it starts")

        def register(function: "Callable[[N], object]") -> "Callable[[N], object]":
            if not takes_one(function):
                raise InvalidType(f"on({kind.__name__}): {name_of(function)} must take the notice, and nothing else")
            heard: Any = kind  # of the union, which a type variable does not show
            self._live.listeners.append((heard, function))
            return function

        return register

    def on_wedged_adapter(self, hook: "LastResort") -> "LastResort":
        """Register the decorated ``async def (adapter: str, failures: int)`` as the last step of adapter recovery.
        It is called when closing, resetting and reopening an adapter did not help. It may cut the power of a USB
        port, or restart a service."""
        if not is_async(hook):
            raise InvalidType(f"{name_of(hook)} is not an 'async def'; write one that takes adapter and failures")
        self._last_resort = hook
        return hook

    def run(
        self,
        *,
        log_level: str | None = None,
        log_format: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run until SIGINT or SIGTERM, then end the process within two seconds. See `leadsman.core.wiring.process`.

        Args:
            log_level: None takes ``$LOG_LEVEL``, else INFO.
            log_format: ``text``, ``json`` or ``journal``; None takes ``$LOG_FORMAT``, else the format that suits
                stderr.
            environment: as for `serve`.
        """
        from leadsman.core.wiring.process import run  # signals and logging are not for programs that embed an app

        serve = functools.partial(self.serve, environment=environment)
        load = functools.partial(self._load_all, os.environ if environment is None else environment)
        run(self.name, load, serve, self.stop, (log_level, log_format))

    def _load_all(self, environment: Mapping[str, str]) -> None:
        """Load the settings and what `serve` imports: on a small machine that takes seconds, and blocks the loop."""
        from leadsman.core.wiring.outside import load_modules

        self.load()
        if self.setup.sections.log is not None:
            from leadsman.core.monitoring.log_settings import change_log

            change_log(self.setup.sections.log)
        load_modules(self.plan(environment))

    def poll(self, device: str) -> None:
        """Ask for a poll of a device, such as the one that reads it back after a write, and return at once. May be
        called from any thread.

        The reading is published whatever the publish rule decides, and the schedule does not change. The poll follows
        the commands of the device that run or wait, and a poll under way, so that it reads what was written. Several
        requests before it begins are one poll; two such polls are at least the handler's ``throttle`` apart. A device
        that is held, whose circuit is open, or that asked for a pause is not polled, and the log has the reason.

        Raises:
            UnknownDevice: no device of that name is polled.
            InvalidValue: the app polls no device now, because it has not started, or has ended.
        """
        if self._live.ask_poll is None:
            raise InvalidValue(f"the app {self.name!r} polls no device now; call poll while it runs")
        self._live.ask_poll(device)

    def trace(self, handler: str | None = None, since: datetime | None = None) -> "list[TraceRow]":
        """The latest rows of the trace, of the running app or of its last run; see
        `leadsman.core.monitoring.trace_row.TraceRow`.

        Args:
            handler: return only rows of this device.
            since: return only rows from this time on; an aware datetime.
        """
        if self._live.trace is None:
            return []
        handlers = None if handler is None else frozenset((handler,))
        return self._live.trace(handlers, 0.0 if since is None else since.timestamp())

    def stop(self) -> None:
        """Ask a serving app to stop."""
        if self._stopping is not None:
            self._stopping.set()

    async def serve(self, connect: Connector | None = None, *, environment: Mapping[str, str] | None = None) -> int:
        """Poll and publish until `stop` is called, then end within two seconds. Use this in a program with its own
        event loop.

        Args:
            connect: makes the connection; None connects to the app's broker.
            environment: variables that locate the state directory, the health file and the service manager. None takes
                those of the process; in a dry run None takes a state directory that is removed at the end.

        Returns:
            The number of calls that did not end and were left behind.
        """
        if self._stopping is not None:
            raise InvalidValue(f"the app {self.name!r} is running already")
        from leadsman.core.wiring.outside import (  # imported here: one that is only looked at needs none of it
            access,
            server,
            variables,
        )

        self.load()
        if self.dry_run:
            what = "DRY RUN: twins instead of hardware, topics below %s, nothing retained"
            logger.warning(what, self.topics.prefix, extra=log_fields("dry run", prefix=self.topics.prefix))
        self.setup.check_installed()
        if (idle := self.setup.idle_reason) is not None:
            logger.warning("%s does nothing: %s", self.name, idle, extra=log_fields("idle"))
        self._stopping = asyncio.Event()
        try:
            with variables(self.name, environment, dry_run=self.dry_run) as given:
                brokers = access(self.brokers, connect, dry_run=self.dry_run)
                plan = self.plan(given)
                return await server(plan)(plan, brokers, self._stopping)
        finally:
            self._stopping.set()  # also on cancellation
            self._stopping = None

    def plan(self, variables: Mapping[str, str]) -> Plan:
        """Everything that is needed to run the app, once its settings are loaded; for the command line."""
        return plan_of(
            self.setup,
            variables=variables,
            heartbeat=self._heartbeat,
            lifespan=None if self._lifespan is None else functools.partial(self._lifespan, self),
            last_resort=self._last_resort,
            keep_state=self._keep_state,
            live=self._live,
        )
