"""The decorators of `App` and `Router`, and the registrations that they record.

One registration may define many devices: its name is then a mapping of names, or a function that makes one from the
app's settings. Each of these devices has its own publish rule, breaker, counters and health record.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from leadsman.core.registration.declaration import Options
from leadsman.core.registration.injection import Handler
from leadsman.core.registration.telemetry import TelemetryOptions
from leadsman.errors import InvalidType

if TYPE_CHECKING:
    from leadsman.core.registration.command import CommandOptions
    from leadsman.core.registration.event import EventOptions
    from leadsman.core.registration.source import SourceOptions
    from leadsman.core.registration.subscription import SubscriptionOptions

H = TypeVar("H", bound=Handler)


class Device:
    """One of many devices that a handler serves. It has settings of its own, which the handler asks for by type, and
    options that override those of the decorator.

    One mapping of devices may be used with several decorators. `App.command` ignores options that only apply to
    reading, such as ``interval``.

    Args:
        settings: the settings of this device; an object of any class of your own.
        adapter: the name of the adapter that it uses, where the app has several of one type. Its handlers ask for the
            type alone. None: there is one, or the handlers name it.
        options: options as the decorator takes them.
    """

    __slots__ = ("adapter", "options", "settings")

    def __init__(self, settings: object = None, *, adapter: str | None = None, **options: object) -> None:
        self.settings = settings
        self.adapter = adapter
        self.options: Options = options

    def options_of(self, kind: str) -> Options:
        """The options that apply to a decorator of this `kind`. For a command, those that only apply to reading are
        left out."""
        if kind != "command":
            return self.options
        from leadsman.core.registration.command import CommandOptions  # only apps with commands need them
        from leadsman.core.registration.event import EventOptions
        from leadsman.core.registration.source import SourceOptions

        reading = {name for each in (TelemetryOptions, SourceOptions, EventOptions) for name in each.__annotations__}
        left_out = reading - CommandOptions.__annotations__.keys()
        return {option: value for option, value in self.options.items() if option not in left_out}


_PLAIN = Device()
"""A device without settings or options of its own."""
Many = Mapping[str, object] | Iterable[str]
Names = str | Many | Callable[[Any], Many] | None
"""A name; or several names, each of which may be mapped to a `Device` or to its settings; or a function that makes
such names from the app's settings. None is the root device, whose topics have no level for the device."""


class Registration(NamedTuple):
    """One recorded call of a decorator. `kind` is ``telemetry``, ``source``, ``event``, ``command``, ``periodic`` or
    ``subscription``, whose names are topic filters."""

    kind: str
    names: Names
    handler: Handler
    options: Options


