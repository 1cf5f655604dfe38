"""The sections of the settings that every app has. Each is a class, and each of its fields a setting: the name is the
key, the annotation has what reads the value, and the default holds where nobody sets it.

So a new setting is one line here, and a new section its class and a field of `Sections`. The values are checked without
pydantic, whose import would make the start of an app that has no model of its own a quarter longer. The section
``mqtt`` is read by `leadsman.core.mqtt.broker`: which of its values count depends on where they come from. The section
``retry`` is that of policies.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from leadsman.core.loop.durations import MAX_SECONDS, human, positive_seconds
from leadsman.core.question import imported
from leadsman.core.settings.entry import Entries
from leadsman.core.settings.secrets import is_secret
from leadsman.core.text import clean
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, collect, raise_together
from leadsman.extensions import SHIPPED

MIN_BYTES = 1024 * 1024
"""Bytes of the smallest outbox that may be asked for."""
OFF = "off"
"""What switches off what else has a value of its own."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_BACKUPS = 100
"""Files of the log."""
MIN_STALE_SECONDS, MIN_HUNG_SECONDS = 60.0, 5.0
"""Seconds. A shorter time would end an app that starts on a small machine, or that does one long thing."""
MAX_LABEL_CHARS = 128
"""Characters."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

T = TypeVar("T")
Read = Callable[[object], T]
"""Reads a value. Raises `InvalidType`, `InvalidValue`."""
Durability = Literal["acked-or-durable", "write-through", "memory"]


def is_off(value: object) -> bool:
    """Whether a value switches off what else has a value of its own: off, no, false, or empty text."""
    return value is False or (isinstance(value, str) and value.lower() in (OFF, "no", "false", ""))


def or_off(read: Read[T]) -> Read[T | None]:
    """A function that reads a value, or that there is none: off, or null in YAML."""
    return lambda value: None if value is None or is_off(value) else read(value)


def read_words(value: object, wrong: str) -> list[str]:
    """The words in a list, or in a text with commas as a variable has it. `wrong` is the message about anything else.
    Raises `InvalidType`."""
    words = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
        raise InvalidType(wrong)
    return words


def _durability(value: object) -> Durability:
    if value not in get_args(Durability):
        raise InvalidValue(f"{value!r} is unknown; write 'acked-or-durable', 'write-through' or 'memory'")
    return cast("Durability", value)


def read_number(value: object) -> object:
    """A value, with a number that a variable has as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


