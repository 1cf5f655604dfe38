"""What happened to the readings of one device after they were taken: published or not, in the outbox, refused."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from leadsman.mqtt.answers import Json
from leadsman.mqtt.link import Link
from leadsman.runtime.publisher import Publication, StatePublisher
from leadsman.timing.clock import Clock, rfc3339

if TYPE_CHECKING:
    from leadsman.introspection.explanations import Away, Compared, DeviceOutbox, Published

MOST_COMPARED = 20
"""Fields of a reading that are compared in the document."""
LONGEST_VALUE = 100
"""Characters of a text in a comparison."""


def after_reading(publisher: StatePublisher, link: Link, clock: Clock) -> dict[str, object]:
    """The fields of `Runtime` about readings that were taken."""
    found: dict[str, object] = {"published": published(publisher.publication)}
    if (waiting := in_outbox(link, publisher.topics, clock)) is not None:
        found["outbox"] = waiting
    return found


def away(link: Link, clock: Clock) -> "Away":
    """The field of `MqttSection` about a connection that is lost."""
    since = link.choice.away_since
    if link.up or since is None:
        return {}
    return {"away_since": rfc3339(clock.wall() - clock.monotonic() + since)}


def published(publication: Publication) -> "Published":
    """What the publisher of a device did with its readings."""
    found: Published = {
        "published_at": None if publication.at is None else rfc3339(publication.at),
        "suppressed": publication.suppressed,
    }
    if publication.last is not None and publication.refused is not None:
        found["compared"] = compared(publication.last, publication.refused)
    return found


def compared(before: Mapping[str, Json], after: Mapping[str, Json]) -> "dict[str, Compared]":
    """The numbers, texts and other values of two readings that a publish rule compared, at most `MOST_COMPARED`. Names
    of nested fields have dots. Fields that differ come first."""
    old, new = dict(_fields(before, "")), dict(_fields(after, ""))
    names = sorted({**old, **new}, key=lambda name: old.get(name) == new.get(name))
    return {name: {"published": _short(old.get(name)), "read": _short(new.get(name))} for name in names[:MOST_COMPARED]}


def says_nothing(link: Link, topics: Sequence[str]) -> bool:
    """Whether there is nothing to say of the topics of a device: no message of them waits, and the broker refused
    none."""
    return not any(topic in link.outbox or link.fault_of(topic) is not None for topic in topics)


def in_outbox(link: Link, topics: Sequence[str], clock: Clock) -> "DeviceOutbox | None":
    """Where the readings of a device are in the outbox, and what the broker said of them; None if there is nothing to
    say. It is about one of their topics: one that the broker refuses, or else the first that has readings there."""
    faults = {topic: fault for topic in topics if (fault := link.fault_of(topic)) is not None}
    topic = next(iter((*faults, *(each for each in topics if each in link.outbox))), None)
    if topic is None:
        return None
    standing = link.outbox.standing(topic)
    until, since = standing.paused_until, standing.since
    return {
        "topic": topic,
        "messages": standing.messages,
        "in_flight": standing.in_flight,
        "topics_before": standing.before,
        "oldest": None if since is None else round(clock.uptime() - since, 3),
        "paused_for": None if until is None else round(max(0.0, until - clock.monotonic()), 3),
        "refused": faults.get(topic),
    }


def _fields(reading: Mapping[str, Json], path: str) -> Iterator[tuple[str, Json]]:
    for name, value in reading.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _short(value: Json) -> Json:
    """A value that is fit for a comparison by a person."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
