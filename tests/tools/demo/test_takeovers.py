"""Which node read each device last, in the demo of a cluster, and how long devices waited."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.cli.screen import text_of
from leadsman.tools.demo.board import ClusterBoard, Takeovers, describe_takeovers

NODES = ("pi-1", "pi-2", "pi-3")
READINGS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(NODES), st.floats(0.0, 2.0)), min_size=1
)


def after(readings):
    """An account of readings, each so many seconds after the one before it; and the time."""
    account, now = Takeovers(), 0.0
    for device, node, wait in readings:
        now += wait
        account.hear(device, node, now)
    return account, now


@given(READINGS)
def test_each_device_belongs_to_the_node_of_its_last_reading_and_each_reading_is_counted(readings):
    account, _ = after(readings)

    assert {device: node for device, (node, _) in account.devices.items()} == {
        device: node for device, node, _ in readings
    }
    assert sum(account.readings.values()) == len(readings)
    assert sorted(device for node in NODES for device in account.owned(node)) == list(account.devices)


@given(READINGS)
def test_a_device_changes_its_node_as_often_as_another_node_reads_it(readings):
    account, now = after(readings)
    changes = 0
    for name in "abc":
        nodes = [node for device, node, _ in readings if device == name]
        changes += sum(one != two for one, two in itertools.pairwise(nodes))

    assert len(account.changes) == changes
    assert all(0.0 <= change.gap <= now and change.before != change.node for change in account.changes)


@pytest.mark.parametrize(
    ("nodes", "count", "now", "settled"),
    [
        (("pi-1", "pi-2"), 2, 13.0, True),
        (("pi-1", "pi-2", "pi-3"), 2, 13.0, False),  # pi-3 reads nothing yet
        (("pi-1",), 2, 13.0, False),  # pi-2 still does
        (("pi-1", "pi-2"), 3, 13.0, False),  # a device was never read
        (("pi-1", "pi-2"), 2, 14.5, False),  # they are silent
        (("pi-1", "pi-2"), 2, 12.2, False),  # a device has just changed its node
    ],
)
def test_nodes_have_settled_when_they_read_all_devices_and_none_changes_its_node(nodes, count, now, settled):
    account, _ = after(
        [("a", "pi-3", 10.0), ("b", "pi-2", 0.0), ("a", "pi-1", 0.5), ("a", "pi-1", 1.8), ("b", "pi-2", 0.1)]
    )

    assert account.settled(nodes, count, now, 2.0) is settled


def test_what_came_of_a_fault_is_said_of_the_devices_of_its_node():
    account, _ = after([("a", "pi-1", 0.0), ("b", "pi-2", 0.0), ("a", "pi-3", 4.0), ("b", "pi-1", 1.0)])

    assert describe_takeovers(account.since(1.0, "pi-1")) == ("1 device moved, longest gap 4.0 s, median 4.0 s")
    assert describe_takeovers(account.since(1.0)) == ("2 devices moved, longest gap 5.0 s, median 5.0 s")
    assert describe_takeovers(account.since(4.5, "pi-1")) == "no device changed its node"


@pytest.mark.parametrize("size", [(80, 24), (60, 14), (120, 40)])
def test_the_board_shows_who_reads_what_and_fits_the_terminal(size):
    width, height = size
    account, now = after([("a", "pi-1", 0.0), ("b", "pi-2", 0.0), ("a", "pi-1", 5.0), ("c", "pi-3", 0.0)])
    board = ClusterBoard(account, dict.fromkeys(NODES, "running"), "mqtt://127.0.0.1:47813 (a mosquitto of its own)")
    board.events.extend(f"12:00:{number:02} something happened" for number in range(40))
    lines = [text_of(line, colour=False) for line in board.screen(now, width, height)]

    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert "1 · 3" in lines  # b is silent
    assert [line.split()[2] for line in lines if line.startswith("pi-")] == ["1", "0", "1"]
    assert lines[-1] == "12:00:39 something happened"
