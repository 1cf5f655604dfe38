"""Reads the brokers, the topic prefix and the client id from the section ``mqtt`` of the settings."""

from collections.abc import Mapping

from leadsman.errors import ConfigurationError, InvalidValue, raise_together
from leadsman.mqtt.broker import Brokers, check_key, read_urls
from leadsman.settings.sections import IDENTITY_KEYS
from leadsman.settings.sources import SettingEntry


def brokers_of(entries: Mapping[str, SettingEntry]) -> Brokers:
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


def with_credentials(declared: Brokers, entries: Mapping[str, SettingEntry]) -> Brokers:
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
    brokers = [each.completed(found) for each in declared.all]
    return Brokers(*brokers, follow_server_reference=declared.follow_server_reference)
