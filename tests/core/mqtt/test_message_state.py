"""The tables of the states of a message. That the outbox follows them is a test of the spool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import (
    GONE,
    NONE,
    ON_DISK,
    PLACES,
    REPEATED,
    ROWS,
    UNWRITTEN,
    WAITING,
    WRITTEN,
    Item,
    Place,
    PlaceEvent,
    RowEvent,
    RowState,
    find_on_disk,
    repeat_message,
)

TABLES = [
    (PLACES, Place, PlaceEvent, {WAITING, ON_DISK}),
    (ROWS, RowState, RowEvent, {NONE, UNWRITTEN, REPEATED, WRITTEN}),
]
READING, STATUS = Message("t", b"1", taken_at=1.0), Message("t", b"1")


def reached(table, states):
    """All states that come after some, themselves included."""
    while more := {after for (before, _), after in table.items() if before in states} - states:
        states = states | more
    return states


@pytest.mark.parametrize(("table", "states", "events", "first"), TABLES)
def test_every_state_is_reached_and_every_event_has_a_transition(table, states, events, first):
    assert reached(table, first) == {*states}
    assert {event for _, event in table} == {*events}


def test_a_message_comes_from_every_place_to_its_end_which_it_does_not_leave():
    assert all(GONE in reached(PLACES, {place}) for place in Place)
    assert reached(PLACES, {GONE}) == {GONE}


@given(
    st.sampled_from([Item(1, READING, 61), Item(1, STATUS, 61), repeat_message(1, READING), find_on_disk(1, READING)]),
    st.lists(st.sampled_from([*PlaceEvent, *RowEvent])),
)
def test_no_sequence_of_events_leaves_the_tables(first, events):
    item = Item(1, first.message, first.size)
    item.place, item.row_state = first.place, first.row_state
    for event in events:
        before = item.place, item.row_state
        table, change, place = (
            (PLACES, item.move, item.place)
            if isinstance(event, PlaceEvent)
            else (ROWS, item.change_row, item.row_state)
        )
        if (place, event) in table:
            change(event)
            assert item.place in Place
            assert item.row_state in RowState
        else:
            with pytest.raises(KeyError):
                change(event)
            assert (item.place, item.row_state) == before


def test_only_a_reading_is_to_be_written():
    items = [Item(1, READING, 61), Item(1, STATUS, 61), repeat_message(1, READING), find_on_disk(1, READING)]

    assert [item.is_unstored for item in items] == [True, False, False, False]


def test_a_reading_that_has_gone_is_not_to_be_written():
    item = Item(1, READING, 61)
    item.move(PlaceEvent.DROP)

    assert item.row_state is UNWRITTEN
    assert not item.is_unstored
