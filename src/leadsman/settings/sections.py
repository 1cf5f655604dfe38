"""The sections of the settings that every app has. Each is a class, and each of its fields a setting: the name is the
key, the annotation has what reads the value, and the default holds where nobody sets it.

So a new setting is one line here. The values are checked without pydantic, whose import would make the start of an app
that has no model of its own a quarter longer. The section ``mqtt`` is read by `leadsman.mqtt.broker`: which of its
values count depends on where they come from. The section ``retry`` is that of policies.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar, cast, get_args

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, collect, labelled, raise_together
from leadsman.loop.durations import Duration, positive_seconds
from leadsman.settings.documents import read_text
from leadsman.settings.sources import BROKER, CLUSTER, DISCOVERY, HTTP, LOG, OUTBOX, STANDBY, SUPERVISION, SettingEntry
from leadsman.text import clean
from leadsman.text.redaction import Secret
from leadsman.text.suggestion import nearest, suggestion

DEFAULT_PORT = 8080
SHORTEST_TOKEN = 16
"""Characters of a token. A shorter one could be guessed."""
LONGEST_PATH = 100
"""Bytes of the path of a unix socket. Linux has room for 107."""
MIN_BYTES = 1024 * 1024
"""Bytes of the smallest outbox that may be asked for."""
OFF = "off"
"""The convention in the settings that switches off what the app declares."""
CONVENTION_NAMES = ("homeassistant",)
DISCOVERY_PREFIX = "homeassistant"
"""The default of Home Assistant for the first level of discovery topics."""
MOST_LEVELS, LONGEST_PREFIX = 100, 200
"""Levels and characters of a prefix of discovery."""
SHORTEST_TTL, LONGEST_TTL = 3.0, 600.0
"""Seconds of a TTL. A standby renews each third of it, and MQTT 5 counts the expiry of a message in whole seconds
(§3.3.2.3.3); in a cluster the end of polls must fit into a fifth of it. Nothing is polled for as long as it after a
power cut."""
TTL = 15.0
"""Seconds; see `leadsman.nodes.lease.lease.DEFAULT_TTL`."""
ENGINES = ("nats", "tls")
"""The schemes of the URL of an engine, which is NATS."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_BACKUPS = 100
"""Files of the log."""
SHORTEST_STALE, SHORTEST_HUNG = 60.0, 5.0
"""Seconds. A shorter time would end an app that starts on a small machine, or that does one long thing."""
SHARDS, MOST_SHARDS = 256, 65_536
"""How many shards each set of labels has, by default and at most. Ten nodes share 256 of them evenly."""
LONGEST_NODE = 64
"""Characters of the name of a node, which is a level of topics and ends a client id."""
LONGEST_LABEL = 128
"""Characters."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""The characters of a bearer token (RFC 6750 §2.1)."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_NODE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

Durability = Literal["acked-or-durable", "write-through", "memory"]
Address = tuple[str, int | None]
"""An IP address and a port; or the path of a unix socket, and None."""


def is_off(value: object) -> bool:
    """Whether a value switches off what else has a value of its own: off, no, false, or empty text."""
    return value is False or (isinstance(value, str) and value.lower() in (OFF, "no", "false", ""))


def _address(value: object) -> Address | None:
    """``127.0.0.1:8080``, ``[::1]:8080``, ``8080`` or ``unix:/run/house/http.sock``; None for off."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if text is not False and not isinstance(text, str):
        raise InvalidType("write text such as '127.0.0.1:8080' or 'unix:/run/house/http.sock'")
    if text is False or is_off(text):
        return None
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or not path.isprintable() or len(path.encode()) > LONGEST_PATH:
            raise InvalidValue(f"write unix: and an absolute path of {LONGEST_PATH} bytes at most")
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
    if len(text) < SHORTEST_TOKEN:
        raise InvalidValue(f"the token has {len(text)} characters; write {SHORTEST_TOKEN} or more")
    if not _TOKEN.fullmatch(text):
        raise InvalidValue("the token has characters that a bearer token must not have; write letters and digits")
    return Secret(text)


def _token_file(value: object) -> Secret:
    if not isinstance(value, str) or not value:
        raise InvalidType("write the path of a file")
    return _token(read_text(Path(value)))


def _hosts(value: object) -> frozenset[str]:
    """The host names in a list, or in a text with commas."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidType("write a list of host names")
    found = frozenset(name.strip().lower() for name in names)
    for name in found:
        if not _HOST.fullmatch(name):
            raise InvalidValue(f"{clean(name)!r} is not a host name; leave out the port")
    return found


def _durability(value: object) -> Durability:
    if value not in get_args(Durability):
        raise InvalidValue(f"{value!r} is unknown; write 'acked-or-durable', 'write-through' or 'memory'")
    return cast("Durability", value)


def read_number(value: object) -> object:
    """A value, with a number that a variable has as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


def _whole(value: object) -> int | None:
    """A whole number, also one that a variable has as text; None for anything else."""
    number = read_number(value)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _bytes(value: object) -> int:
    if (number := _whole(value)) is None:
        raise InvalidType(f"{value!r} is not a whole number of bytes")
    if number < MIN_BYTES:
        raise InvalidValue(f"{number} bytes are too few; write {MIN_BYTES} or more")
    return number


