"""The sections of the settings that every app has. Each is a class, and each of its fields a setting: the name is the
key, the annotation has what reads the value, and the default holds where nobody sets it.

So a new setting is one line here, and a new section its class and a field of `Sections`. The values are checked without
pydantic, whose import would make the start of an app that has no model of its own a quarter longer. The section
``mqtt`` is read by `leadsman.core.mqtt.broker`: which of its values count depends on where they come from. The section
``retry`` is that of policies.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from leadsman.core.loop.durations import MAX_SECONDS, human, positive_seconds
from leadsman.core.settings.documents import read_text
from leadsman.core.settings.entry import Entries
from leadsman.core.settings.secrets import is_secret
from leadsman.core.text import clean
from leadsman.core.text.redaction import Secret
from leadsman.core.text.suggestion import nearest, suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, collect, labelled, raise_together

DEFAULT_PORT = 8080
MIN_TOKEN_CHARS = 16
"""Characters of a token. A shorter one could be guessed."""
MAX_PATH_BYTES = 100
"""Bytes of the path of a unix socket. Linux has room for 107."""
MIN_BYTES = 1024 * 1024
"""Bytes of the smallest outbox that may be asked for."""
OFF = "off"
"""The convention in the settings that switches off what the app declares."""
CONVENTION_NAMES = ("homeassistant",)
DISCOVERY_PREFIX = "homeassistant"
"""The default of Home Assistant for the first level of discovery topics."""
MAX_LEVELS, MAX_PREFIX_CHARS = 100, 200
"""Levels and characters of a prefix of discovery."""
MIN_TTL_SECONDS, MAX_TTL_SECONDS = 3.0, 600.0
"""Seconds of a TTL. A standby renews each third of it, and MQTT 5 counts the expiry of a message in whole seconds
(§3.3.2.3.3); in a cluster the end of polls must fit into a fifth of it. Nothing is polled for as long as it after a
power cut."""
TTL = 15.0
"""Seconds; see `leadsman.extensions.nodes.lease.lease.DEFAULT_TTL`."""
ENGINES = ("nats", "tls")
"""The schemes of the URL of an engine, which is NATS."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_BACKUPS = 100
"""Files of the log."""
MIN_STALE_SECONDS, MIN_HUNG_SECONDS = 60.0, 5.0
"""Seconds. A shorter time would end an app that starts on a small machine, or that does one long thing."""
SHARDS, MAX_SHARDS = 256, 65_536
"""How many shards each set of labels has, by default and at most. Ten nodes share 256 of them evenly."""
MAX_NODE_CHARS = 64
"""Characters of the name of a node, which is a level of topics and ends a client id."""
MAX_LABEL_CHARS = 128
"""Characters."""
_TOKEN = r"[A-Za-z0-9._~+/=-]+"
"""The characters of a bearer token (RFC 6750 §2.1)."""
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
_NODE = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

T = TypeVar("T")
Read = Callable[[object], T]
"""Reads a value. Raises `InvalidType`, `InvalidValue`."""
Durability = Literal["acked-or-durable", "write-through", "memory"]
Address = tuple[str, int | None]
"""An IP address and a port; or the path of a unix socket, and None."""


def is_off(value: object) -> bool:
    """Whether a value switches off what else has a value of its own: off, no, false, or empty text."""
    return value is False or (isinstance(value, str) and value.lower() in (OFF, "no", "false", ""))


def or_off(read: Read[T]) -> Read[T | None]:
    """A function that reads a value, or that there is none: off, or null in YAML."""
    return lambda value: None if value is None or is_off(value) else read(value)


def _address(value: object) -> Address:
    """``127.0.0.1:8080``, ``[::1]:8080``, ``8080`` or ``unix:/run/house/http.sock``."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise InvalidType("write text such as '127.0.0.1:8080' or 'unix:/run/house/http.sock'")
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or not path.isprintable() or len(path.encode()) > MAX_PATH_BYTES:
            raise InvalidValue(f"write unix: and an absolute path of {MAX_PATH_BYTES} bytes at most")
        return path, None
    host, port = ("127.0.0.1", text) if text.isdecimal() else _split(text)
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InvalidValue(
            f"{clean(host)!r} is no IP address; write one of this machine, such as '127.0.0.1:8080'"
        ) from None
    if not port.isdecimal() or len(port) > len("65535") or int(port) > 0xFFFF:
        raise InvalidValue(f"{clean(port)!r} is not a port; write a number up to 65535")
    return str(address), int(port)


def _split(text: str) -> tuple[str, str]:
    """The host and the port of an address that has a host."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return host if bracket else text, rest.removeprefix(":") if rest else str(DEFAULT_PORT)
    host, colon, port = text.rpartition(":")
    if not colon or ":" in host:  # no port; or an IPv6 address without brackets
        return text, str(DEFAULT_PORT)
    return host, port


