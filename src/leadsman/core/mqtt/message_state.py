"""The states of a message of the outbox and of its row on disk, and the tables of their transitions. Pure.

Both change independently of each other: a message is handed out while its row is being written, and a row is deleted
while its message waits. So an item has two states, as the orthogonal regions of a statechart (Harel, "Statecharts: a
visual formalism for complex systems", 1987), and there is a table for each. `Item.move` and `Item.change_row` are the
only places that change them. A transition that is not in its table is a fault of the program.

A reading that is on disk only has no item: its row is counted, and an item is made of it when it is read back.
"""

from collections.abc import Mapping
from enum import StrEnum

from leadsman.core.mqtt.message import Message


class Place(StrEnum):
    """Where a message is."""

    WAITING = "waiting"
    """In memory, in the queue of its topic."""
    HELD = "held"
    """In memory, and not offered to the broker before it is written, since older readings of its topic are on disk
    only, or the memory has no room."""
    IN_FLIGHT = "in flight"
    """With the connection, and not acknowledged."""
    ON_DISK = "on disk only"
    """Its row is all there is."""
    GONE = "gone"
    """It arrived, was dropped, or was replaced."""


class PlaceEvent(StrEnum):
    """Events that move a message from one place to another."""

    HOLD = "older ones on disk"
    RELEASE = "none on disk"
    PUT_AWAY = "written"
    READ_BACK = "read back"
    HAND_OUT = "handed out"
    RETURN = "cut, or refused for now"
    ARRIVE = "acknowledged"
    DROP = "dropped"
    REPLACE = "replaced"
    """Only the latest counts, and a newer one waits or arrived."""
    MERGE = "merged"
    """Only the latest counts: it waits in the item of an older one from now on."""


class RowState(StrEnum):
    """The row on disk of a message, while it is not there only."""

    NONE = "none"
    """It is no reading, or a newer one has its row: nothing of it is written."""
    UNWRITTEN = "unwritten"
    """A reading that is to be written."""
    REPLACING = "replacing"
    """The same. The row of an older reading, whose place it took, stays until then."""
    WRITING = "being written"
    WRITTEN = "written"
    EVICTED = "evicted"
    """Its row was deleted to make room. It is not written again."""
    REPEATED = "repeated"
    """A message that arrived before and is sent again. It is not written, and counts as no loss."""


class RowEvent(StrEnum):
    """Events that change the row of a message."""

    WRITE = "write begins"
    COMMIT = "committed"
    FAIL = "write failed"
    EVICT = "row deleted"
    """To make room, or because nobody wants it any more."""
    RENEW = "renewed"
    """Only the latest counts, and a newer reading takes its place in the item."""
    INHERIT = "inherits"
    """Only the latest counts, and the row of an older reading stays until this one is written."""
    PASS_ON = "row passed on"
    """Only the latest counts, and a newer reading has the row from now on."""
    FORGET = "file replaced"
    """Somebody put another file there, or none."""


WAITING, HELD, IN_FLIGHT, ON_DISK, GONE = Place
HOLD, RELEASE, PUT_AWAY, READ_BACK, HAND_OUT, RETURN, ARRIVE, DROP, REPLACE, MERGE = PlaceEvent
NONE, UNWRITTEN, REPLACING, WRITING, WRITTEN, EVICTED, REPEATED = RowState
WRITE, COMMIT, FAIL, EVICT, RENEW, INHERIT, PASS_ON, FORGET = RowEvent

PLACES: Mapping[tuple[Place, PlaceEvent], Place] = {
    (WAITING, HAND_OUT): IN_FLIGHT,
    (WAITING, HOLD): HELD,
    (WAITING, DROP): GONE,
    (WAITING, REPLACE): GONE,
    (WAITING, MERGE): GONE,
    (HELD, RELEASE): WAITING,
    (HELD, PUT_AWAY): ON_DISK,
    (HELD, DROP): GONE,
    (IN_FLIGHT, RETURN): WAITING,
    (IN_FLIGHT, ARRIVE): GONE,
    (IN_FLIGHT, DROP): GONE,
    (ON_DISK, READ_BACK): WAITING,
}
"""Where a message is after an event. A message begins in `WAITING`; a row of an earlier life begins in `ON_DISK`."""

