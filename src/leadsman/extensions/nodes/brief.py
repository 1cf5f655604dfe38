"""A node, as the other nodes and the app itself see it: in the heartbeat, in introspection and in the metrics."""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
    get_args,
)

from typing_extensions import TypedDict

from leadsman.core.document import Time
from leadsman.core.mqtt.answers import Json, object_in

State = Literal["active", "standby", "taking_over", "fenced", "draining"]
"""``active``: it polls what it owns. ``standby``: it owns nothing, and would take over. ``taking_over``: it is about to
be active. ``fenced``: it may not act, and stops what it did. ``draining``: it hands over its devices, or has done so,
and accepts nothing."""
STATES: tuple[State, ...] = get_args(State)

LIFE = 3
"""TTL after which the broker forgets the document of a node that is not written again (MQTT 5)."""


class Brief(TypedDict):
    """A node, as the other nodes see it."""

    node: str
    """Its name."""
    state: State
    """What it does."""
    since: NotRequired[Time]
    """Since when. Left out where that is not known."""
    labels: list[str]
    """What it has that others may lack, such as ``ble``."""
    devices: NotRequired[int]
    """How many it owns. Left out where that is not known."""
    shards: NotRequired[int]
    """How many it owns. Only in a cluster."""
    version: str
    """The version of the app that it runs."""


def counts_text(counts: Json) -> str:
    """How many nodes there are of each kind, as a heartbeat has it: ``1 active, 2 standby``. Empty for what is no such
    count."""
    found = counts if isinstance(counts, dict) else {}
    numbers = ((state, found.get(state)) for state in STATES)
    return ", ".join(
        f"{number} {state.replace('_', ' ')}" for state, number in numbers if type(number) is int and 0 < number < 2**63
    )


def is_online(payload: bytes) -> bool | None:
    """Whether a document at a topic ``status`` shows its sender as online; None if it shows neither state."""
    state = (object_in(payload) or {}).get("state")
    return state == "online" if state in ("online", "offline") else None
