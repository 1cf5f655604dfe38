"""The addresses and the credentials of the brokers of an app: one, or a primary and its replacements, in the order in
which they are tried."""

from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from leadsman.core.settings.entry import Entries
from leadsman.core.settings.sections import IDENTITY_KEYS, read_switch
from leadsman.core.storage.given_file import read_given
from leadsman.core.text import split_urls
from leadsman.core.text.redaction import Secret, SecretValue, reveal, secret_or_none
from leadsman.core.value import Value
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, labelled, raise_together

_UNIX = "mqtt+unix"
PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443, _UNIX: 0}
"""IANA's ports for MQTT and MQTT over TLS; the web's own for WebSocket; none for a unix socket."""
_TLS_PARAMETERS = frozenset({"ca", "cert", "key", "insecure"})
_PARAMETERS = _TLS_PARAMETERS | {"client", "protocol"}
_CREDENTIALS = ("username", "password", "ca", "cert", "key")
_PROTOCOLS = ("5.0", "3.1.1")
_CLIENT = "aiomqtt"
"""The client that speaks both versions, in all that they travel in. So it is the only one that can be named."""
MAX_FILE_BYTES = 16 * 2**20
"""Bytes of a file of certificates. Those of all authorities have some 200 kB."""
DEFAULT_URL = "mqtt://localhost:1883"


class Tls(Value):
    """The certificates with which TLS checks the broker and, if it wants that, identifies us.

    Args:
        ca: a PEM file with the authorities to trust instead of the system's.
        cert: a PEM file with a client certificate.
        key: a PEM file with the key of the client certificate.
        insecure: accept any certificate. Only for a test bench: an attacker on the network can read and change
            everything.
    """

    __slots__ = ("ca", "cert", "insecure", "key")
    ca: str | None
    cert: str | None
    key: str | None
    insecure: bool

    def __init__(
        self, ca: str | None = None, cert: str | None = None, key: str | None = None, *, insecure: bool = False
    ) -> None:
        self._hold(ca=ca, cert=cert, key=key, insecure=insecure)

    @property
    def files(self) -> dict[str, str]:
        """The files, by the name of their parameter."""
        given = {"ca": self.ca, "cert": self.cert, "key": self.key}
        return {name: path for name, path in given.items() if path is not None}


_SYSTEM_TLS = Tls()
"""The system's authorities, and no client certificate."""