class Registrar:
    """The registration methods that `App` and `Router` share: each as a decorator and as a plain method."""

    def register(self, registration: Registration) -> None:
        """Add one registration. Raises `ConfigurationError` if it is wrong and that can be seen already."""
        raise NotImplementedError

    def telemetry(self, name: Names, **options: Unpack[TelemetryOptions]) -> Callable[[H], H]:
        """Register the decorated function to be polled. Its result is published at ``{prefix}/{name}/state``.

        The options and their defaults are those of `TelemetryOptions`. The function is ``async def``, or a plain
        ``def``, which runs in a thread. Its parameters are filled by type with the app's adapters and settings, the
        device's own settings and its `Context`. It returns a dict, a pydantic model or a dataclass, or one value if it
        is annotated so, or None if there is nothing to publish.

        With None as its name it is the root device, of which an app has one at most: it publishes at
        ``{prefix}/state``, and everywhere else it has the name of the app.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("telemetry", name, options)

    def add_telemetry(self, name: Names, handler: Handler, **options: Unpack[TelemetryOptions]) -> None:
        """Register a handler, as `telemetry` does."""
        self.register(Registration("telemetry", name, handler, options))

    def source(self, name: Names, **options: "Unpack[SourceOptions]") -> Callable[[H], H]:
        """Register the decorated async generator. Each reading that it yields is published at
        ``{prefix}/{name}/state``.

        The generator is restarted when it ends, fails or falls silent. The options are those of `SourceOptions`.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("source", name, options)

    def add_source(self, name: Names, handler: Handler, **options: "Unpack[SourceOptions]") -> None:
        """Register a generator, as `source` does."""
        self.register(Registration("source", name, handler, options))

    def event(self, name: Names, **options: "Unpack[EventOptions]") -> Callable[[H], H]:
        """Register the decorated async generator, which yields an event when something happens: a press of a button, a
        door that opens, another tariff. Each is published at ``{prefix}/{name}/state``, not retained, and dropped if it
        did not arrive in time. The device is never stale. The options are those of `EventOptions`.

        The events are what the generator is annotated to yield: ``AsyncIterator[Literal["press", "release"]]``, or
        models with such a field ``event_type``. None only shows that the device is there.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("event", name, options)

    def add_event(self, name: Names, handler: Handler, **options: "Unpack[EventOptions]") -> None:
        """Register an event, as `event` does."""
        self.register(Registration("event", name, handler, options))

    def command(self, name: Names, **options: "Unpack[CommandOptions]") -> Callable[[H], H]:
        """Register the decorated function to be called, once, for every message at ``{prefix}/{name}/set``.

        The one parameter that no dependency fills gets the payload, converted to its annotated type. The function's
        result is published as the device's state. The result of the command is published at
        ``{prefix}/{name}/set/result``. The options are those of `CommandOptions`.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("command", name, options)

    def add_command(self, name: Names, handler: Handler, **options: "Unpack[CommandOptions]") -> None:
        """Register a command, as `command` does."""
        self.register(Registration("command", name, handler, options))

    def periodic(self, name: Names, **options: Unpack[TelemetryOptions]) -> Callable[[H], H]:
        """Register the decorated function as a side job: it is polled like a device, but publishes nothing.

        The options are those of `TelemetryOptions`, except those about topics.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """
        return self._decorator("periodic", name, options)

    def add_periodic(self, name: Names, handler: Handler, **options: Unpack[TelemetryOptions]) -> None:
        """Register a side job, as `periodic` does."""
        self.register(Registration("periodic", name, handler, options))

    def subscribe(self, topic_filter: Names, **options: "Unpack[SubscriptionOptions]") -> Callable[[H], H]:
        """Register the decorated function to be called for the messages of other programs at the topics that match,
        such as ``zigbee2mqtt/+/battery``. Several filters may be given as a list, or by a function of the settings.

        The one parameter that no dependency fills gets the payload, converted to its annotated type. A parameter of
        the type `Received` gets the whole message, with its topic and its flag ``retain``. What the function returns is
        published as a reading of the device that ``device`` names, if there is one. The options are those of
        `SubscriptionOptions`.

        Raises:
            ConfigurationError: at once, or when the settings are loaded: a filter is wrong, overlaps with another one,
                or covers the app's own topics.
        """
        return self._decorator("subscription", topic_filter, options)

    def add_subscription(self, topic_filter: Names, handler: Handler, **options: "Unpack[SubscriptionOptions]") -> None:
        """Register a handler of messages, as `subscribe` does."""
        self.register(Registration("subscription", topic_filter, handler, options))

    def include(self, router: "Router", prefix: str | None = None) -> None:
        """Add all registrations of a router. `prefix` and ``_`` are put before its names. A router may be included
        again with another prefix."""
        if not isinstance(router, Router):
            raise InvalidType(f"include takes a Router, not {router!r}")
        for registration in router.registrations:
            self.register(registration if prefix is None else _under(prefix, registration))

    def _decorator(self, kind: str, names: Names, options: Options) -> Callable[[H], H]:
        if _is_handler(names, options):  # the decorator without brackets, which would register nothing
            example = ", interval='60s'" if kind in ("telemetry", "periodic") else ""
            if kind == "subscription":
                raise InvalidType("subscribe takes a topic filter; write @app.subscribe('zigbee2mqtt/+/battery')")
            raise InvalidType(f"{kind} takes a name; write @app.{kind}('kitchen'{example})")

        def decorate(handler: H) -> H:
            self.register(Registration(kind, names, handler, options))
            return handler

        return decorate


class Router(Registrar):
    """Records registrations for an app that includes it. Use routers to split an app into several modules.

    Args:
        prefix: put before the names of its devices, with ``_`` in between.
    """

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = prefix
        self.registrations: list[Registration] = []
        """The recorded registrations."""

    def register(self, registration: Registration) -> None:
        """Record one."""
        if self.prefix is not None:
            registration = _under(self.prefix, registration)
        self.registrations.append(registration)


def devices_of(names: object) -> list[tuple[object, Device]]:
    """The devices that names stand for, after a function of the settings was called.

    Raises:
        InvalidType: the value is neither a name nor a mapping of names.
    """
    if isinstance(names, str):
        return [(names, _PLAIN)]
    if isinstance(names, Mapping):
        return [(name, each if isinstance(each, Device) else Device(each)) for name, each in names.items()]
    if isinstance(names, list | tuple | set | frozenset):
        return [(name, _PLAIN) for name in names]
    raise InvalidType(
        f"the device name is {names!r}; write text, a list of names, or a dict of names with their settings"
    )


def _under(prefix: str, registration: Registration) -> Registration:
    """The registration with the prefix before its names; topics of other programs stay as they are."""
    if registration.kind == "subscription":
        return registration
    if registration.names is None:
        raise InvalidType(
            f"{registration.kind}: a device of a router with a prefix needs a name; the root device is the app's"
        )
    return registration._replace(names=_prefix(prefix, registration.names))


def _prefix(prefix: str, names: "str | Many | Callable[[Any], Many]") -> Names:
    if isinstance(names, str):
        return f"{prefix}_{names}"
    if isinstance(names, Mapping):
        return {f"{prefix}_{name}": each for name, each in names.items()}
    if callable(names):
        return lambda settings: {f"{prefix}_{name}": each for name, each in devices_of(names(settings))}
    return [f"{prefix}_{name}" for name in names]


def _is_handler(names: Any, options: Options) -> bool:
    """Whether a decorator was used without brackets, so that it got the handler and not a function that makes names
    from settings."""
    if options or not callable(names):
        return False
    if not inspect.isfunction(names) or inspect.iscoroutinefunction(names) or inspect.isasyncgenfunction(names):
        return True
    parameters = list(inspect.signature(names).parameters.values())
    asked = parameters[0].annotation if len(parameters) == 1 else None
    may_be_settings = asked is inspect.Parameter.empty or isinstance(asked, str) or hasattr(asked, "model_fields")
    return len(parameters) != 1 or not may_be_settings
