"""Where adapters get their wires. An adapter that opens a port, a pool of connections, a radio or a server asks here,
and gets what it makes itself, unless something records the wires of the app, or plays recorded ones."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal, Protocol, TypeVar

from leadsman.core.adapters.resource import ResourceKind

W = TypeVar("W")
WireKind = ResourceKind | Literal["program"]


class Wires(Protocol):
    """Decides what adapters get as their wires."""

    def wire(self, kind: WireKind, name: str, make: Callable[[], W]) -> W:
        """The wire that an adapter gets instead of the one that `make` makes. The arguments are those of `wire_of`."""
        ...


WIRES: ContextVar[Wires | None] = ContextVar("leadsman_wires", default=None)
"""Around an app: what decides; None: each adapter gets what it makes."""


def wire_of(kind: WireKind, name: str, make: Callable[[], W]) -> W:
    """The wire of an adapter.

    Args:
        kind: whose interface the wire has.
        name: the port, the server or the radio; empty where the adapter names none.
        make: makes the real one.
    """
    wires = WIRES.get()
    return make() if wires is None else wires.wire(kind, name, make)