class Broker(Value):
    """A broker's address and credentials. `repr` and `str` never show the password.

    Args:
        host: name or address.
        port: TCP port.
        scheme: ``mqtt``, ``mqtts`` (TLS), ``ws`` or ``wss`` (WebSocket), or ``mqtt+unix`` (a socket of this host).
            There is no fallback to an unencrypted connection.
        username: None where the broker wants none.
        password: text or a `SecretStr`, which is hidden from now on; None where the broker wants none.
        path: of a WebSocket, or of a unix socket.
        tls: certificates, for ``mqtts`` and ``wss``.
        protocol: the only MQTT version to try, ``5.0`` or ``3.1.1``. None: 5.0, or else 3.1.1.
        client: ``aiomqtt``, the library to speak MQTT with. None: leadsman chooses.
    """

    __slots__ = ("client", "host", "password", "path", "port", "protocol", "scheme", "tls", "username")
    host: str
    port: int
    scheme: str
    username: str | None
    password: Secret | None
    path: str
    tls: Tls
    protocol: str | None
    client: str | None

    def __init__(
        self,
        host: str = "localhost",
        port: int = 1883,
        scheme: str = "mqtt",
        *,
        username: str | None = None,
        password: str | SecretValue | None = None,
        path: str = "/mqtt",
        tls: Tls = _SYSTEM_TLS,
        protocol: str | None = None,
        client: str | None = None,
    ) -> None:
        if scheme not in PORTS:
            raise InvalidValue(f"the broker's scheme is {scheme!r}; it must be mqtt, mqtts, ws, wss or mqtt+unix")
        if protocol is not None and protocol not in _PROTOCOLS:
            raise InvalidValue(f"the broker's protocol is {protocol!r}; it must be 5.0 or 3.1.1")
        if client not in (None, _CLIENT):
            raise InvalidValue(f"the broker's client is {client!r}; write {_CLIENT}, or leave it out")
        _check_host(host, "the broker's host")
        if scheme != _UNIX and not _is_port(port):
            raise InvalidValue(f"the broker's port is {port!r}; it must be a number from 1 to 65535")
        secret = secret_or_none("the broker's password", password)
        self._hold(host=host, port=port, scheme=scheme, username=username, password=secret, path=path)
        self._hold(tls=tls, protocol=protocol, client=client)

    @property
    def version(self) -> str:
        """The MQTT version to try first."""
        return self.protocol or "5.0"

    @property
    def encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme in ("mqtts", "wss")

    @property
    def files(self) -> dict[str, str]:
        """The files that TLS needs, by the name of their parameter."""
        return self.tls.files if self.encrypted else {}

    def check_files(self) -> None:
        """Check that the files that TLS needs can be read.

        Raises:
            InvalidValue, SettingsError: files cannot be read, one a line.
        """
        faults: list[ConfigurationError] = []
        for name, path in self.files.items():
            if (reason := why_unreadable(path)) is not None:
                faults.append(InvalidValue(f"the broker's {name} is {path!r}, which cannot be read: {reason}"))
        raise_together(faults)

    @property
    def websocket(self) -> bool:
        """Whether MQTT travels in a WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def unix(self) -> bool:
        """Whether the broker listens on a unix socket, `path`."""
        return self.scheme == _UNIX

    def __repr__(self) -> str:
        return f"Broker({self})"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}" if self.unix else f"{self.scheme}://{self.host}:{self.port}"

    @classmethod
    def from_url(cls, url: object) -> Self:
        """Read ``mqtt://user:password@host:1883`` or ``mqtts://host?ca=ca.pem&cert=me.pem&key=me.key``.

        Raises:
            InvalidType, InvalidValue: without the password in the message.
        """
        url = reveal(url)
        if not isinstance(url, str):
            raise InvalidType(f"the broker has the type {type(url).__name__}; write a URL such as {DEFAULT_URL!r}")
        scheme, separator, _ = url.partition("://")
        if not separator:
            raise InvalidValue(f"the broker's URL has no mqtt:// before the host; write one such as {DEFAULT_URL!r}")
        if scheme not in PORTS:
            raise InvalidValue(
                f"the broker's URL begins with {scheme!r}; write mqtt://, mqtts://, ws://, wss:// or mqtt+unix://"
            )
        try:
            parts = urlsplit(url)
        except ValueError:
            raise InvalidValue(_unreadable(url)) from None
        port = _port_of(parts, url)
        if "@" in f"{parts.path}{parts.query}{parts.fragment}" or parts.fragment:
            raise InvalidValue(_unreadable(url))
        if scheme == _UNIX and (parts.hostname or len(parts.path) < 2):
            raise InvalidValue(
                "the broker's URL names no unix socket; write its path after three slashes: mqtt+unix:///run/mosquitto.sock"
            )
        if scheme != _UNIX and not parts.hostname:
            raise InvalidValue(f"the broker's URL names no host; write one such as {DEFAULT_URL!r}")
        if any(each.isspace() for each in parts.hostname or ""):
            raise InvalidValue(f"the host of the broker's URL has a space; write one such as {DEFAULT_URL!r}")
        extra = dict(parse_qsl(parts.query))
        unknown = sorted(extra.keys() - _PARAMETERS)
        if unknown:
            raise InvalidValue(
                f"the broker's URL has the parameter {unknown[0]!r}; write one of {', '.join(sorted(_PARAMETERS))}"
            )
        if parts.scheme in ("mqtt", "ws", _UNIX) and (useless := sorted(extra.keys() & _TLS_PARAMETERS)):
            hint = "a unix socket has none" if scheme == _UNIX else f"write {parts.scheme}s://"
            raise InvalidValue(f"the broker's URL has {useless[0]!r} without TLS; {hint}")
        with labelled("the broker's URL has insecure"):
            insecure = read_switch(extra.get("insecure", ""))
        return cls(
            host=parts.hostname or "localhost",
            port=port or PORTS[parts.scheme],
            scheme=parts.scheme,
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            path=unquote(parts.path) or "/mqtt",
            tls=Tls(extra.get("ca"), extra.get("cert"), extra.get("key"), insecure=insecure),
            protocol=extra.get("protocol"),
            client=extra.get("client"),
        )

    @classmethod
    def from_section(cls, section: Mapping[str, object]) -> Self:
        """Read the section ``mqtt`` of settings: ``url``, or ``host``, ``port`` and ``tls``; ``username``,
        ``password``, ``ca``, ``cert`` and ``key``, which join a URL that does not have them. Empty is localhost.

        Raises:
            InvalidValue, InvalidType: it names the key.
        """
        for key, value in section.items():
            check_key(key, value)
        texts = {key: str(section[key]) for key in _CREDENTIALS if key in section}
        if "url" in section:
            return cls.from_url(section["url"]).completed(texts)
        tls = _is_tls(section.get("tls"))
        host, port = str(section.get("host", "localhost")), int(str(section.get("port", 8883 if tls else 1883)))
        return cls(host, port, "mqtts" if tls else "mqtt").completed(texts)

    def completed(self, texts: Mapping[str, str]) -> Self:
        """This broker, with the texts for what its URL does not have."""

        def either(given: str | None, name: str) -> str | None:
            return texts.get(name) if given is None else given

        tls = self.tls
        return self._replace_fields(
            username=either(self.username, "username"),
            password=either(self.password, "password"),
            tls=Tls(either(tls.ca, "ca"), either(tls.cert, "cert"), either(tls.key, "key"), insecure=tls.insecure),
        )

    def _replace_fields(self, **fields: Any) -> Self:
        own: dict[str, Any] = dict(zip(self._names, self._fields(), strict=True))
        return type(self)(**own | fields)


def _is_tls(value: object) -> bool:
    """Whether a setting switches TLS on; null in YAML does not. Raises `InvalidValue`."""
    return value is not None and read_switch(str(value))


def check_key(key: str, value: object) -> None:
    """Check one value of the section ``mqtt``, independently of the others; but for ``url``, see `read_urls`.

    Raises:
        InvalidValue, InvalidType: it names the key.
    """
    match key:
        case "host":
            _check_host(value, "mqtt.host")
        case "tls":
            with labelled("mqtt.tls"):
                _is_tls(value)
        case "port" if not str(value).isdecimal() or len(str(value)) > 5 or not 0 < int(str(value)) < 65536:
            raise InvalidValue(f"mqtt.port is {value!r}; it must be a number from 1 to 65535")
        case "username" | "password" | "ca" | "cert" | "key" if not isinstance(value, str):
            raise InvalidType(f"mqtt.{key} has the type {type(value).__name__}; write text in quotes")


def _is_port(port: object) -> bool:
    return isinstance(port, int) and 0 < port < 65536


def _check_host(value: object, name: str) -> None:
    """Check that it is a name or an address. A URL, or a port behind it, would be a name that nobody has."""
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} is {value!r}; write a name or an address")
    if "/" in value:  # it is not shown: a URL may have a password
        raise InvalidValue(
            f"{name} is a URL or a path; write a name or an address, or the URL as mqtt.url or App(mqtt=…)"
        )
    if value.count(":") == 1:
        raise InvalidValue(f"{name} has a colon; write the name or the address only, and the port as port")


def _port_of(parts: SplitResult, url: str) -> int | None:
    """The port of a URL; None if it has none. A port that is no number is not shown: it may be a password."""
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port != 0:
        return port
    if "@" in url and "@" not in parts.netloc:  # it is part of a password with a slash
        raise InvalidValue(_unreadable(url)) from None
    text = parts.netloc.rpartition(":")[2]
    what = text if text.removeprefix("-").isdecimal() else "no number"
    raise InvalidValue(f"the port of the broker's URL is {what}; write one such as {DEFAULT_URL!r}") from None


def _unreadable(url: str) -> str:
    if "@" in url:
        return (
            "the broker's URL cannot be read; percent-encode its password, with %2F for /, %23 for #, %3F for ?, "
            "%40 for @"
        )
    return f"the broker's URL cannot be read; write one such as {DEFAULT_URL!r}"


class Brokers(Value):
    """One broker, or several that stand in for each other. `repr` and `str` never show a password.

    Args:
        brokers: the primary and its replacements, in the order in which they are tried.

    Raises:
        InvalidValue: there is no broker, or one of them twice.
    """

    __slots__ = ("all",)
    all: tuple[Broker, ...]

    def __init__(self, *brokers: Broker) -> None:
        if not brokers:
            raise InvalidValue(f"the list of brokers is empty; write a URL such as {DEFAULT_URL!r}")
        for number, broker in enumerate(brokers, 1):
            if any(same(broker, other) for other in brokers[: number - 1]):
                raise InvalidValue(f"broker {number} of {len(brokers)} is {broker} again; write each broker once")
        self._hold(all=brokers)

    @property
    def primary(self) -> Broker:
        """The broker that is tried first."""
        return self.all[0]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __repr__(self) -> str:
        return f"Brokers({self})"

    def __str__(self) -> str:
        return ", ".join(map(str, self.all))

    @classmethod
    def of(cls, given: object) -> Self:
        """Read what `App` is given: a URL, a `Broker`, a list of them, or brokers.

        Raises:
            InvalidType, InvalidValue: an item is wrong; the message names it, and shows no password.
        """
        if isinstance(given, cls):
            return given
        brokers, faults = read_urls(given)
        raise_together(faults)
        return cls(*brokers)

    @classmethod
    def from_section(cls, section: Mapping[str, object]) -> Self:
        """Read the section ``mqtt`` of settings: a ``url`` or several, or one broker by its parts; see
        `Broker.from_section`. Credentials join each URL that has none.

        Raises:
            InvalidValue, InvalidType: it names the key.
        """
        urls = split(section["url"]) if "url" in section else [None]
        return cls(*(Broker.from_section(section if url is None else {**section, "url": url}) for url in urls))


def same(broker: Broker, other: Broker) -> bool:
    """Whether two brokers have one address, with any credentials."""
    return str(broker) == str(other) and (broker.path == other.path or not broker.websocket)


def split(urls: object) -> list[object]:
    """The items of a list, or of a text with commas or white space between URLs. Anything else is one item."""
    urls = reveal(urls)
    if isinstance(urls, str):
        return list(split_urls(urls))
    return list(urls) if isinstance(urls, list | tuple) else [urls]


def read_urls(urls: object) -> tuple[list[Broker], list[ConfigurationError]]:
    """Read each URL by itself. Returns the brokers, and the faults of the others; each names its item."""
    items = split(urls)
    brokers: list[Broker] = []
    faults: list[ConfigurationError] = []
    for number, item in enumerate(items, 1):
        try:
            brokers.append(item if isinstance(item, Broker) else Broker.from_url(item))
        except ConfigurationError as error:
            which = f"broker {number} of {len(items)}: " if len(items) > 1 else ""
            faults.append(type(error)(f"{which}{error}"))
    if not items:
        faults.append(InvalidType(f"the list of brokers is empty; write a URL such as {DEFAULT_URL!r}"))
    return brokers, faults


def check_files(brokers: Brokers) -> None:
    """Check that the files that TLS needs can be read; see `Broker.check_files`. Of several brokers the message names
    the one that needs a file.

    Raises:
        InvalidValue, SettingsError: files cannot be read, one a line.
    """
    faults: list[ConfigurationError] = []
    for broker in brokers:
        try:
            broker.check_files()
        except ConfigurationError as error:
            which = f"{broker}: " if len(brokers) > 1 else ""
            faults += [InvalidValue(f"{which}{line}") for line in str(error).splitlines()]
    raise_together(faults)


def why_unreadable(path: str) -> str | None:
    """Why a file cannot be one of certificates or keys; None if it can. OpenSSL waits for the other end of a pipe, and
    reads a device for ever."""
    try:
        size = len(read_given(path, MAX_FILE_BYTES))
    except OSError as error:
        return error.strerror or type(error).__name__
    return f"it has more than {MAX_FILE_BYTES} bytes" if size > MAX_FILE_BYTES else None


# The section ``mqtt`` of the settings, in which each value has its origin.


def brokers_of(entries: Entries) -> Brokers:
    """Read the brokers from settings entries: from URLs or from the parts of one, whichever has the higher rank.
    Credentials are added to a URL that has none.

    Raises:
        ConfigurationError: values are wrong, one a line; the message names their origins.
    """
    section = {key: entry for key, entry in entries.items() if key not in IDENTITY_KEYS}
    url, parts = section.get("url"), {key: section[key] for key in ("host", "port", "tls") if key in section}
    faults: list[ConfigurationError] = []
    if url is not None and parts:
        rival, part = max(parts.items(), key=lambda item: item[1].rank)
        if part.rank == url.rank:
            both = f"mqtt.url (from {url.origin}) and mqtt.{rival} (from {part.origin}) are both set"
            faults.append(InvalidValue(f"{both}; write only one of them"))
        else:
            losers: tuple[str, ...] = ("url",) if part.rank > url.rank else tuple(parts)
            for loser in losers:
                section.pop(loser)
    for key, entry in section.items():
        found = read_urls(entry.value)[1] if key == "url" else []
        try:
            check_key(key, entry.value)
        except ConfigurationError as error:
            found.append(error)
        faults += [type(error)(f"{error} (from {entry.origin})") for error in found]
    raise_together(faults)
    try:
        return Brokers.from_section({key: entry.value for key, entry in section.items()})
    except ConfigurationError as error:
        raise type(error)(f"{error}{'' if url is None else f' (from {url.origin})'}") from None


def with_credentials(declared: Brokers, entries: Entries) -> Brokers:
    """The brokers that the author declared, with the user and the password of the settings where they have none.

    Raises:
        ConfigurationError: the settings have other parts of a broker; the message names their origins.
    """
    given = {key: entry for key, entry in entries.items() if key not in IDENTITY_KEYS}
    rest = [key for key in given if key not in ("username", "password")]
    if rest:
        raise InvalidValue(
            f"mqtt.{rest[0]} (from {given[rest[0]].origin}) belongs to no broker of the settings; write mqtt.host or"
            " mqtt.url, too, which replace App(mqtt=…)"
        )
    if not given:
        return declared
    for key, entry in given.items():
        try:
            check_key(key, entry.value)
        except ConfigurationError as error:
            raise type(error)(f"{error} (from {entry.origin})") from None
    found = {key: str(entry.value) for key, entry in given.items()}
    return Brokers(*(each.completed(found) for each in declared.all))
