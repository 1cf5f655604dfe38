"""Notices that are made of events."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.events import CircuitMoved, LinkDown, LinkUp, PollFailed, ReadingTaken
from leadsman.notices import (
    BrokerConnected,
    BrokerLost,
    CircuitClosed,
    CircuitOpened,
    DeviceFailed,
    DeviceRecovered,
    Notices,
)

WALL = 1_767_268_800.0
FAILED = st.builds(PollFailed, st.sampled_from("ab"), st.just(OSError("away")), st.just(1))
READ = st.builds(ReadingTaken, st.sampled_from("ab"), st.just(0.0), st.just(0.0), st.just(0.1))
MOVED = st.builds(
    CircuitMoved, st.sampled_from("ab"), st.sampled_from(["open", "half_open", "closed", "isolated"]), st.just(3)
)
DOWN = st.builds(LinkDown, st.just("gone"), st.just(1.0))
UP = st.builds(LinkUp, st.just(1), st.just("5.0"), st.just("mqtt5"))


@given(st.lists(st.one_of(FAILED, READ, MOVED, DOWN, UP), max_size=40))
def test_each_begin_is_told_once_before_its_end_and_each_end_after_its_begin(happened):
    notices = Notices()
    stamped = [event._replace(at=float(number), wall=WALL + number) for number, event in enumerate(happened)]
    told = [notice for notice in map(notices.of, stamped) if notice is not None]

    for device in "ab":
        mine = [each for each in told if getattr(each, "device", None) == device]
        for begin, end in ((DeviceFailed, DeviceRecovered), (CircuitOpened, CircuitClosed)):
            kinds = [type(each) for each in mine if isinstance(each, begin | end)]
            assert kinds == [begin if number % 2 == 0 else end for number in range(len(kinds))]
    links = [type(each) for each in told if isinstance(each, BrokerConnected | BrokerLost)]
    assert (BrokerLost, BrokerLost) not in list(pairwise(links))
    assert [each.at for each in told] == sorted(each.at for each in told)


def test_a_device_that_left_begins_anew():
    notices = Notices()
    failed = PollFailed("a", OSError("away"), 1, wall=WALL)

    assert notices.of(failed) is not None
    assert notices.of(failed) is None
    notices.forget("a")
    assert notices.of(failed) is not None
