"""What is published and removed, so that a broker has the description of a device: a function of what it has and of
what is wanted."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.extensions.discovery.description import RetainedMessage
from leadsman.extensions.discovery.difference import difference

TOPICS = st.sampled_from(["a", "a--0", "a--1", "b"])
OURS = st.sampled_from([b"ours 1", b"ours 2", b"ours 3"])
THEIRS = st.sampled_from([b"theirs", b"{}"])
WANTED = st.dictionaries(TOPICS, OURS)


class Rules:
    """A convention that goes from one message to the next by way of a third, and lets go of what is elsewhere."""

    def is_ours(self, payload):
        return payload.startswith(b"ours")

    def steps(self, found, wanted):
        if found == wanted.payload:
            return ()
        return (RetainedMessage(wanted.topic, b"ours between"), wanted) if found else (wanted,)

    def moves(self, found, wanted):
        return [RetainedMessage(topic, b"let go") for topic in found.keys() - dict(wanted).keys()]


def compared(known, wanted, unloaded=()):
    return difference(Rules(), known, [RetainedMessage(*each) for each in wanted.items()], unloaded)


def after(known, change):
    """What the broker has when all of it is done."""
    found = dict(known)
    for step in (step for steps in change.publish for step in steps):
        found[step.topic] = step.payload
    return {topic: payload for topic, payload in found.items() if topic not in change.remove}


@given(st.dictionaries(TOPICS, OURS), WANTED)
def test_the_broker_has_what_is_wanted_and_nothing_more_and_then_nothing_is_left_to_do(known, wanted):
    change = compared(known, wanted)

    assert after(known, change) == wanted
    assert [list(each) for each in compared(wanted, wanted)] == [[], [], [], []]
    assert {steps[-1].topic for steps in change.publish} == {
        topic for topic, payload in wanted.items() if known.get(topic) != payload
    }


@given(st.dictionaries(TOPICS, OURS | THEIRS), WANTED)
def test_what_another_program_published_is_named_and_not_removed(known, wanted):
    change = compared(known, wanted)
    theirs = {topic for topic, payload in known.items() if not payload.startswith(b"ours")}

    assert {*change.foreign} == theirs
    assert not theirs & {*change.remove}
    assert not theirs & {each.topic for each in change.moves}


@given(st.dictionaries(TOPICS, OURS | THEIRS | st.just(b"")))
def test_nothing_describes_a_device_that_is_gone(known):
    change = compared(known, {})

    assert {*change.remove} | {*change.foreign} == known.keys()
    assert not {topic for topic, payload in known.items() if payload == b""} & {*change.foreign}
    assert (change.moves, change.publish) == ((), [])


@given(st.dictionaries(TOPICS, OURS), WANTED)
def test_readers_let_go_before_something_is_elsewhere_and_once(known, wanted):
    change = compared(known, wanted)
    moved = {each.topic for each in change.moves}

    assert moved == (known.keys() - wanted.keys() if wanted else set())
    again = compared(known, wanted, moved or {"c"})
    assert again.moves == ()
    assert after(known, again) == wanted
    assert [steps for steps in again.publish if steps[0].topic in moved and len(steps) > 1] == []