def _shards(value: object) -> int:
    if (number := _whole(value)) is None:
        raise InvalidType(f"{value!r} is not a whole number; write one such as {SHARDS}")
    if not 1 <= number <= MOST_SHARDS:
        raise InvalidValue(f"{number} is out of range; write 1 to {MOST_SHARDS}")
    return number


def _age(value: object, example: str = "7d") -> float:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise InvalidType(f"{value!r} is not a duration; write one such as {example!r}")
    return positive_seconds(cast("Duration", value), "it")


def _levels(value: object) -> Mapping[str, str]:
    """Names of levels, by what they are for."""
    if not isinstance(value, Mapping):
        raise InvalidType(f"{value!r} is no table; write one such as {{ bleak = 'debug' }}")
    for name, level in value.items():
        if not isinstance(level, str) or level.upper() not in LOG_LEVELS:
            known = [each.lower() for each in LOG_LEVELS]
            raise InvalidValue(f"the level of {clean(str(name))} is {level!r}; {suggestion(str(level).lower(), known)}")
    return {str(name): level.upper() for name, level in value.items()}


def _file(value: object) -> Path | None:
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not text; write the path of a file")
    return Path(value) if value else None


def _backups(value: object) -> int:
    if (number := _whole(value)) is None or not 1 <= number <= MOST_BACKUPS:
        raise InvalidValue(f"{value!r} is no number of files; write 1 to {MOST_BACKUPS}")
    return number


def _limit(least: float) -> Callable[[object], float | None]:
    """A function that reads a time that ends the process; None if it is off."""

    def read(value: object) -> float | None:
        if is_off(value):
            return None
        amount = _age(value, "1h")
        if amount < least:
            raise InvalidValue(f"{amount:g} s is too short; write {least:g}s or more, or '{OFF}'")
        return amount

    return read


def _ttl(value: object) -> float:
    seconds = _age(value, "15s")
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        raise InvalidValue(f"{seconds:g} s is too {'short' if seconds < SHORTEST_TTL else 'long'}; write 3s to 10m")
    return seconds


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


def _convention(value: object) -> str | None:
    return None if is_off(value) else check_convention(value)


def check_discovery_prefix(given: object) -> str:
    """Check the first levels of the topics of discovery. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(given, str):
        raise InvalidType(f"prefix is {given!r}; write text")
    levels = given.split("/")
    wrong = "" in levels or len(levels) > MOST_LEVELS or len(given) > LONGEST_PREFIX or given.startswith("$")
    if wrong or any(c in "+#" or not c.isprintable() for c in given):
        raise InvalidValue(
            f"prefix is {given!r}; write the first level of discovery topics, such as {DISCOVERY_PREFIX!r}"
        )
    return given


def check_ids(value: object) -> dict[str, str]:
    """Check the former names of devices. Raises `InvalidType`."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise InvalidType(f"ids is {value!r}; write the former names by the present ones, such as {{'new': 'old'}}")
    return dict(value)


def _any(value: object) -> object:
    """Who uses the value checks it."""
    return value


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
    if len(value) > LONGEST_NODE or not _NODE.fullmatch(value):
        raise InvalidValue(f"{value!r}: write letters, digits, ., _ and -, at most {LONGEST_NODE}, such as 'gateway-1'")
    return value


def _labels(value: object) -> frozenset[str]:
    """A list, or text with commas as a variable has it."""
    given = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InvalidType(f"{value!r} is not a list of labels; write one such as ['ble']")
    found = frozenset(each for each in given if each)
    for label in found:
        if len(label) > LONGEST_LABEL or not label.isprintable():
            raise InvalidValue(f"{label!r}: a label has 1 to {LONGEST_LABEL} printable characters, such as 'ble'")
    return found


class HttpSettings(NamedTuple):
    """Where the HTTP endpoint is bound, and who may use it."""

    bind: Annotated[Address | None, _address] = None
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
    max_bytes: Annotated[int, _bytes] = 64 * 1024 * 1024
    """Bytes on disk at most, topics included."""
    max_age: Annotated[float, _age] = 7 * 86_400.0
    """Seconds for which a reading waits on disk at most."""


class DiscoverySettings(NamedTuple):
    """By which convention the devices are described at the broker."""

    convention: Annotated[str | None, _convention] = None
    """None: by none."""
    prefix: Annotated[str, check_discovery_prefix] = DISCOVERY_PREFIX
    """The first levels of the topics."""
    ids: Annotated[Mapping[str, str] | None, check_ids] = None
    """The former names of devices that were renamed, by their present names."""


class StandbySettings(NamedTuple):
    """How this node shares the whole app with others, one of which acts."""

    enabled: Annotated[bool, read_switch] = False
    ttl: Annotated[float, _ttl] = TTL
    """Seconds for which a lease holds that is not renewed."""


