"""The registry of an app: its telemetry, sources and commands, each by its name."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leadsman.core.adapters.managed import ManagedAdapter, declared_errors
from leadsman.core.mqtt.topics import check_name, filters_overlap
from leadsman.core.registration.annotation import alike
from leadsman.core.registration.declaration import NONE, Option, Options
from leadsman.core.registration.injection import (
    ContextDependency,
    Dependency,
    Handler,
    Provided,
    name_of,
    needs_of,
    place_of,
)
from leadsman.core.registration.reading_type import payload_names, reading_type
from leadsman.core.registration.router import Device, Registration, devices_of
from leadsman.core.registration.telemetry import Telemetry, register_telemetry
from leadsman.core.text import clean, describe
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, labelled, raise_together

if TYPE_CHECKING:
    from leadsman.core.extension_tools import Topic
    from leadsman.core.readings.buffer import Buffer
    from leadsman.core.registration.command import Command, CommandOptions
    from leadsman.core.registration.device_settings import DeviceSettings
    from leadsman.core.registration.source import Source, SourceOptions
    from leadsman.core.registration.subscription import Subscription, SubscriptionOptions
    from leadsman.core.resilience.environment import GuardSpec

T = TypeVar("T")

Decide = Callable[[Telemetry], Telemetry]
"""Puts the policy in place that a telemetry names, once the settings are loaded."""


class TelemetryTemplate(NamedTuple):
    """All that a telemetry is made of, except its name and what its handler may ask for."""

    kind: str
    handler: Handler
    options: Any
    decide: Decide | None

    def is_like(self, other: "TelemetryTemplate") -> bool:
        """Whether a telemetry that is made of this, which is `kept`, would be the same as one made of `other`, but for
        its handler. Options are the same if their types are too: a retry of True is a mistake, and equals 1."""
        if self.kind != other.kind or self.decide != other.decide or self.options.keys() != other.options.keys():
            return False
        for value, others in zip(self.options.values(), map(other.options.get, self.options), strict=True):
            if not _is_same(value, others):
                return False
        return self.handler == other.handler or (not self._is_alone and self.handler is alike(other.handler))

    def kept(self) -> "TelemetryTemplate":
        """The same, to compare others with it: with the first handler that is like its own, and options that stay."""
        handler = self.handler if self._is_alone else alike(self.handler)
        return self._replace(handler=handler, options=_snapshot(self.options))

    @property
    def _is_alone(self) -> bool:
        """Whether no other handler does for its own: of a request, the default of the parameter is the payload's."""
        return "request" in self.options


