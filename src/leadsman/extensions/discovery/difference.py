"""What leads from the description of a device that the broker has to the one that is wanted. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from leadsman.extensions.discovery.description import RetainedMessage
from leadsman.extensions.discovery.homeassistant import HomeAssistant

Descriptions = Mapping[str, bytes]
"""The messages that describe one device, by topic."""


class Difference(NamedTuple):
    """What is to be done."""

    foreign: Sequence[str]
    """Topics at which another program published. If the device has one of them, nothing may be done."""
    moves: Sequence[RetainedMessage]
    """The messages that ask readers, one after the other, to let go of what is at another topic from then on. They are
    not retained, and go before the others."""
    publish: Sequence[Sequence[RetainedMessage]]
    """The steps for each message that differs."""
    remove: Sequence[str]
    """Topics of this app that the device no longer has."""


def difference(
    convention: HomeAssistant, known: Descriptions, wanted: Sequence[RetainedMessage], unloaded: Collection[str] = ()
) -> Difference:
    """Compare the description of a device with what the broker has.

    Args:
        convention: whose description it is.
        known: what the broker has. A payload is empty where it is known to be this app's.
        wanted: what it should have; empty if there is no such device.
        unloaded: topics of which readers have let go.
    """
    payloads = dict(wanted)
    foreign = [
        topic
        for topic, payload in known.items()
        if payload not in (b"", payloads.get(topic)) and not convention.is_ours(payload)
    ]
    ours = {topic: payload for topic, payload in known.items() if topic not in foreign}
    several = ours and payloads and len({*ours, *payloads}) > 1
    before = {topic: payload for topic, payload in ours.items() if topic not in unloaded}
    steps = [convention.steps(before.get(each.topic, b""), each) for each in wanted]
    return Difference(
        foreign,
        convention.moves(ours, wanted) if several and not unloaded else (),
        [each for each in steps if each],
        [topic for topic in ours if topic not in payloads],
    )
