"""Reads the broker, the topic prefix and the client id from the section ``mqtt`` of the settings."""

from collections.abc import Callable, Mapping

from leadsman.errors import ConfigurationError, InvalidValue
from leadsman.mqtt.broker import Broker
from leadsman.settings.sources import Entry


def broker_of(entries: Mapping[str, Entry]) -> Broker:
    """Read the broker from settings entries: from a URL or from its parts, whichever has the higher rank. Credentials
    are added to a URL that has none.

    Raises:
        ConfigurationError: a value is wrong; the message names its origin.
    """
    section = {key: entry for key, entry in entries.items() if key not in ("topic_prefix", "client_id")}
    url, parts = section.get("url"), {key: section[key] for key in ("host", "port", "tls") if key in section}
    if url is not None and parts:
        key, part = max(parts.items(), key=lambda item: item[1].rank)
        if part.rank == url.rank:
            raise InvalidValue(f"mqtt has a url (from {url.origin}) and {key} (from {part.origin}); one is enough")
        for loser in ("url",) if part.rank > url.rank else tuple(parts):
            section.pop(loser)
    try:
        return Broker.from_section({key: entry.value for key, entry in section.items()})
    except ConfigurationError as error:
        origins = ", ".join(sorted({entry.origin for entry in section.values()}))
        raise type(error)(f"{error} (from {origins})") from None


def checked(entry: Entry, check: Callable[[object], str]) -> str:
    """Check the value of an entry of the section ``mqtt``. An error that `check` raises gets the value's origin."""
    try:
        return check(entry.value)
    except ConfigurationError as error:
        raise type(error)(f"mqtt.{entry.path[-1]}: {error} (from {entry.origin})") from None