def whole_number_reader(unit: str, least: int, most: int | None = None) -> Read[int]:
    """A function that reads a whole number of something, also one that a variable has as text."""
    span = f"write {least} or more" if most is None else f"write {least} to {most}"

    def read(value: object) -> int:
        number = read_number(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidType(f"{value!r} is not a whole number of {unit}; {span}")
        if number < least or (most is not None and number > most):
            raise InvalidValue(f"{number} {unit} are too {'few' if number < least else 'many'}; {span}")
        return number

    return read


def duration_reader(example: str, least: float = 0.0, most: float = MAX_SECONDS, *, other: str = "") -> Read[float]:
    """A function that reads a duration. `other` is what else may be written."""
    span = f"write {human(least)} {'or more' if most == MAX_SECONDS else f'to {human(most)}'}{other}"

    def read(value: object) -> float:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise InvalidType(f"{value!r} is not a duration; write one such as {example!r}{other}")
        amount = positive_seconds(value, "it")
        if not least <= amount <= most:
            raise InvalidValue(f"{amount:g} s is too {'short' if amount < least else 'long'}; {span}")
        return amount

    return read


def _limit(least: float) -> Read[float | None]:
    """A function that reads a time that ends the process; None if it is off."""
    return or_off(duration_reader("1h", least, other=f", or '{OFF}'"))


def _levels(value: object) -> Mapping[str, str]:
    """Names of levels, by what they are for."""
    if not isinstance(value, Mapping):
        raise InvalidType(f"{value!r} is no table; write one such as {{ bleak = 'debug' }}")
    known = [each.lower() for each in LOG_LEVELS]
    for name, level in value.items():
        if not isinstance(level, str) or level.lower() not in known:
            meant = suggestion(str(level).lower(), known)
            raise InvalidValue(f"the level of {clean(str(name))} is {level!r}; {meant}").at(name)
    return {str(name): level.upper() for name, level in value.items()}


def _file(value: object) -> Path | None:
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not text; write the path of a file")
    return Path(value) if value else None


def read_switch(value: object) -> bool:
    """Read whether something is on. Raises `InvalidValue`."""
    text = str(value).lower() if isinstance(value, str | bool) else None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidValue(f"{value!r} is neither true nor false; write one of them")


class OutboxSettings(NamedTuple):
    """How readings wait for the broker."""

    durability: Annotated[Durability, _durability] = "acked-or-durable"
    """``acked-or-durable``: those that wait are on disk within a quarter of a second. ``write-through``: their
    write begins after a hundredth. ``memory``: none."""
    max_bytes: Annotated[int, whole_number_reader("bytes", MIN_BYTES)] = 64 * 1024 * 1024
    """Bytes on disk at most, topics included."""
    max_age: Annotated[float, duration_reader("7d")] = 7 * 86_400.0
    """Seconds for which a reading waits on disk at most."""


class SupervisionSettings(NamedTuple):
    """When the process ends by itself, where nothing else sees that it hangs."""

    exit_when_stale: Annotated[float | None, _limit(MIN_STALE_SECONDS)] = None
    """Seconds without a fresh reading of any device; None: never."""
    exit_when_hung: Annotated[float | None, _limit(MIN_HUNG_SECONDS)] = None
    """Seconds for which the event loop is blocked; None: never."""


class LogSettings(NamedTuple):
    """The levels of the log, and the file where it goes besides stderr."""

    levels: Annotated[Mapping[str, str], _levels] = {}
    """The least level of records, by the name of their logger or of one above it."""
    devices: Annotated[Mapping[str, str], _levels] = {}
    """The same, by the name of the device, or a pattern."""
    path: Annotated[Path | None, _file] = None
    """A file that has the log, too."""
    max_bytes: Annotated[int, whole_number_reader("bytes", MIN_BYTES)] = 10 * 1024 * 1024
    """Bytes of the file, after which a new one is begun."""
    backups: Annotated[int, whole_number_reader("files", 1, MAX_BACKUPS)] = 3
    """How many older files are kept."""


def _names(value: object) -> tuple[str, ...]:
    wrong = f"{value!r} is not a list of names; write one such as ['alarm']"
    return tuple(each for each in read_words(value, wrong) if each)


class ExtensionsSettings(NamedTuple):
    """What extends the app, of what installed packages offer."""

    names: Annotated[tuple[str, ...], _names] = ()
    """The names of their entry points."""


S = TypeVar("S", bound=NamedTuple)


def read_section(standard: S, entries: Entries) -> S:
    """Read a section.

    Args:
        standard: its values where nobody sets them.
        entries: what is set, by key.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    for key, annotation in type(standard).__annotations__.items():
        if key in entries:
            with collect(faults):
                standard = standard._replace(**{key: entries[key].read(annotation.__metadata__[0])})
    raise_together(faults)
    return standard


read_duration: Read[float] = duration_reader("30s")
"""Read a duration, such as ``30s`` or a number of seconds. Raises `InvalidType`, `InvalidValue`."""


def readers(values: type) -> Mapping[str, Read[object]]:
    """What reads each value of a section that an extension has, by key: a function beside the type of a field, as
    `HttpSettings` has it. Raises `InvalidType`."""
    if not (issubclass(values, tuple) and hasattr(values, "_field_defaults")):
        raise InvalidType(
            f"settings: {values.__name__} is neither a NamedTuple nor a pydantic model; write one of them"
        )
    found = {}
    for key, annotation in get_type_hints(values, include_extras=True).items():
        reader = next((each for each in getattr(annotation, "__metadata__", ()) if callable(each)), None)
        if reader is None:
            raise InvalidType(
                f"settings: nothing reads {values.__name__}.{key}; write a function beside its type, such as"
                f" {key}: Annotated[float, float]"
            )
        found[key] = _guarded(reader, hidden=is_secret(key))
    return found


def _guarded(reader: Read[T], *, hidden: bool) -> Read[T]:
    """As `reader`, which may raise anything. A message about a secret does not say it."""

    def read(value: object) -> T:
        try:
            return reader(value)
        except ConfigurationError:
            raise
        except Exception as error:
            why = type(error).__name__ if hidden else clean(str(error)) or type(error).__name__
            raise InvalidValue(f"{why}; write another value") from None

    return read


def read_own_section(name: str, values: type[T], entries: Entries) -> T:
    """Read a section that an extension has, a NamedTuple.

    Args:
        name: the name of the section.
        values: its class.
        entries: what is set, by key.

    Raises:
        ConfigurationError: values are wrong or missing, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    found = dict(getattr(values, "_field_defaults"))  # noqa: B009  # each NamedTuple has them
    for key, read in readers(values).items():
        with collect(faults):
            if key in entries:
                found[key] = entries[key].read(read)
            elif key not in found:
                variable = f"{name}__{key}".upper()
                raise InvalidValue(f"{name}.{key}: missing; write {key} = … in [{name}], or set {variable}")
    raise_together(faults)
    return values(**found)


def _nothing(*about: object) -> None:
    """What a section does that does nothing more."""


class Section(NamedTuple):
    """How a section is read."""

    values: type[Any]
    """The class of its values, whose fields are its keys."""
    settle: Callable[[Any, Entries], Any] = read_section
    """Called with the values that hold where nobody sets them, and with what is set. Returns what the app does: None
    where it is off. Raises one `ConfigurationError` for all faults; the message names their origins."""
    declared: Callable[[object], object] = _nothing
    """Called with what `App` was given under the name of the section. Returns the values that hold where nobody sets
    them, or None where it is off. Raises `ConfigurationError`."""
    check: Callable[..., None] = _nothing
    """Called with the `Setup`, what is settled, and the brokers as far as they are known, once all sections are read.
    Raises `ConfigurationError`."""
    check_registered: Callable[..., None] = _nothing
    """Called with the `Setup`, what is settled, and the entries of each section, once the devices are registered.
    Raises `ConfigurationError`."""
    check_installed: Callable[..., None] = _nothing
    """Called with what is settled. Raises `NotInstalled` where a library is missing."""
    in_dry_run: Callable[..., object] = _nothing
    """Called with what is settled. Returns what a dry run does: None where it is off."""


class Sections(NamedTuple):
    """What the sections of the settings have settled. A field is a section: its name, what reads it, and what holds
    where nobody sets anything in it. The others are ``mqtt``, and those of what leadsman ships."""

    outbox: Annotated[OutboxSettings, Section(OutboxSettings)] = OutboxSettings()
    """How readings wait for the broker."""
    supervision: Annotated[SupervisionSettings, Section(SupervisionSettings)] = SupervisionSettings()
    """When the process ends by itself."""
    log: Annotated[LogSettings | None, Section(LogSettings)] = None
    """The settings of the log; None if there are none."""
    extensions: Annotated[ExtensionsSettings, Section(ExtensionsSettings)] = ExtensionsSettings()
    """What extends the app, of what installed packages offer."""
    shipped: Mapping[str, object] = MappingProxyType({})
    """What the sections of what leadsman ships have settled, by their names; those that are off are not here."""

    def of(self, kind: type[T]) -> T | None:
        """What a section of what leadsman ships has settled, by the class of it; None where it is off."""
        return next((each for each in self.shipped.values() if isinstance(each, kind)), None)

    def with_shipped(self, name: str, settled: object) -> "Sections":
        """These, with what one section has settled; None: it is off."""
        others = {other: each for other, each in self.shipped.items() if other != name}
        return self._replace(shipped=others if settled is None else others | {name: settled})

    def check_installed(self) -> None:
        """Check that the libraries are installed that what is on needs. Raises `NotInstalled`."""
        for name, settled in self.shipped.items():
            section_of(name).check_installed(settled)

    def alone(self) -> "Sections":
        """These, where no other node shares the app."""
        found = self
        for each in SHIPPED:
            for name, section in each.sections.items():
                found = found.with_shipped(name, None) if section.server else found
        return found

    def in_dry_run(self) -> "Sections":
        """What a dry run does."""
        found = self
        for name, settled in self.shipped.items():
            found = found.with_shipped(name, section_of(name).in_dry_run(settled))
        return found


_CORE: Mapping[str, Section] = {
    name: annotation.__metadata__[0]
    for name, annotation in Sections.__annotations__.items()
    if hasattr(annotation, "__metadata__")
}
BROKER = "mqtt"
"""The section that `leadsman.core.mqtt.broker` reads."""
IDENTITY_KEYS = ("topic_prefix", "instance", "client_id")
"""The keys of this section that name an app at the broker."""
_SHIPPED = {name: (each, section.place) for each in SHIPPED for name, section in each.sections.items()}
SECTIONS = (BROKER, *_CORE, *_SHIPPED)
"""The sections that every app has; their variables begin with their names: ``MQTT__URL``."""


def section_of(name: str) -> Section:
    """How a section is read. What leadsman ships is imported for it."""
    if name in _CORE:
        return _CORE[name]
    found: Section = imported(*_SHIPPED[name])
    return found


def keys_of(name: str) -> tuple[str, ...]:
    """The keys of a section."""
    if name == BROKER:
        return ("url", "host", "port", "username", "password", "tls", "ca", "cert", "key", *IDENTITY_KEYS)
    keys: tuple[str, ...] = section_of(name).values._fields
    return keys


def is_table(name: str, key: str) -> bool:
    """Whether the value of a key has keys of its own."""
    annotation = {} if name == BROKER else section_of(name).values.__annotations__
    return key in annotation and get_origin(annotation[key].__origin__) is Mapping


def declared_sections(given: Mapping[str, object]) -> Sections:
    """What holds where nobody sets anything: what `App` was given, by the names of sections; None is nothing.

    Raises:
        ConfigurationError: it is wrong.
    """
    found = Sections()
    for name, each in given.items():
        if each is not None:
            if name not in _SHIPPED:
                raise InvalidValue(f"{name}: this leadsman is without it; leave it out, or install a whole one")
            found = found.with_shipped(name, section_of(name).declared(each))
    return found


def read_sections(before: Sections, entries: Mapping[str, Entries], faults: list[ConfigurationError]) -> Sections:
    """Read the sections.

    Args:
        before: what holds where nobody sets anything.
        entries: what is set, by the section and the key.
        faults: gets an error for each section with wrong values.
    """
    for name in SECTIONS:
        if name == BROKER or not (found := entries[name]):
            continue
        section = section_of(name)
        given = getattr(before, name) if name in _CORE else before.shipped.get(name)
        standard = given if isinstance(given, section.values) else section.values()
        with collect(faults):
            settled = section.settle(standard, found)
            before = before._replace(**{name: settled}) if name in _CORE else before.with_shipped(name, settled)
    return before