ROWS: Mapping[tuple[RowState, RowEvent], RowState] = {
    (NONE, RENEW): NONE,
    (UNWRITTEN, WRITE): WRITING,
    (UNWRITTEN, RENEW): UNWRITTEN,
    (UNWRITTEN, INHERIT): REPLACING,
    (REPLACING, WRITE): WRITING,
    (REPLACING, COMMIT): REPLACING,  # the older one was written meanwhile
    (REPLACING, FAIL): UNWRITTEN,  # the older one was not
    (REPLACING, EVICT): UNWRITTEN,
    (REPLACING, RENEW): REPLACING,
    (REPLACING, PASS_ON): NONE,
    (REPLACING, FORGET): UNWRITTEN,
    (WRITING, COMMIT): WRITTEN,
    (WRITING, FAIL): UNWRITTEN,
    (WRITING, RENEW): REPLACING,
    (WRITING, PASS_ON): NONE,
    (WRITTEN, EVICT): EVICTED,
    (WRITTEN, RENEW): REPLACING,
    (WRITTEN, PASS_ON): NONE,
    (WRITTEN, FORGET): UNWRITTEN,
    (EVICTED, RENEW): UNWRITTEN,
    (REPEATED, RENEW): UNWRITTEN,
}
"""The row of a message after an event. A reading begins as `UNWRITTEN`, another message as `NONE`, one that is
sent again as `REPEATED`, and one that is read back as `WRITTEN`."""

NOT_IN_MEMORY = frozenset((ON_DISK, GONE))
"""Places of messages that are not in memory."""
HAS_ROW = frozenset((REPLACING, WRITING, WRITTEN))
"""A row is on disk, or about to be, that must be deleted when the message has gone."""
STORABLE = frozenset((UNWRITTEN, *HAS_ROW))
"""The message is on disk, or will be."""
UNKEPT = frozenset((UNWRITTEN, REPLACING, EVICTED))
"""A reading that is lost with the process."""

FREED = Message("", b"")
"""Stands in an `Item` whose message is not in memory any more, so that its bytes are free."""


class Item:
    """A message in the outbox, and its state."""

    __slots__ = (
        "acknowledged",
        "followed",
        "listed",
        "message",
        "number",
        "place",
        "row",
        "row_state",
        "sent_at",
        "size",
    )

    def __init__(self, number: int, message: Message, size: int) -> None:
        self.number = number
        """Its place in the order in which messages were put."""
        self.message = message
        self.size = size
        """See `Message.size`."""
        self.listed = True
        """Whether the outbox finds it when it makes room."""
        self.place = WAITING
        self.row_state = NONE if message.taken_at is None else UNWRITTEN
        self.row = number
        """The number of its row, if it has one. While it is `REPLACING`, that of the older reading."""
        self.followed = False
        """Whether it was handed out while a newer reading of its topic waited, so that it is sent without the retain
        flag."""
        self.acknowledged = False
        """Whether the broker has acknowledged it before an older one of its topic, so that it does not count yet."""
        self.sent_at = 0.0
        """When it was sent last, monotonic seconds."""

    def move(self, event: PlaceEvent) -> None:
        """Change the place as `PLACES` has it.

        Raises:
            KeyError: this event does not happen to a message that is there.
        """
        self.place = PLACES[self.place, event]

    def change_row(self, event: RowEvent) -> None:
        """Change the state of the row as `ROWS` has it.

        Raises:
            KeyError: this event does not happen to a row in this state.
        """
        self.row_state = ROWS[self.row_state, event]

    @property
    def is_unstored(self) -> bool:
        """Whether it is a reading that is to be written, and is not being written."""
        return (self.row_state is UNWRITTEN or self.row_state is REPLACING) and self.place is not GONE


def repeat_message(number: int, message: Message) -> Item:
    """A message that is sent again, arrived before, and is never stored."""
    item = Item(number, message._replace(receipt=None), message.size)
    item.row_state = REPEATED
    return item


def find_on_disk(number: int, message: Message) -> Item:
    """A reading that is on disk only and is read back, with the number of its row."""
    item = Item(number, message, message.size)
    item.place, item.row_state = ON_DISK, WRITTEN
    return item


def sent_again(item: Item) -> Item:
    """Stands for an item on a connection that answers to it, though it is sent again in any case: the broker refused an
    older one of its topic."""
    stands = Item(item.number, FREED, item.size)
    stands.sent_at = item.sent_at
    return stands
