"""Which node read each device last, in the demo of a cluster, and how long devices waited."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.demo.cluster import Takeovers

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
def test_each_device_belongs_to_the_node_of_its_last_reading(readings):
    account, _ = after(readings)
    last = {device: node for device, node, _ in readings}

    assert {node: account.owned(node) for node in NODES} == {
        node: sorted(device for device, owner in last.items() if owner == node) for node in NODES
    }


@given(READINGS)
def test_a_device_moves_as_often_as_another_node_reads_it(readings):
    account, now = after(readings)
    moves = 0
    for name in "abc":
        nodes = [node for device, node, _ in readings if device == name]
        moves += sum(one != two for one, two in itertools.pairwise(nodes))

    assert len(account.gaps) == moves
    assert all(0.0 <= gap <= now for gap in account.gaps)


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


def test_an_account_has_what_moved_since_the_one_before_it():
    account, now = after([("a", "pi-1", 0.0), ("b", "pi-2", 0.0), ("a", "pi-3", 4.0), ("b", "pi-1", 1.0)])

    assert account.account() == "2 devices moved, longest gap 5.0 s, median 5.0 s"
    assert account.account() == "no device changed its node"
    account.hear("a", "pi-2", now + 0.5)
    assert account.account() == "1 device moved, longest gap 1.5 s, median 1.5 s"
