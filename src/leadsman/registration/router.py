"""The decorators, for apps and routers alike, and what they record.

A name may stand for many devices: a mapping of names, or a function that makes one of the app's settings. Each device
of it has its own publish rule, breaker, counters and health.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from leadsman.errors import InvalidType
from leadsman.registration.injection import Handler
from leadsman.registration.telemetry import TelemetryOptions

if TYPE_CHECKING:
    from leadsman.registration.command import CommandOptions
    from leadsman.registration.source import SourceOptions

H = TypeVar("H", bound=Handler)


class Device:
    """One of many devices that a handler serves: its own settings, which the handler asks for by their type, and options
    that differ from those of the decorator.

    One list of devices may serve several decorators. `App.command` leaves options that only reading has, such as ``interval``,
    to the decorator that reads the device.

    Args:
        settings: of this device; any object of a class of its own.
        options: the options, as the decorator takes them.
    """

    __slots__ = ("options", "settings")

    def __init__(self, settings: Any = None, **options: Any) -> None:
        self.settings = settings
        self.options: Mapping[str, Any] = options

    def options_of(self, kind: str) -> Mapping[str, Any]:
        """Those that are for a decorator of this `kind`; for a command, without those that only reading has."""
        if kind != "command":
            return self.options
        from leadsman.registration.command import CommandOptions  # only apps with commands pay for it
        from leadsman.registration.source import SourceOptions

        reading = TelemetryOptions.__annotations__.keys() | SourceOptions.__annotations__.keys()
        left_out = reading - CommandOptions.__annotations__.keys()
        return {option: value for option, value in self.options.items() if option not in left_out}


Many = Mapping[str, Any] | Iterable[str]
Names = str | Many | Callable[[Any], Many]
"""A name; or names, each with a `Device` or its settings if it has any; or a function that makes such of the app's settings."""


class Registration(NamedTuple):
    """What a decorator was told. `kind` is ``telemetry``, ``source``, ``command`` or ``periodic``."""

    kind: str
    names: Names
    handler: Handler
    options: Mapping[str, Any]


class Registrar:
    """What an `App` and a `Router` have in common: the decorators, and the same as methods."""

    def register(self, registration: Registration) -> None:
        """Take one; raises `ConfigurationError` when it is wrong and that can be seen already."""
        raise NotImplementedError

    def telemetry(self, name: Names, **options: Unpack[TelemetryOptions]) -> Callable[[H], H]:
        """Register the decorated function to be polled; its result is published at ``{prefix}/{name}/state``.

        The options and their defaults are those of `leadsman.registration.telemetry.TelemetryOptions`. The function is ``async def``, or plain
        ``def`` and then runs in a thread; its parameters are filled by their types with the app's adapters and
        settings, the device's own settings and its `Context`. It returns a dict, a pydantic model or a dataclass, or
        None when there is nothing to tell.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("telemetry", name, options)

    def add_telemetry(self, name: Names, handler: Handler, **options: Unpack[TelemetryOptions]) -> None:
        """Register a handler, as `telemetry` does."""
        self.register(Registration("telemetry", name, handler, options))

    def source(self, name: Names, **options: "Unpack[SourceOptions]") -> Callable[[H], H]:
        """Register the decorated async generator; every reading that it yields is published at ``{prefix}/{name}/state``.

        It is started again when it ends, fails or falls silent. The options are those of `leadsman.registration.source.SourceWords`.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("source", name, options)

    def add_source(self, name: Names, handler: Handler, **options: "Unpack[SourceOptions]") -> None:
        """Register a generator, as `source` does."""
        self.register(Registration("source", name, handler, options))

    def command(self, name: Names, **options: "Unpack[CommandOptions]") -> Callable[[H], H]:
        """Register the decorated function to be called, once, for every message at ``{prefix}/{name}/set``.

        The parameter that nothing else fills gets the payload, as its annotation says. What the function returns is
        published as the device's state; what became of the command is told at ``{prefix}/{name}/set/result``. The options
        are those of `leadsman.registration.command.CommandWords`.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("command", name, options)

    def add_command(self, name: Names, handler: Handler, **options: "Unpack[CommandOptions]") -> None:
        """Register a command, as `command` does."""
        self.register(Registration("command", name, handler, options))

    def periodic(self, name: Names, **options: Unpack[TelemetryOptions]) -> Callable[[H], H]:
        """Register the decorated function as a side job: polled like a device, but it publishes nothing.

        The options are those of `leadsman.registration.telemetry.TelemetryOptions`, but for those about topics.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("periodic", name, options)

    def add_periodic(self, name: Names, handler: Handler, **options: Unpack[TelemetryOptions]) -> None:
        """Register a side job, as `periodic` does."""
        self.register(Registration("periodic", name, handler, options))

    def include(self, router: "Router", prefix: str | None = None) -> None:
        """Take all that a router recorded; `prefix` and ``_`` go before its names. May be done again with another prefix."""
        if not isinstance(router, Router):
            raise InvalidType(f"include takes a Router, not {router!r}")
        for registration in router.registrations:
            names = registration.names if prefix is None else _prefixed(prefix, registration.names)
            self.register(registration._replace(names=names))

    def _decorator(self, kind: str, names: Names, options: Mapping[str, Any]) -> Callable[[H], H]:
        if _is_handler(names, options):  # the decorator without brackets, which would register nothing
            example = ", interval='60s'" if kind in ("telemetry", "periodic") else ""
            raise InvalidType(f"{kind} takes a name; write @app.{kind}('kitchen'{example})")

        def decorate(handler: H) -> H:
            self.register(Registration(kind, names, handler, options))
            return handler

        return decorate


