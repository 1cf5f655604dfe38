"""The `App` class. It holds the registrations and settings of an app, and starts, stops and rehearses it."""

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from leadsman._version import __version__
from leadsman.adapters.adapter import Adapter
from leadsman.adapters.managed import managed_adapters
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, NotInstalled, SettingsError, raise_together
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connector
from leadsman.mqtt.topics import Topics, check_client_id, check_name, check_prefix
from leadsman.registration.injection import Dependency, Provided, is_async, name_of
from leadsman.registration.registry import Registry, ask_user
from leadsman.registration.router import Registrar, Registration
from leadsman.registration.telemetry import Telemetry, decided
from leadsman.resilience import scope
from leadsman.resilience.environment import PolicyOverride
from leadsman.resilience.policy import Policy, as_policy
from leadsman.text import suggestion
from leadsman.timing.clock import system_clock
from leadsman.timing.durations import Duration, positive_seconds

if TYPE_CHECKING:
    from pydantic import BaseModel

    from leadsman.monitoring.trace import Trace, TraceRow
    from leadsman.registration.command import Command
    from leadsman.registration.source import Source
    from leadsman.resilience.catalogue import Catalogue, Named
    from leadsman.resilience.predicate import Predicate
    from leadsman.runtime.adapter_recovery import LastResort
    from leadsman.settings.load import Loaded
    from leadsman.settings.rows import SettingRow
    from leadsman.settings.sources import Entry, Where
    from leadsman.wiring.plan import Plan

logger = logging.getLogger("leadsman")

Adapters = Sequence[Adapter] | Mapping[str, Adapter]
A = TypeVar("A")

DRY_RUN = "dry-run"
"""The topics of a dry run begin with this text, and its client id ends with it."""

_CHANGED_BY_LOADING = (
    "topics", "client_id", "dry_run", "loaded_from", "_registry",
    "_broker", "_adapters", "_slots", "_held", "_loaded", "_waiting", "_catalogue", "_registrations",
)  # fmt: skip
"""Attributes of an `App` that `App.unloaded` puts back."""


