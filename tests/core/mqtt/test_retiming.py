import json

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.loop.clock import rfc3339, system_clock
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.send_window import STEP, is_off, retime
from leadsman.testing import VirtualLoop

IN_1970, IN_2026 = 30.25, 1_767_225_600.5


def message(taken_at=IN_1970, payload=b"{}"):
    return Message("t", payload, taken_at=taken_at, clock_offset=0.0)


def test_a_reading_gets_the_time_that_the_clock_gives_it_now():
    right = retime(message(), IN_2026 - IN_1970)

    assert right.taken_at == IN_2026
    assert not is_off(right, IN_2026 - IN_1970)


def test_a_time_in_the_payload_is_set_too_and_nothing_else_there():
    payload = f'{{"t":30.25,"since":"{rfc3339(IN_1970)}","taken_at":"{rfc3339(IN_1970)}"}}'.encode()

    right = json.loads(retime(message(payload=payload), IN_2026 - IN_1970).payload)

    assert right == {"t": 30.25, "since": rfc3339(IN_1970), "taken_at": rfc3339(IN_2026)}


def test_a_time_at_a_topic_of_its_own_is_set_too_and_no_other_value():
    of_reading = message(payload=rfc3339(IN_1970).encode())

    assert retime(of_reading._replace(topic="a/d/taken_at"), IN_2026 - IN_1970).payload == rfc3339(IN_2026).encode()
    assert retime(of_reading._replace(topic="a/d/since"), IN_2026 - IN_1970).payload == rfc3339(IN_1970).encode()


@given(st.floats(-STEP, STEP))
def test_a_clock_that_drifts_sets_no_reading(drift):
    assert not is_off(message(), drift)


@given(st.floats(-1e9, 1e9), st.floats(-1e6, 1e6))
def test_setting_the_clock_moves_the_time_of_a_reading_by_as_much(taken_at, step):
    if is_off(message(taken_at), step):
        assert abs(retime(message(taken_at), step).taken_at - taken_at - step) < 1e-3


def test_a_message_that_is_no_reading_has_no_time_to_set():
    assert not is_off(Message("t", b"{}"), IN_2026)


def test_the_offset_of_the_clock_changes_when_it_is_set_not_while_time_passes():
    loop = VirtualLoop()
    clock = system_clock(loop)
    before = clock.offset()

    loop.block(3600.0)
    assert clock.offset() == before
    loop.step_wall(-60.0)
    assert clock.offset() == before - 60.0
    loop.close()