def _snapshot(value: Any) -> Any:
    """A value of an option that stays as it is when the code changes its own: its lists, dicts and sets are copies."""
    if type(value) is dict:
        return {key: _snapshot(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_snapshot, value))
    return set(value) if type(value) is set else value


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values of an option are the same, with all that is in them, in the same order."""
    if type(value) is not type(other):
        return False
    if type(value) is dict:
        return _is_same([*value.items()], [*other.items()])
    if type(value) in (list, tuple):
        return len(value) == len(other) and all(map(_is_same, value, other))
    return value is other or bool(value == other)


class Registry:
    """Registrations by kind and name. Every device has a name of its own; a command may have that of the device it is
    for.

    Args:
        app: the name of the app, which is also that of its root device.
        device_settings: the settings of single devices; None: there are none.
        further: the options that extensions add, by the kind of the decorator.
    """

    def __init__(
        self,
        app: str,
        device_settings: "DeviceSettings | None" = None,
        further: Mapping[str, Mapping[str, Option]] = MappingProxyType({}),
    ) -> None:
        self.device_settings = device_settings
        self._further = further
        self.root: str | None = None
        """The name of the root device; None if there is none."""
        self._app = app
        self.telemetries: dict[str, Telemetry] = {}
        """Everything that is polled, by name; side jobs are included."""
        self.sources: dict[str, Source] = {}
        """The sources, by device name."""
        self.commands: dict[str, Command] = {}
        """The commands, by device name."""
        self.subscriptions: dict[str, Subscription] = {}
        """The handlers of messages of other programs, by topic filter."""
        self._fed: dict[str, tuple[Handler, Buffer[object]]] = {}
        """The devices that subscriptions feed, with their handlers."""
        self._last: tuple[TelemetryTemplate, Telemetry] | None = None
        """The telemetry that was registered last."""
        self.without_devices: list[str] = []
        """Handlers whose names come from the settings, which name none."""

    @property
    def everything(self) -> "list[Telemetry | Source | Command]":
        """All registrations."""
        return [*self.telemetries.values(), *self.sources.values(), *self.commands.values()]

    @property
    def devices(self) -> list[str]:
        """The names of the devices that are enabled: all that have topics."""
        jobs = {name for name, each in self.telemetries.items() if each.job}
        return [*dict.fromkeys(each.name for each in self.everything if each.enabled and each.name not in jobs)]

    @property
    def names(self) -> list[str]:
        """The names of all devices and side jobs, enabled or not."""
        return [*dict.fromkeys((*self.telemetries, *self.sources, *self.commands))]

    @property
    def finds(self) -> bool:
        """Whether a handler finds devices while the app runs."""
        polled, pushed = self.telemetries.values(), self.sources.values()
        return any(each.finds is not None for each in polled) or any(each.finds is not None for each in pushed)

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
            ConfigurationError: an option or a name is wrong. Once the settings are loaded, the message names the place
                of the handler.
        """
        names = registration.names
        if callable(names):
            names = ask_user(f"the names of {name_of(registration.handler)}", names, settings)
            if not names:
                self.without_devices.append(name_of(registration.handler))
        try:
            if names is None:
                names = self._root_of(registration.kind)
            for name, device in devices_of(names):
                self._add(registration, name, device, available, decide)
        except ConfigurationError as error:
            where = place_of(registration.handler)
            if decide is None or not where:  # before, the line of the decorator is in the traceback
                raise
            raise type(error)(f"{error} ({where})") from None

    def check_fields(self) -> None:
        """See that each field exists for which something is set. A pattern of the settings passes over the devices that
        do not have it, if one does, or if one that has it may be found while the app runs.

        Raises:
            ConfigurationError: one fault a line.
        """
        faults: list[ConfigurationError] = []
        passed: dict[tuple[str, str], ConfigurationError] = {}
        found: set[tuple[str, str]] = set()
        for name in self.names:
            kinds: tuple[Mapping[str, Telemetry | Source | Command], ...]
            kinds = self.telemetries, self.sources, self.commands
            of_device = [kind[name] for kind in kinds if name in kind]
            for field in dict.fromkeys(field for each in of_device for field in each.fields):
                error = unknown_field(field, of_device)
                entries = () if self.device_settings is None else self.device_settings.of_fields.get((name, field), ())
                if error is not None and not entries:
                    faults.append(InvalidValue(f"device {name!r}: {error}"))
                for entry in entries:
                    from leadsman.core.settings.devices import is_pattern  # most apps have no settings of devices

                    section = entry.path[1]
                    if error is None or (self.finds and is_pattern(section)):
                        found.add((section, field))
                    else:
                        passed.setdefault((section, field), entry.fault(error))
        raise_together([*faults, *(fault for key, fault in passed.items() if key not in found)])

    def _root_of(self, kind: str) -> str:
        """The name of the root device, for a registration without a name. Raises `InvalidValue`."""
        if kind not in ("telemetry", "source", "event", "command"):
            what = "a side job has no topics" if kind == "periodic" else "a subscription has a topic filter"
            raise InvalidValue(f"{kind}: {what}; write its name instead of None")
        name, taken = self._app, self.commands if kind == "command" else {**self.telemetries, **self.sources}
        if self.root is None and any(name in each for each in (self.telemetries, self.sources, self.commands)):
            raise InvalidValue(
                f"{kind}: the root device has the name of the app, {name!r}, and so has another device; rename that"
            )
        if name in taken:
            raise InvalidValue(f"{kind}: the app has a root device already; give this one a name")
        self.root = name
        return name

    def _add(
        self,
        registration: Registration,
        name: object,
        device: Device,
        given: Sequence[Dependency],
        decide: Decide | None,
    ) -> None:
        kind, handler = registration.kind, registration.handler
        options: Any = {**registration.options, **self._options_of(device, kind)}
        if device.adapter is not None:
            given = _with_adapter(f"{kind} {name!r}", device.adapter, given)
        own = [] if device.settings is None else [Provided(type(device.settings), device.settings)]
        available = [*own, *given, ContextDependency()]  # each name has a context of its own
        if kind != "subscription":
            options = self._with_settings(kind, name, handler, options, available)
        try:
            if kind == "command":
                self._add_command(name, handler, options, available)
            elif kind == "subscription":
                self._add_subscription(name, handler, options, [*own, *given], available)
            elif kind in ("source", "event"):
                self._add_source(kind, name, handler, options, available)
            else:
                self._add_telemetry(name, TelemetryTemplate(kind, handler, options, decide), available)
        except ConfigurationError as error:
            if self.device_settings is None or not (origins := self.device_settings.origins_of(str(name))):
                raise
            raise type(error)(f"{error}{origins}") from None

    def _options_of(self, device: Device, kind: str) -> Options:
        """As `Device.options_of`, also of the options of extensions."""
        options = device.options_of(kind)
        if kind != "command" or not self._further:
            return options
        reading = {name for each in self._further.values() for name in each} - self._further[kind].keys()
        return {name: value for name, value in options.items() if name not in reading}

    def _with_settings(
        self, kind: str, name: object, handler: Handler, options: Options, available: Sequence[Dependency]
    ) -> Options:
        """The options with those that the settings have for the device."""
        if self.device_settings is None or not isinstance(name, str):
            return options
        return self.device_settings.applied_to(kind, name, handler, options, available)

    def _add_command(
        self, name: object, handler: Handler, options: "CommandOptions", available: Sequence[Dependency]
    ) -> None:
        from leadsman.core.registration.command import register_command  # only apps with commands need it

        further = self._further.get("command", NONE)
        command = _checked(
            "command", name, lambda device: register_command(device, handler, options, available, further)
        )
        polled = self.telemetries.get(command.name)
        _check_free(command.name, "command", self.commands, self.telemetries if polled and polled.job else {})
        _check_apart(self.sources.get(command.name), command)
        _check_layout(self.telemetries.get(command.name) or self.sources.get(command.name), command)
        self.commands[command.name] = command

    def _add_subscription(
        self,
        topic_filter: object,
        handler: Handler,
        options: "SubscriptionOptions",
        available: Sequence[Dependency],
        of_a_device: Sequence[Dependency],
    ) -> None:
        from leadsman.core.registration.subscription import (
            fed_by,
            register_subscription,
        )  # only apps that subscribe pay

        readings, device = None, fed_by(options)
        if device is not None:
            readings = self._readings_of(*device, handler, options, of_a_device)
            options = {**options, "enabled": self.sources[device.name].enabled}  # the settings may have it off
        subscription = register_subscription(topic_filter, handler, options, available, readings)
        mine = subscription.topic_filter
        for other in self.subscriptions:
            if filters_overlap(mine, other):
                raise InvalidValue(f"subscription {mine!r}: it overlaps with {other!r}; write one handler for both")
        self.subscriptions[mine] = subscription

    def _readings_of(
        self, kind: str, device: str, handler: Handler, options: "SubscriptionOptions", available: Sequence[Dependency]
    ) -> "Buffer[object]":
        """The buffer that takes the readings or events of a subscription for its device, which is registered with its
        first filter."""
        from leadsman.core.registration.subscription import OWN_OPTIONS, buffer_of, source_of

        if (fed := self._fed.get(device)) is not None and fed[0] is handler:
            return fed[1]
        readings = buffer_of(options)
        kept: Any = {name: value for name, value in options.items() if name not in OWN_OPTIONS or name == "enabled"}
        kept = self._with_settings(kind, device, handler, kept, available)
        self._add_source(kind, device, source_of(handler, readings), kept, available)
        self._fed[device] = handler, readings
        return readings

    def check_foreign(self, *prefixes: str) -> None:
        """See that no subscription covers topics below one of the app's prefixes: it would hear itself.

        Raises:
            InvalidValue: one does.
        """
        for prefix in prefixes:
            for topic_filter in self.subscriptions:
                if filters_overlap(topic_filter, f"{prefix}/+/#"):
                    raise InvalidValue(
                        f"subscription {topic_filter!r}: it covers the app's own topics, those below {prefix}/; write "
                        "a filter that leaves them out, or give the app another prefix"
                    )

    def check_written(self, topics: "Iterable[tuple[str, Topic]]") -> None:
        """See that no subscription covers what an extension publishes. Raises `InvalidValue`."""
        for extension, topic in topics:
            for topic_filter in self.subscriptions if topic.access == "write" else ():
                if filters_overlap(topic_filter, topic.filter):
                    raise InvalidValue(
                        f"subscription {topic_filter!r}: it covers {topic.filter!r}, to which the extension "
                        f"{extension!r} publishes; write a filter that leaves that out"
                    )

    def check_apart(self, *filters: str) -> None:
        """See that no subscription overlaps with the topic filters of discovery: a message goes to one of them.

        Raises:
            InvalidValue: one does.
        """
        for taken in filters:
            for topic_filter in self.subscriptions:
                if filters_overlap(topic_filter, taken):
                    raise InvalidValue(
                        f"subscription {topic_filter!r}: it overlaps with {taken!r}, to which discovery subscribes; "
                        "write a filter that leaves that out, or switch discovery off"
                    )

    def _add_source(
        self, kind: str, name: object, handler: Handler, options: "SourceOptions", available: Sequence[Dependency]
    ) -> None:
        register: Callable[..., Source]
        if kind == "event":
            from leadsman.core.registration.event import register_event as register  # only apps with events need it
        else:
            from leadsman.core.registration.source import register_source as register  # only apps with sources do
        further = self._further.get(kind, NONE)
        source = _checked(kind, name, lambda device: register(device, handler, options, available, further))
        self._check_shared(source.guards)
        _check_free(source.name, kind, self.telemetries, self.sources)
        _check_apart(source, self.commands.get(source.name))
        _check_layout(source, self.commands.get(source.name))
        self.sources[source.name] = source

    def _add_telemetry(self, name: object, made_of: TelemetryTemplate, available: Sequence[Dependency]) -> None:
        telemetry = self._like_the_last(name, made_of, available)
        template = made_of if self._last is None else self._last[0]
        if telemetry is None:
            kind, handler, options, decide = made_of
            job = kind == "periodic"
            further = self._further.get(kind, NONE)
            telemetry = _checked(
                kind, name, lambda it: register_telemetry(it, handler, options, available, further, job=job)
            )
            self._check_shared(telemetry.guards)
            telemetry = telemetry if decide is None else decide(telemetry)
            template = made_of.kept()
        taken = self.commands if telemetry.job else {}
        _check_free(telemetry.name, made_of.kind, self.telemetries, self.sources, taken)
        _check_layout(telemetry, self.commands.get(telemetry.name))
        self._last = template, telemetry
        self.telemetries[telemetry.name] = telemetry

    def _like_the_last(
        self, name: object, made_of: TelemetryTemplate, available: Sequence[Dependency]
    ) -> Telemetry | None:
        """A copy of the telemetry that was registered last, if it differs only in its name and in what its handler
        gets. The devices of a loop do: they share all other values, and are checked once."""
        if self._last is None or not self._last[0].is_like(made_of):
            return None
        last = self._last[1]
        if not last.needs:
            return last._replace(name=check_name(name), handler=made_of.handler)
        needs = _checked(made_of.kind, name, lambda _: needs_of(alike(made_of.handler), available))
        same_errors = declared_errors(needs) == declared_errors(last.needs)
        if not same_errors:
            return None
        return last._replace(name=check_name(name), handler=made_of.handler, needs=needs)

    def _check_shared(self, guards: "GuardSpec") -> None:
        """Check that handlers that share a circuit specify it identically."""
        shared = None if guards.breaker is None else guards.breaker.shared
        for name, each in (self.telemetries | self.sources).items() if shared is not None else ():
            other = each.guards.breaker
            if other is not None and other.shared == shared and other != guards.breaker:
                raise InvalidValue(
                    f"circuit_breaker shared={shared!r} differs from that of {name!r}; write one, and use it twice"
                )