class ClusterSettings(NamedTuple):
    """How this node shares the devices of the app with others."""

    engine: Annotated[str, _engine] = ""
    """The URL of the engine, with its credentials. Empty: this node shares them with no other."""
    node: Annotated[str, check_node] = ""
    """The name of this node, which no other one has, and which stays over restarts. By default that of the machine."""
    labels: Annotated[frozenset[str], _labels] = frozenset()
    """What this node has that others may lack, such as ``ble``."""
    ttl: Annotated[float, _ttl] = TTL
    """Seconds for which a lease holds that is not renewed."""
    shards: Annotated[int, _shards] = SHARDS
    """How many shards each set of labels has."""


class SupervisionSettings(NamedTuple):
    """When the process ends by itself, where nothing else sees that it hangs."""

    exit_when_stale: Annotated[float | None, _limit(SHORTEST_STALE)] = None
    """Seconds without a fresh reading of any device; None: never."""
    exit_when_hung: Annotated[float | None, _limit(SHORTEST_HUNG)] = None
    """Seconds for which the event loop is blocked; None: never."""


class LogSettings(NamedTuple):
    """The levels of the log, and the file where it goes besides stderr."""

    levels: Annotated[Mapping[str, str], _levels] = {}
    """The least level of records, by the name of their logger or of one above it."""
    devices: Annotated[Mapping[str, str], _levels] = {}
    """The same, by the name of the device, or a pattern."""
    path: Annotated[Path | None, _file] = None
    """A file that has the log, too."""
    max_bytes: Annotated[int, _bytes] = 10 * 1024 * 1024
    """Bytes of the file, after which a new one is begun."""
    backups: Annotated[int, _backups] = 3
    """How many older files are kept."""


IDENTITY_KEYS = ("topic_prefix", "instance", "client_id")
"""The keys of the section ``mqtt`` that name an app at the broker."""
KEYS: Mapping[str, tuple[str, ...]] = {
    BROKER: (
        *("url", "host", "port", "username", "password", "tls", "ca", "cert", "key"),
        *IDENTITY_KEYS,
    ),
    HTTP: HttpSettings._fields,
    OUTBOX: OutboxSettings._fields,
    DISCOVERY: DiscoverySettings._fields,
    STANDBY: StandbySettings._fields,
    CLUSTER: ClusterSettings._fields,
    SUPERVISION: SupervisionSettings._fields,
    LOG: LogSettings._fields,
}
"""The keys of each section."""
TABLES = ((DISCOVERY, "ids"), (LOG, "levels"), (LOG, "devices"))
"""Those of them that have keys of their own."""

S = TypeVar("S", bound=NamedTuple)


def read_section(standard: S, entries: Mapping[str, SettingEntry]) -> S:
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


def endpoint_of(entries: Mapping[str, SettingEntry]) -> Endpoint | None:
    """Read the section ``http``. None if there shall be no endpoint.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    bind, token = entries.get("bind"), entries.get("token")
    if bind is None or is_off(bind.value):
        return None
    faults: list[ConfigurationError] = []
    settings, used = HttpSettings(), dict(entries)
    if token is not None and ("token_file" in entries or not token.secret):
        del used["token"]
        if "token_file" not in entries:  # others can read the command line, an environment and many settings files
            wrong = "a token belongs in a file; write its path as http.token_file or HTTP__TOKEN_FILE"
            faults.append(token.fault(InvalidValue(wrong)))
    with collect(faults):
        settings = read_section(settings, used)
    raise_together(faults)
    assert settings.bind is not None  # it is not empty
    found = Endpoint(*settings.bind, settings.token_file or settings.token, settings.hosts, bind.flag)
    if found.token is None and not found.is_local:
        message = (
            f"other machines can reach {found}; write a token of {SHORTEST_TOKEN} characters or more to a file, and "
            "its path as http.token_file or HTTP__TOKEN_FILE; or bind to 127.0.0.1"
        )
        raise bind.fault(InvalidValue(message))
    return found


def standby_of(entries: Mapping[str, SettingEntry], brokers: int) -> StandbySettings | None:
    """Read the section ``standby``. None if this node does not stand by.

    Args:
        entries: what is set, by key.
        brokers: how many the app has.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins. Or not all nodes would have
            the same arbiter: there are several brokers.
    """
    found = read_section(StandbySettings(), entries)
    if not found.enabled:
        return None
    if brokers > 1:
        raise InvalidValue(
            f"standby: the app has {brokers} brokers, and two nodes at two brokers would both be active; name one"
        )
    return found


def cluster_of(entries: Mapping[str, SettingEntry]) -> ClusterSettings | None:
    """Read the section ``cluster``. None if this node shares the devices with no other: there is no engine, or it is
    empty text.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    faults: list[ConfigurationError] = []
    found = ClusterSettings()
    with collect(faults):
        found = read_section(found, entries)
    if entries and "engine" not in entries:
        faults.append(InvalidValue("cluster.engine: missing; write engine = 'nats://host:4222' in [cluster]"))
    raise_together(faults)
    if not found.engine:
        return None
    if found.node:
        return found
    with labelled("cluster.node: the name of this machine cannot be used"):
        return found._replace(node=check_node(socket.gethostname()))