class Router(Registrar):
    """Records registrations for an app that includes it: for an app in several modules.

    Args:
        prefix: goes before the names of its devices, with ``_`` in between.
    """

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = prefix
        self.registrations: list[Registration] = []
        """What was recorded."""

    def register(self, registration: Registration) -> None:
        """Record one."""
        if self.prefix is not None:
            registration = registration._replace(names=_prefixed(self.prefix, registration.names))
        self.registrations.append(registration)


def expanded(names: Any) -> list[tuple[Any, Device]]:
    """The devices that names stand for, once no function of the settings hides them.

    Raises:
        InvalidType: they are neither names nor a mapping of names.
    """
    if isinstance(names, str):
        return [(names, Device())]
    if isinstance(names, Mapping):
        return [(name, each if isinstance(each, Device) else Device(each)) for name, each in names.items()]
    if isinstance(names, list | tuple | set | frozenset):
        return [(name, Device()) for name in names]
    raise InvalidType(
        f"the device name is {names!r}; write text, a list of names, or a dict of names with their settings"
    )


def _prefixed(prefix: str, names: Names) -> Names:
    if isinstance(names, str):
        return f"{prefix}_{names}"
    if isinstance(names, Mapping):
        return {f"{prefix}_{name}": each for name, each in names.items()}
    if callable(names):
        return lambda settings: {f"{prefix}_{name}": each for name, each in expanded(names(settings))}
    return [f"{prefix}_{name}" for name in names]


def _is_handler(names: Any, options: Mapping[str, Any]) -> bool:
    """Whether a decorator without brackets was given the handler itself, not a function that makes names of settings."""
    if options or not callable(names):
        return False
    if not inspect.isfunction(names) or inspect.iscoroutinefunction(names) or inspect.isasyncgenfunction(names):
        return True
    parameters = list(inspect.signature(names).parameters.values())
    asked = parameters[0].annotation if len(parameters) == 1 else None
    may_be_settings = asked is inspect.Parameter.empty or isinstance(asked, str) or hasattr(asked, "model_fields")
    return len(parameters) != 1 or not may_be_settings