class App(Registrar):
    """An app: handlers that poll devices, accept commands and publish readings.

    Args:
        name: the app's name. It is the default for the topic prefix, the prefix of environment variables and the MQTT
            client id.
        version: the app's version. The heartbeat publishes it.
        prefix: the topic prefix. The default is `name`. ``topic_prefix`` in the section ``mqtt`` of the settings
            overrides it.
        mqtt: the broker: a URL such as ``mqtts://user:password@host``, or a `Broker`. None reads ``MQTT__URL``, or
            ``MQTT__HOST`` and the other ``MQTT__`` variables, or ``[mqtt]`` of the settings file. The fallback is
            ``mqtt://localhost:1883``.
        adapters: async context managers that handlers ask for by type; a dict with names where several have one type.
            Or a function that makes them from the settings; registrations are then checked after the settings are
            loaded.
        heartbeat: the time between two status documents when nothing changes.
        instance: distinguishes two processes of one app in the client id. They need different prefixes as well.
            ``client_id`` in the section ``mqtt`` of the settings overrides it.
        settings: a pydantic model, which is filled from flags, secrets, environment, ``.env`` and file when the app
            runs; or an instance that is already filled.
        lifespan: a function that takes the app and returns an async context manager. The app enters it before the
            first poll and leaves it after the last one.
        keep_state: keep the failure state of devices over a restart: streaks, budgets, circuits, deferrals, holds and
            the trace. They are stored in one file in ``$STATE_DIRECTORY``, or below ``$XDG_STATE_HOME``; see
            `leadsman.runtime.persistence`.
        twins: a function that makes, from the settings, adapters without hardware, such as
            `leadsman.testing.SerialTwin`, for `rehearse` and ``--dry-run``. There must be one for each adapter, of the
            same type, and under the same name if it has one.

    Raises:
        ConfigurationError: an argument is wrong. The message says what to write.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        prefix: str | None = None,
        mqtt: str | Broker | None = None,
        adapters: Adapters | Callable[[Any], Adapters] = (),
        heartbeat: Duration = 30,
        instance: str | None = None,
        settings: "type[BaseModel] | BaseModel | None" = None,
        lifespan: "Callable[[App], AbstractAsyncContextManager[Any]] | None" = None,
        keep_state: bool = False,
        twins: Callable[[Any], Adapters] | None = None,
    ) -> None:
        self.name = check_name(name)
        self.version = _text(version, "version")
        self.topics = Topics(name if prefix is None else prefix)
        self._registry = Registry()
        self._broker = mqtt if mqtt is None or isinstance(mqtt, Broker) else Broker.from_url(mqtt)
        self._fixed_broker = mqtt is not None
        self._adapters = adapters if callable(adapters) else None
        self._slots = () if callable(adapters) else managed_adapters(adapters)
        self._heartbeat = positive_seconds(heartbeat, "heartbeat")
        self._instance = "" if instance is None else f"-{check_name(instance)}"
        self.client_id = self.topics.prefix + self._instance
        self._model, self._given = _settings(settings)
        self._held = _held(self._model)
        self._loaded: Loaded | None = None
        self.dry_run = False
        """Whether this is a dry run, which touches nothing real; see `rehearse`."""
        self.loaded_from: Where | None = None
        """Where the settings were read from; None until they are loaded."""
        self._waiting: list[Registration] = []
        self._registrations: list[Registration] = []
        self._declared = adapters, self._broker, self.topics, self.client_id
        self._unloaded = False
        self._lifespan = lifespan
        if not isinstance(keep_state, bool):
            raise InvalidType(f"keep_state is {keep_state!r}; write True or False")
        self._keep_state = keep_state
        if not (twins is None or callable(twins)):
            raise InvalidType(f"twins is {twins!r}; write a function of the settings that makes them")
        self._twins = twins
        self._last_resort: LastResort | None = None
        self._stopping: asyncio.Event | None = None
        self._trace: Trace | None = None
        self._policies: list[Named] = []
        self._catalogue: Catalogue | None = None
        self._overrides: PolicyOverride = []
        self._settings_file: str | None = None

    @property
    def telemetries(self) -> dict[str, Telemetry]:
        """What is polled, side jobs included, by name. Devices that come from the settings are here once these are loaded."""
        return self._registry.telemetries

    @property
    def sources(self) -> "dict[str, Source]":
        """What sends readings by itself, by device name."""
        return self._registry.sources

    @property
    def commands(self) -> "dict[str, Command]":
        """The commands, by device name."""
        return self._registry.commands

    @property
    def settings(self) -> Any:
        """The settings, once they are loaded.

        Raises:
            InvalidValue: they are not loaded yet, or there are none.
        """
        found = self._given if self._loaded is None else self._loaded.settings
        if found is None:
            raise InvalidValue("the settings are not loaded yet; they are when the app runs, or after app.load()")
        return found

    @property
    def broker(self) -> Broker:
        """The broker that the app connects to.

        Raises:
            InvalidValue: it depends on settings that are not loaded yet.
        """
        if self._broker is None:
            raise InvalidValue("the broker is not known yet; it is when the app runs, or after app.load()")
        return self._broker

    @property
    def state_name(self) -> str:
        """The name of the state directory: the app's name, followed by the prefix if that differs, so that two
        processes of one app do not write each other's files. ``+`` replaces ``/``, since no prefix contains a
        ``+``."""
        prefix = self.topics.prefix
        return self.name if prefix == self.name else f"{self.name}@{prefix.replace('/', '+')}"

    @property
    def rows(self) -> "tuple[SettingRow, ...]":
        """Every loaded value with its origin. Secrets are masked."""
        return () if self._loaded is None else self._loaded.rows

    def load(self, where: "Where | None" = None) -> None:
        """Read the settings and register the devices that they define. `run` and `serve` call this if it was not
        called before.

        Raises:
            ConfigurationError: settings are wrong, one fault a line; or the broker, the adapters or the devices made
                from them are.
        """
        if self._loaded is not None:
            return
        from leadsman.settings.load import read
        from leadsman.settings.rows import rows_of
        from leadsman.settings.sources import Where, settings_file

        where = where or Where.here()
        loaded = read(self.name, self._model if self._given is None else None, where)
        file = settings_file(where)
        self._settings_file = None if file is None else str(file)
        if self._given is not None:
            loaded = loaded._replace(settings=self._given, rows=(*loaded.rows, *rows_of(self._given, {})))
        self._check(loaded)
        if loaded.settings is not None:
            _fill(self._held, loaded.settings)
        if self._adapters is not None:
            self._slots = managed_adapters(ask_user("adapters", self._adapters, loaded.settings))
        waiting, self._waiting = self._waiting, []
        self._loaded, self.loaded_from = loaded, where
        for registration in waiting:
            self._expand(registration)
        self._catalogue = self._catalogue or self._named(loaded, *self.telemetries.values())
        if self._catalogue is not None:
            for name, telemetry in self.telemetries.items():
                self.telemetries[name] = decided(telemetry, self._catalogue)

    def _check(self, loaded: "Loaded") -> None:
        """Read the broker and the named policies. Raises one `ConfigurationError` for all faults, including those
        of the settings."""
        from leadsman.mqtt.from_settings import broker_of

        faults: list[ConfigurationError] = []
        if loaded.faults:
            faults.append(SettingsError("\n".join(loaded.faults)))
        try:
            if not self._fixed_broker or any(
                key in loaded.broker and loaded.broker[key].flag for key in ("url", "host")
            ):
                self._broker = broker_of(loaded.broker)
        except ConfigurationError as error:
            faults.append(error)
        try:
            self._take_names(loaded.broker)
        except ConfigurationError as error:
            faults.append(error)
        try:
            self._catalogue = self._named(loaded)
        except ConfigurationError as error:
            faults.append(error)
        raise_together(faults)

    def _take_names(self, section: "Mapping[str, Entry]") -> None:
        """Apply the configured prefix and client id. Two processes of one app differ in both."""
        from leadsman.mqtt.from_settings import checked

        if (given := section.get("topic_prefix")) is not None:
            self.topics = Topics(checked(given, check_prefix))
            self.client_id = self.topics.prefix + self._instance
        if (given := section.get("client_id")) is not None:
            self.client_id = checked(given, check_client_id)

    @contextmanager
    def unloaded(self, adapters: Adapters | Callable[[Any], Adapters] | None = None) -> Iterator[None]:
        """Temporarily return the app to its state before the settings were loaded, so that it can be loaded with
        others. At the end of the block the app is as before. For tests: `leadsman.testing.Harness` uses it.

        Args:
            adapters: adapters that replace the app's own; the same forms as for `App`.

        Raises:
            InvalidValue: the app is in such a block already, or an adapter that a handler asks for is missing.
        """
        if self._unloaded or self._stopping is not None:
            raise InvalidValue(f"the app {self.name!r} runs in another Harness; stop that one first")
        before = {name: getattr(self, name) for name in _CHANGED_BY_LOADING}
        self._unloaded = True
        try:
            declared, self._broker, self.topics, self.client_id = self._declared
            self._begin_again(declared if adapters is None else adapters)
            yield
        finally:
            vars(self).update(before)
            self._unloaded = False

    def _begin_again(self, adapters: Adapters | Callable[[Any], Adapters]) -> None:
        self._adapters = adapters if callable(adapters) else None
        self._slots = () if callable(adapters) else managed_adapters(adapters)
        self._registry = Registry()
        self._held, self._catalogue = _held(self._model), None
        self._loaded, self.loaded_from, self.dry_run = None, None, False
        registrations, self._registrations = self._registrations, []
        self._waiting = []
        for registration in registrations:
            self.register(registration)

    def adapter(self, kind: type[A], name: str | None = None) -> A:
        """Return the adapter, or its twin, that handlers get for this type. It exists once the settings are loaded.

        Args:
            kind: the adapter's class.
            name: the adapter's name, where several have this class.

        Raises:
            InvalidValue: no adapter matches, or several do.
        """
        found = [slot.adapter for slot in self._slots if slot.fits(kind) and name in (None, slot.name)]
        if len(found) != 1:
            known = ", ".join(slot.label for slot in self._slots) or "none"
            raise InvalidValue(
                f"the app has {len(found) or 'no'} adapters of the type {kind.__name__}; it has: {known}"
            )
        return cast(A, found[0])

    def rehearse(self, twins: Adapters | Callable[[Any], Adapters] | None = None) -> None:
        """Turn the app into a dry run. A dry run touches nothing real and may run beside the app itself: it uses twins
        (see `use_twins`), publishes below ``dry-run/{prefix}`` without retaining anything, has another client id, and
        keeps no state after its end.

        Args:
            twins: twins that replace the app's own.

        Raises:
            InvalidValue: as for `use_twins`.
        """
        self.use_twins(twins)
        if not self.dry_run:
            self.dry_run = True
            self.topics = Topics(f"{DRY_RUN}/{self.topics.prefix}")
            self.client_id = f"{self.client_id}-{DRY_RUN}"

    def use_twins(self, twins: Adapters | Callable[[Any], Adapters] | None = None) -> None:
        """Replace the adapters by their twins. This loads the settings if they are not loaded yet.

        Args:
            twins: twins that replace the app's own.

        Raises:
            InvalidValue: the app has no twins, or not one for each adapter.
        """
        twins = self._twins if twins is None else twins
        if twins is None:
            raise InvalidValue("the app has no twins; write App(…, twins=lambda settings: (SerialTwin(…),))")
        self.load()
        settings = None if self._loaded is None else self._loaded.settings
        left = list(managed_adapters(ask_user("twins", twins, settings) if callable(twins) else twins))
        for slot in self._slots:
            twin = next((each for each in left if each.name == slot.name and each.fits(type(slot.adapter))), None)
            if twin is None:
                raise InvalidValue(
                    f"twins has none for {slot.label}; it is of its type, and has its name if it has one"
                )
            slot.adapter = twin.adapter
            left.remove(twin)

    def check_installed(self) -> None:
        """Check that the libraries that the adapters need are installed. `run` and `serve` call this before they start.

        Raises:
            NotInstalled: libraries are missing; one a line, with the command that installs it.
        """
        missing: dict[str, None] = {}
        for slot in self._slots:
            try:
                slot.check_installed()
            except NotInstalled as error:
                missing[str(error)] = None
        if missing:
            raise NotInstalled("\n".join(missing))

    def retry_policy(
        self, name: str, policy: Policy, *, priority: int = 0, predicate: "Predicate | bool" = True
    ) -> None:
        """Register a policy under a name. ``policy="…"`` and `execute_with_retry` look it up by this name. Handlers
        without retry options use, for each failure, the named policy with the highest priority whose predicate
        matches. A policy registered here overrides one of the same name in the settings file.

        Raises:
            InvalidValue, InvalidType: an argument is invalid, or the settings are loaded already.
        """
        from leadsman.resilience.catalogue import named_policy  # only apps with names for policies pay for it

        if self._loaded is not None:
            raise InvalidValue(f"policy {name!r}: the settings are loaded; name policies before the app runs")
        self._policies.append(named_policy(name, policy, priority, predicate))

    @contextmanager
    def retrying(self, policy: Policy | str, devices: Sequence[str] | None = None) -> Iterator[None]:
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
        asked = self._policy_of(policy)
        if scope.IN_HANDLER.get():
            if devices is not None:
                raise InvalidValue("retrying: in a handler it governs the failures of its own block; leave devices out")
            with scope.block(asked):
                yield
            return
        for name in devices or ():
            if name not in self.telemetries:
                raise InvalidValue(f"retrying: no device {name!r} is polled; {suggestion(name, self.telemetries)}")
        entry = (None if devices is None else frozenset(devices), asked)
        self._overrides.append(entry)
        try:
            yield
        finally:
            self._overrides.remove(entry)

    def _policy_of(self, policy: Policy | str) -> Policy:
        """The policy with a name, including its predicate."""
        if not isinstance(policy, str):
            return as_policy(policy)
        from leadsman.resilience.catalogue import Catalogue

        catalogue = self._catalogue or Catalogue()
        named = catalogue.named.get(policy)
        return catalogue.policy(policy) if named is None else named.policy.only_when(named.condition)

    def _named(self, loaded: "Loaded", *asking: Telemetry) -> "Catalogue | None":
        """The catalogue of named policies; None where no handler needs one."""
        waiting = any(type(each.guards.policy).__name__ == "Lookup" for each in asking)
        if not (loaded.retry or self._policies or waiting):
            return None
        from leadsman.resilience.catalogue import Catalogue

        catalogue = Catalogue(loaded.retry, loaded.retry_origins)
        for named in self._policies:
            catalogue.add(named)
        return catalogue

    @property
    def idle_reason(self) -> str | None:
        """Why the app has nothing to do, and what to write; None when it has something to do. Valid once the
        settings are loaded."""
        registered: list[Telemetry | Source | Command] = [*self.telemetries.values(), *self.sources.values()]
        registered += self.commands.values()
        if any(each.enabled for each in registered):
            return None
        if registered:
            return "all its devices are disabled; set enabled to true for one of them"
        if not self._registry.without_devices:
            return "it registers nothing; decorate a function with @app.telemetry"
        empty = [row.path for row in self.rows if row.value in ("[]", "{}")]
        if not empty:
            return f"the settings name no device for {', '.join(self._registry.without_devices)}"
        from leadsman.settings.faults import Place, to_write

        place, path = Place(self.name, "leadsman.toml"), tuple(empty[0].split("."))
        named = f"{empty[0]!r} is" if len(empty) == 1 else f"{', '.join(map(repr, empty))} are"
        return f"it has no device, as {named} empty; {to_write(place, self._model, path)}"

    def register(self, registration: Registration) -> None:
        """Add one registration. If its names come from the settings, it is kept until they are loaded."""
        if self._stopping is not None:
            raise InvalidValue(
                f"{registration.kind} {registration.names!r}: the app is running; register before it starts"
            )
        if callable(registration.names) and self._model is None:
            raise InvalidValue(f"{registration.kind}: its names come of settings; write App(…, settings=Settings)")
        if self._loaded is None and (callable(registration.names) or self._adapters is not None):
            self._waiting.append(registration)
        else:
            self._expand(registration)
        self._registrations.append(registration)

    def on_wedged_adapter(self, hook: "LastResort") -> "LastResort":
        """Register the decorated ``async def (adapter: str, failures: int)`` as the last step of adapter recovery.
        It is called when closing, resetting and reopening an adapter did not help. It may cut the power of a USB
        port, or restart a service."""
        if not is_async(hook):
            raise InvalidType(
                f"the last resort {name_of(hook)} is no 'async def'; write one that takes adapter and failures"
            )
        self._last_resort = hook
        return hook

    def run(
        self,
        *,
        log_level: str | None = None,
        log_format: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run until SIGINT or SIGTERM, then end the process within two seconds. See `leadsman.process`.

        Args:
            log_level: None takes ``$LOG_LEVEL``, else INFO.
            log_format: ``text``, ``json`` or ``journal``; None takes ``$LOG_FORMAT``, else the format that suits
                stderr.
            environment: as for `serve`.
        """
        if _only_looked_at.get():
            return
        from leadsman.process import run  # signals and logging are not for programs that embed an app

        serve = functools.partial(self.serve, environment=environment)
        run(self.name, self._load_all, serve, self.stop, (log_level, log_format))

    def _load_all(self) -> None:
        """Load the settings and the modules of `serve`. On a small machine this takes seconds, which would block
        the loop."""
        from importlib import import_module

        self.load()
        for module in ("leadsman.wiring.run", "leadsman.mqtt.client"):
            import_module(module)

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
        from leadsman.wiring.run import serve  # a registration that is only looked at does not pay for it

        self.load()
        if self.dry_run:
            logger.warning("DRY RUN: twins instead of hardware, topics below %s, nothing retained", self.topics.prefix)
        self.check_installed()
        if (idle := self.idle_reason) is not None:
            logger.warning("%s does nothing: %s", self.name, idle)
        self._stopping = asyncio.Event()
        try:
            with self._variables(environment) as variables:
                return await serve(self._plan(variables), self._connecting(connect), self._stopping)
        finally:
            self._stopping.set()  # also on cancellation
            self._stopping = None

    @contextmanager
    def _variables(self, given: Mapping[str, str] | None) -> Iterator[Mapping[str, str]]:
        if given is not None or not self.dry_run:
            yield os.environ if given is None else given
            return
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix=f"{self.name}-{DRY_RUN}-", ignore_cleanup_errors=True) as directory:
            yield {"STATE_DIRECTORY": directory}

    def _connecting(self, given: Connector | None) -> Connector:
        connect = given or self._real_connect()
        if not self.dry_run:
            return connect
        from leadsman.mqtt.unretained import unretained

        return unretained(connect)

    def trace(self, handler: str | None = None, since: datetime | None = None) -> "list[TraceRow]":
        """The latest rows of the trace, of the running app or of its last run; see `leadsman.monitoring.trace`.

        Args:
            handler: return only rows of this device.
            since: return only rows from this time on; an aware datetime.
        """
        if self._trace is None:
            return []
        handlers = None if handler is None else frozenset((handler,))
        return self._trace.rows(handlers, 0.0 if since is None else since.timestamp())

    def _traced(self, trace: "Trace") -> None:
        self._trace = trace

    def _plan(self, environment: Mapping[str, str]) -> "Plan":
        from leadsman.wiring.plan import Plan

        return Plan(
            name=self.name,
            version=self.version,
            leadsman=__version__,
            topics=self.topics,
            client_id=self.client_id,
            state_name=self.state_name,
            broker=self.broker,
            variables=environment,
            dry_run=self.dry_run,
            heartbeat=self._heartbeat,
            adapters=self._slots,
            telemetries=tuple(self.telemetries.values()),
            sources=tuple(self.sources.values()),
            commands=tuple(self.commands.values()),
            lifespan=None if self._lifespan is None else functools.partial(self._lifespan, self),
            last_resort=self._last_resort,
            on_trace=self._traced,
            keep_state=self._keep_state,
            overrides=self._overrides,
            catalogue=self._catalogue,
            settings_file=self._settings_file,
        )

    def _real_connect(self) -> Connector:
        from leadsman.mqtt import client  # as in serve

        if self.broker.tls.insecure:
            logger.warning(
                "Certificates of %s are not verified: whoever sits in between can read and write", self.broker
            )
        return functools.partial(client.connect, self.broker, system_clock(asyncio.get_running_loop()))

    def _expand(self, registration: Registration) -> None:
        settings = None if self._loaded is None else self._loaded.settings
        offers: list[Dependency] = [*self._slots, *self._held]
        self._registry.add(registration, settings, offers, None if self._loaded is None else self._decide)

    def _decide(self, telemetry: Telemetry) -> Telemetry:
        """The telemetry with the policy that it names."""
        assert self._loaded is not None  # asked by `_expand`
        self._catalogue = self._catalogue or self._named(self._loaded, telemetry)
        return telemetry if self._catalogue is None else decided(telemetry, self._catalogue)


