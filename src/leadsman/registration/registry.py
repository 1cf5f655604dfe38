"""The registry of an app: its telemetry, sources and commands, each by its name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leadsman.errors import ConfigurationError, InvalidValue
from leadsman.registration.injection import ContextDependency, Dependency, Handler, Provided, name_of, place_of
from leadsman.registration.router import Device, Registration, devices_of
from leadsman.registration.telemetry import Telemetry, register
from leadsman.text import describe

if TYPE_CHECKING:
    from leadsman.registration.command import Command, CommandOptions
    from leadsman.registration.source import Source, SourceOptions
    from leadsman.resilience.environment import GuardSpec

T = TypeVar("T")

Decide = Callable[[Telemetry], Telemetry]
"""Puts the policy in place that a telemetry names, once the settings are loaded."""


class Registry:
    """Registrations by kind and name. Every device has a name of its own; a command may have that of the device it is
    for."""

    def __init__(self) -> None:
        self.telemetries: dict[str, Telemetry] = {}
        """Everything that is polled, by name; side jobs are included."""
        self.sources: dict[str, Source] = {}
        """The sources, by device name."""
        self.commands: dict[str, Command] = {}
        """The commands, by device name."""
        self._guards: GuardSpec | None = None
        """Those of the telemetry that was registered last."""
        self.without_devices: list[str] = []
        """Handlers whose names come from the settings, which name none."""

    @property
    def everything(self) -> "list[Telemetry | Source | Command]":
        """All registrations."""
        return [*self.telemetries.values(), *self.sources.values(), *self.commands.values()]

    def add(
        self, registration: Registration, settings: object, available: Sequence[Dependency], decide: Decide | None
    ) -> None:
        """Register a handler under each of its names.

        Args:
            registration: one call of a decorator.
            settings: those of the app, for names that come from them; None where there are none, or none yet.
            available: what the handler may ask for, beside its context.
            decide: puts policies in place; None while the settings are not loaded.

        Raises:
            ConfigurationError: an option or a name is wrong. Once the settings are loaded, it says where the handler
                is.
        """
        names = registration.names
        if callable(names):
            names = ask_user(f"the names of {name_of(registration.handler)}", names, settings)
            if not names:
                self.without_devices.append(name_of(registration.handler))
        try:
            for name, device in devices_of(names):
                self._add(registration, name, device, available, decide)
        except ConfigurationError as error:
            where = place_of(registration.handler)
            if decide is None or not where:  # before, the line of the decorator is in the traceback
                raise
            raise type(error)(f"{error} ({where})") from None

    def _add(
        self,
        registration: Registration,
        name: object,
        device: Device,
        given: Sequence[Dependency],
        decide: Decide | None,
    ) -> None:
        kind, handler = registration.kind, registration.handler
        options: Any = {**registration.options, **device.options_of(kind)}
        own = [] if device.settings is None else [Provided(type(device.settings), device.settings)]
        available = [*own, *given, ContextDependency()]  # each name has a context of its own
        if kind == "command":
            self._add_command(name, handler, options, available)
        elif kind == "source":
            self._add_source(name, handler, options, available)
        else:
            self._add_telemetry(register(name, handler, options, available, job=kind == "periodic"), kind, decide)

    def _add_command(
        self, name: object, handler: Handler, options: "CommandOptions", available: Sequence[Dependency]
    ) -> None:
        from leadsman.registration.command import register_command  # only apps with commands pay for it

        command = register_command(name, handler, options, available)
        polled = self.telemetries.get(command.name)
        _check_free(command.name, "command", self.commands, self.telemetries if polled and polled.job else {})
        self.commands[command.name] = command

    def _add_source(
        self, name: object, handler: Handler, options: "SourceOptions", available: Sequence[Dependency]
    ) -> None:
        from leadsman.registration.source import register_source  # only apps with sources pay for it

        source = register_source(name, handler, options, available)
        self._check_shared(source.guards)
        _check_free(source.name, "source", self.telemetries, self.sources)
        self.sources[source.name] = source

    def _add_telemetry(self, telemetry: Telemetry, kind: str, decide: Decide | None) -> None:
        self._check_shared(telemetry.guards)
        telemetry = telemetry if decide is None else decide(telemetry)
        _check_free(telemetry.name, kind, self.telemetries, self.sources, self.commands if telemetry.job else {})
        if telemetry.guards == self._guards:  # the devices of a loop share one value
            telemetry = telemetry._replace(guards=self._guards)
        self._guards = telemetry.guards
        self.telemetries[telemetry.name] = telemetry

    def _check_shared(self, guards: "GuardSpec") -> None:
        """Check that handlers that share a circuit specify it identically."""
        shared = None if guards.breaker is None else guards.breaker.shared
        for name, each in (self.telemetries | self.sources).items() if shared is not None else ():
            other = each.guards.breaker
            if other is not None and other.shared == shared and other != guards.breaker:
                raise InvalidValue(
                    f"circuit_breaker shared={shared!r} differs from that of {name!r}; write one, and use it twice"
                )


def ask_user(what: str, function: Callable[[Any], T], settings: object) -> T:
    """Call a function of the user with the settings. Raises `InvalidValue` for whatever it raises, with the line."""
    try:
        return function(settings)
    except ConfigurationError:
        raise
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        code = trace.tb_frame.f_code if trace is not None else function.__code__
        where = f"{Path(code.co_filename).name} line {trace.tb_lineno if trace is not None else code.co_firstlineno}"
        raise InvalidValue(f"{what}: {where}: {type(error).__name__}: {describe(error)}") from error


def _check_free(name: str, kind: str, *taken: Mapping[str, object]) -> None:
    if any(name in each for each in taken):
        raise InvalidValue(f"{kind} {name!r} is already registered; give every device its own name")
