"""The brokers of an app: one, or a primary and its replacements, in the order in which they are tried."""

from collections.abc import Iterator, Mapping
from typing import Self

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, raise_together
from leadsman.mqtt.broker import DEFAULT_URL, Broker, check_key
from leadsman.redaction import revealed
from leadsman.text import split_urls
from leadsman.value import Value

FOLLOW = "follow_server_reference"
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")


class Brokers(Value):
    """One broker, or several that stand in for each other. `repr` and `str` never show a password.

    Args:
        brokers: the primary and its replacements, in the order in which they are tried.
        follow_server_reference: whether the app goes where a broker sends it (MQTT 5 §4.11, Server Reference). It takes
            the user name and the password along, and keeps TLS if it has TLS.

    Raises:
        InvalidValue: there is no broker, or one of them twice.
    """

    __slots__ = ("all", "follow_server_reference")
    all: tuple[Broker, ...]
    follow_server_reference: bool

    def __init__(self, *brokers: Broker, follow_server_reference: bool = False) -> None:
        if not brokers:
            raise InvalidValue(f"the list of brokers is empty; write a URL such as {DEFAULT_URL!r}")
        for number, broker in enumerate(brokers, 1):
            if any(same(broker, other) for other in brokers[: number - 1]):
                raise InvalidValue(f"broker {number} of {len(brokers)} is {broker} again; write each broker once")
        self._hold(all=brokers, follow_server_reference=follow_server_reference)

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
            InvalidType, InvalidValue: an item is wrong; the message says which one, and shows no password.
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
        follow = section.get(FOLLOW, False)
        check_setting(FOLLOW, follow)
        rest = {key: value for key, value in section.items() if key != FOLLOW}
        urls = split(rest["url"]) if "url" in rest else [None]
        brokers = [Broker.from_section(rest if url is None else {**rest, "url": url}) for url in urls]
        return cls(*brokers, follow_server_reference=str(follow).lower() in _TRUE)


def same(broker: Broker, other: Broker) -> bool:
    """Whether two brokers have one address, whoever connects there."""
    return str(broker) == str(other) and (broker.path == other.path or not broker.websocket)


def check_setting(key: str, value: object) -> None:
    """Check one value of the section ``mqtt``, independently of the others.

    Raises:
        InvalidValue, InvalidType: it names the key.
    """
    if key == FOLLOW:
        if str(value).lower() not in (*_TRUE, *_FALSE):
            raise InvalidValue(f"mqtt.{FOLLOW} is {value!r}; write true or false")
    elif key != "url":
        check_key(key, value)


def split(urls: object) -> list[object]:
    """The items of a list, or of a text with commas or white space between URLs. Anything else is one item."""
    urls = revealed(urls)
    if isinstance(urls, str):
        return list(split_urls(urls))
    return list(urls) if isinstance(urls, list | tuple) else [urls]


def read_urls(urls: object) -> tuple[list[Broker], list[ConfigurationError]]:
    """Read each URL by itself. Returns the brokers, and the faults of the others; each says which one it is about."""
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