def _checked(kind: str, name: object, make: Callable[[str], T]) -> T:
    """What `make` makes of the name of a device, once that is checked. Its errors begin with the kind and the name."""
    device = check_name(name)
    with labelled(f"{kind} {device!r}"):
        return make(device)


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
        line = trace.tb_lineno if trace is not None else code.co_firstlineno
        where = f"{os.path.basename(code.co_filename)} line {line}"
        raise InvalidValue(f"{what}: {where}: {type(error).__name__}: {describe(error)}") from error


def _with_adapter(device: str, name: object, available: Sequence[Dependency]) -> Sequence[Dependency]:
    """What the handlers of a device may ask for that uses the adapter of this name: of those of its class, it alone.
    Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(name, str):
        raise InvalidType(f"{device}: adapter is {name!r}; write the name of an adapter")
    adapters = [each for each in available if isinstance(each, ManagedAdapter)]
    mine = next((each for each in adapters if each.name == name), None)
    if mine is None:
        named = [each.name for each in adapters if each.name is not None]
        advice = suggestion(name, named) if named else "name them: App(adapters={'one': …, 'two': …})"
        raise InvalidValue(f"{device}: no adapter has the name {clean(name)!r}; {advice}")
    others = [each for each in adapters if each is not mine and each.kind == mine.kind]
    return [each for each in available if each not in others]


def _check_apart(source: "Source | None", command: "Command | None") -> None:
    """What a command returns is a state of its device, and one that sends events has none."""
    if source is not None and source.events is not None and command is not None:
        name = source.name
        raise InvalidValue(f"{name!r} sends events, so it takes no commands; give its command another name")


def _check_layout(reader: "Telemetry | Source | None", command: "Command | None") -> None:
    """Check that what shows the state of a command finds it: a lamp is shown by several fields at once."""
    if reader is not None and command is not None and reader.layout == "fields":
        raise InvalidValue(
            f"{reader.name!r} takes commands, whose state is shown from its JSON; write layout='both' for its readings"
        )


def _check_free(name: str, kind: str, *taken: Mapping[str, object]) -> None:
    for each in taken:
        if name in each:
            raise InvalidValue(f"{kind} {name!r} is already registered; give every device its own name")


def unknown_field(field: str, of_device: "Sequence[Telemetry | Source | Command]") -> InvalidValue | None:
    """That no registration of a device has a field of this name; None if one has, or may have."""
    known: list[str] = []
    for each in of_device:
        kind = reading_type(each.handler, getattr(each, "field", None))
        if kind is not None and (filters := getattr(each, "filters", None)) is not None:
            kind = kind.filtered_where_known(filters)
        parameter = getattr(each, "payload", None)
        taken = None if parameter is None else payload_names(getattr(each, "annotation", None), parameter)
        for one in (kind, taken):
            if one is not None:
                if one.open or field in one.fields:
                    return None
                known += one.fields
    what = suggestion(field, known) if known else "annotate what its handler returns, such as -> Air"
    return InvalidValue(f"fields names {clean(field)!r}, which the device does not have; {what}").at(field)