def _token(value: object) -> Secret:
    text = str(value).strip()
    if len(text) < MIN_TOKEN_CHARS:
        raise InvalidValue(f"the token has {len(text)} characters; write {MIN_TOKEN_CHARS} or more")
    if not re.fullmatch(_TOKEN, text):
        raise InvalidValue("the token has characters that a bearer token must not have; write letters and digits")
    return Secret(text)


def _token_file(value: object) -> Secret:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidType("write the path of a file")
    return _token(read_text(Path(value)))


def read_words(value: object, wrong: str) -> list[str]:
    """The words in a list, or in a text with commas as a variable has it. `wrong` is the message about anything else.
    Raises `InvalidType`."""
    words = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
        raise InvalidType(wrong)
    return words


def _hosts(value: object) -> frozenset[str]:
    found = frozenset(name.strip().lower() for name in read_words(value, "write a list of host names"))
    for name in found:
        if not re.fullmatch(_HOST, name):
            raise InvalidValue(f"{clean(name)!r} is not a host name; leave out the port")
    return found


def _labels(value: object) -> frozenset[str]:
    wrong = f"{value!r} is not a list of labels; write one such as ['ble']"
    found = frozenset(each for each in read_words(value, wrong) if each)
    for label in found:
        if len(label) > MAX_LABEL_CHARS or not label.isprintable():
            raise InvalidValue(f"{label!r}: a label has 1 to {MAX_LABEL_CHARS} printable characters, such as 'ble'")
    return found


def _durability(value: object) -> Durability:
    if value not in get_args(Durability):
        raise InvalidValue(f"{value!r} is unknown; write 'acked-or-durable', 'write-through' or 'memory'")
    return cast("Durability", value)


def read_number(value: object) -> object:
    """A value, with a number that a variable has as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


def _whole(unit: str, least: int, most: int | None = None) -> Read[int]:
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


def _duration(example: str, least: float = 0.0, most: float = MAX_SECONDS, *, other: str = "") -> Read[float]:
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
    return or_off(_duration("1h", least, other=f", or '{OFF}'"))


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


def check_convention(value: object) -> str:
    """Check the name of a convention of discovery. Raises `InvalidValue`."""
    if not isinstance(value, str) or value not in CONVENTION_NAMES:
        hint = suggestion(clean(str(value))[:100], (*CONVENTION_NAMES, OFF))
        raise InvalidValue(f"the convention {value!r} is unknown; {hint}")
    return value


def check_discovery_prefix(given: object) -> str:
    """Check the first levels of the topics of discovery. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(given, str):
        raise InvalidType(f"prefix is {given!r}; write text")
    levels = given.split("/")
    wrong = "" in levels or len(levels) > MAX_LEVELS or len(given) > MAX_PREFIX_CHARS or given.startswith("$")
    if wrong or any(c in "+#" or not c.isprintable() for c in given):
        raise InvalidValue(
            f"prefix is {given!r}; write the first level of discovery topics, such as {DISCOVERY_PREFIX!r}"
        )
    return given


def check_ids(value: object) -> dict[str, str]:
    """Check the former names of devices. Raises `InvalidType`."""
    wrong = InvalidType(f"ids is {value!r}; write the former names by the present ones, such as {{'new': 'old'}}")
    if not isinstance(value, Mapping):
        raise wrong
    for new, old in value.items():
        if not isinstance(new, str) or not isinstance(old, str):
            raise wrong.at(new)
    return dict(value)