_only_looked_at: ContextVar[bool] = ContextVar("leadsman_only_looked_at", default=False)


@contextmanager
def only_looked_at() -> Iterator[None]:
    """In this block `App.run` does nothing, so that the command line can import a module that ends with
    ``app.run()``."""
    token = _only_looked_at.set(True)
    try:
        yield
    finally:
        _only_looked_at.reset(token)


def _settings(given: Any) -> "tuple[type[BaseModel] | None, BaseModel | None]":
    if given is None:
        return None, None
    model = given if isinstance(given, type) else type(given)
    if not hasattr(model, "model_fields"):
        raise InvalidType(f"settings is {given!r}; write a pydantic model: class Settings(BaseModel): …")
    return model, None if isinstance(given, type) else given


def _held(model: Any) -> tuple[Provided, ...]:
    """The settings objects that handlers can ask for: the whole model, and each section whose type occurs once."""
    if model is None:
        return ()
    kinds = [field.annotation for field in model.model_fields.values() if hasattr(field.annotation, "model_fields")]
    return tuple(Provided(kind) for kind in (model, *(kind for kind in kinds if kinds.count(kind) == 1)))


def _fill(held: Sequence[Provided], settings: Any) -> None:
    for each in held:
        parts = (settings, *(getattr(settings, name) for name in type(settings).model_fields))
        each.value = next(part for part in parts if each.fits(type(part)))


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"{what} is {value!r}; write text")
    return value