def _engine(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidType("it is not text; write 'nats://host:4222'")
    scheme, separator, rest = value.partition("://")
    if value and (not separator or not rest or scheme not in ENGINES):
        close = nearest(scheme, ENGINES) if separator else None
        meant = f"; did you mean {close}://?" if close else ""
        raise InvalidValue(f"it is no URL of NATS{meant}; write nats://host:4222, or tls://host:4222")
    return value


def check_node(value: object) -> str:
    """Check the name of a node. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not text; write a name such as 'gateway-1'")
    if len(value) > MAX_NODE_CHARS or not re.fullmatch(_NODE, value):
        raise InvalidValue(
            f"{value!r}: write letters, digits, ., _ and -, at most {MAX_NODE_CHARS}, such as 'gateway-1'"
        )
    return value


class HttpSettings(NamedTuple):
    """Where the HTTP endpoint is bound, and who may use it."""

    bind: Annotated[Address | None, or_off(_address)] = None
    token: Annotated[Secret | None, _token] = None
    """What each request must carry."""
    token_file: Annotated[Secret | None, _token_file] = None
    """The same, read from the file that the setting names."""
    hosts: Annotated[frozenset[str], _hosts] = frozenset()
    """Host names by which it is reached, besides addresses and the names of this machine."""


class OutboxSettings(NamedTuple):
    """How readings wait for the broker."""

    durability: Annotated[Durability, _durability] = "acked-or-durable"
    """``acked-or-durable``: those that wait are on disk within a quarter of a second. ``write-through``: their
    write begins after a hundredth. ``memory``: none."""
    max_bytes: Annotated[int, _whole("bytes", MIN_BYTES)] = 64 * 1024 * 1024
    """Bytes on disk at most, topics included."""
    max_age: Annotated[float, _duration("7d")] = 7 * 86_400.0
    """Seconds for which a reading waits on disk at most."""


class DiscoverySettings(NamedTuple):
    """By which convention the devices are described at the broker."""

    convention: Annotated[str | None, or_off(check_convention)] = None
    """None: by none."""
    prefix: Annotated[str, check_discovery_prefix] = DISCOVERY_PREFIX
    """The first levels of the topics."""
    ids: Annotated[Mapping[str, str], check_ids] = {}
    """The former names of devices that were renamed, by their present names."""


class StandbySettings(NamedTuple):
    """How this node shares the whole app with others, one of which acts."""

    enabled: Annotated[bool, read_switch] = False
    ttl: Annotated[float, _duration("15s", MIN_TTL_SECONDS, MAX_TTL_SECONDS)] = TTL
    """Seconds for which a lease holds that is not renewed."""


class ClusterSettings(NamedTuple):
    """How this node shares the devices of the app with others."""

    engine: Annotated[str, _engine] = ""
    """The URL of the engine, with its credentials. Empty: this node shares them with no other."""
    node: Annotated[str, check_node] = ""
    """The name of this node, which no other one has, and which stays over restarts. By default that of the machine."""
    labels: Annotated[frozenset[str], _labels] = frozenset()
    """What this node has that others may lack, such as ``ble``."""
    ttl: Annotated[float, _duration("15s", MIN_TTL_SECONDS, MAX_TTL_SECONDS)] = TTL
    """Seconds for which a lease holds that is not renewed."""
    shards: Annotated[int, _whole("shards", 1, MAX_SHARDS)] = SHARDS
    """How many shards each set of labels has."""


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
    max_bytes: Annotated[int, _whole("bytes", MIN_BYTES)] = 10 * 1024 * 1024
    """Bytes of the file, after which a new one is begun."""
    backups: Annotated[int, _whole("files", 1, MAX_BACKUPS)] = 3
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


read_duration: Read[float] = _duration("30s")
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


class Endpoint(NamedTuple):
    """Where the HTTP endpoint is bound, and who may use it."""

    address: str
    """An IP address, or the path of a unix socket."""
    port: int | None
    """0 lets the system choose one; None for a unix socket."""
    token: Secret | None = None
    """What each request must carry; None if the address alone protects the endpoint."""
    hosts: frozenset[str] = frozenset()
    """Host names by which it is reached, besides addresses and the names of this machine."""
    flag: bool = False
    """Whether the command line asked for it."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.port is None or ipaddress.ip_address(self.address).is_loopback

    def __str__(self) -> str:
        if self.port is None:
            return f"unix:{self.address}"
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"


def _endpoint(standard: HttpSettings, entries: Entries) -> Endpoint | None:
    """None if there shall be no endpoint."""
    bind, token = entries.get("bind"), entries.get("token")
    if bind is None or bind.value is None or is_off(bind.value):
        return None
    faults: list[ConfigurationError] = []
    settings, used = standard, dict(entries)
    if token is not None and ("token_file" in entries or not token.secret):
        del used["token"]
        if "token_file" not in entries:  # others can read the command line, an environment and many settings files
            wrong = "a token belongs in a file; write its path as http.token_file or HTTP__TOKEN_FILE"
            faults.append(token.fault(InvalidValue(wrong)))
    with collect(faults):
        settings = read_section(standard, used)
    raise_together(faults)
    assert settings.bind is not None  # it is not off
    found = Endpoint(*settings.bind, settings.token_file or settings.token, settings.hosts, bind.flag)
    if found.token is None and not found.is_local:
        message = (
            f"other machines can reach {found}; write a token of {MIN_TOKEN_CHARS} characters or more to a file, and "
            "its path as http.token_file or HTTP__TOKEN_FILE; or bind to 127.0.0.1"
        )
        raise bind.fault(InvalidValue(message))
    return found


def _discovery(standard: DiscoverySettings, entries: Entries) -> DiscoverySettings | None:
    """None if the convention is off."""
    found = read_section(standard, entries)
    return None if found.convention is None else found


def _standby(standard: StandbySettings, entries: Entries) -> StandbySettings | None:
    """None if this node does not stand by."""
    found = read_section(standard, entries)
    return found if found.enabled else None


def _cluster(standard: ClusterSettings, entries: Entries) -> ClusterSettings | None:
    """None if this node shares the devices with no other: the engine is empty text."""
    faults: list[ConfigurationError] = []
    found = standard
    with collect(faults):
        found = read_section(standard, entries)
    if "engine" not in entries:
        faults.append(InvalidValue("cluster.engine: missing; write engine = 'nats://host:4222' in [cluster]"))
    raise_together(faults)
    if not found.engine:
        return None
    if found.node:
        return found
    with labelled("cluster.node: the name of this machine cannot be used"):
        return found._replace(node=check_node(socket.gethostname()))


class Section(NamedTuple):
    """How a section is read."""

    values: type[Any]
    """The class of its values, whose fields are its keys."""
    settle: Callable[[Any, Entries], Any] = read_section
    """Called with the values that hold where nobody sets them, and with what is set. Returns what the app does: None
    where it is off. Raises one `ConfigurationError` for all faults; the message names their origins."""


class Sections(NamedTuple):
    """What the sections of the settings have settled. A field is a section: its name, what reads it, and what holds
    where nobody sets anything in it. The section ``mqtt`` is the only other one."""

    http: Annotated[Endpoint | None, Section(HttpSettings, _endpoint)] = None
    """The HTTP endpoint; None where there is none."""
    outbox: Annotated[OutboxSettings, Section(OutboxSettings)] = OutboxSettings()
    """How readings wait for the broker."""
    discovery: Annotated[DiscoverySettings | None, Section(DiscoverySettings, _discovery)] = None
    """By which convention the devices are described at the broker; None: they are not."""
    standby: Annotated[StandbySettings | None, Section(StandbySettings, _standby)] = None
    """How this node shares the app with others; None: it does not."""
    cluster: Annotated[ClusterSettings | None, Section(ClusterSettings, _cluster)] = None
    """How this node shares the devices of the app with others; None: it does not."""
    supervision: Annotated[SupervisionSettings, Section(SupervisionSettings)] = SupervisionSettings()
    """When the process ends by itself."""
    log: Annotated[LogSettings | None, Section(LogSettings)] = None
    """The settings of the log; None if there are none."""
    extensions: Annotated[ExtensionsSettings, Section(ExtensionsSettings)] = ExtensionsSettings()
    """What extends the app, of what installed packages offer."""

    @property
    def shared(self) -> bool:
        """Whether several nodes share the app."""
        return self.standby is not None or self.cluster is not None


_SECTIONS: Mapping[str, Section] = {
    name: annotation.__metadata__[0] for name, annotation in Sections.__annotations__.items()
}
BROKER = "mqtt"
"""The section that `leadsman.core.mqtt.broker` reads."""
IDENTITY_KEYS = ("topic_prefix", "instance", "client_id")
"""The keys of this section that name an app at the broker."""
SECTIONS = (BROKER, *_SECTIONS)
"""The sections that every app has; their variables begin with their names: ``MQTT__URL``."""
KEYS: Mapping[str, tuple[str, ...]] = {
    BROKER: ("url", "host", "port", "username", "password", "tls", "ca", "cert", "key", *IDENTITY_KEYS),
    **{name: section.values._fields for name, section in _SECTIONS.items()},
}
"""The keys of each section."""
TABLES = frozenset(
    (name, key)
    for name, section in _SECTIONS.items()
    for key, annotation in section.values.__annotations__.items()
    if get_origin(annotation.__origin__) is Mapping
)
"""Those of them that have keys of their own."""


def read_sections(before: Sections, entries: Mapping[str, Entries], faults: list[ConfigurationError]) -> Sections:
    """Read the sections.

    Args:
        before: what holds where nobody sets anything.
        entries: what is set, by the section and the key.
        faults: gets an error for each section with wrong values.
    """
    for name, section in _SECTIONS.items():
        if found := entries[name]:
            given = getattr(before, name)
            standard = given if isinstance(given, section.values) else section.values()
            with collect(faults):
                before = before._replace(**{name: section.settle(standard, found)})
    return before
