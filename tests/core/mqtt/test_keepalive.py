from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.codec_client import KeepAlive
from leadsman.core.mqtt.connection import KEEPALIVE


def test_the_interval_of_the_broker_is_obeyed_and_zero_means_ours():
    assert KeepAlive(60, 0.0).interval == 60
    assert KeepAlive(0, 0.0).interval == KEEPALIVE


def test_a_ping_is_due_when_nothing_was_sent_or_nothing_received():
    silent, deaf = KeepAlive(10, 0.0), KeepAlive(10, 0.0)
    silent.received(9.0)
    deaf.sent(9.0)

    for each in (silent, deaf):
        assert not each.ping_due(9.9)
        assert each.ping_due(10.0)


def test_a_ping_that_is_unanswered_for_the_patience_ends_it_and_any_packet_answers_it():
    keepalive = KeepAlive(10, 0.0)
    keepalive.asked(10.0)
    assert not keepalive.dead(19.9)
    assert keepalive.dead(20.0)

    keepalive.received(19.95)
    assert not keepalive.dead(20.0)


def test_patience_is_no_longer_than_our_own_interval_though_the_broker_asks_for_a_longer_one():
    assert KeepAlive(3600, 0.0).patience == KEEPALIVE
    assert KeepAlive(5, 0.0).patience == 5


@given(
    st.integers(0, 100),
    st.lists(st.tuples(st.floats(0.01, 30), st.sampled_from(["sent", "received", "nothing"])), max_size=60),
)
def test_the_broker_never_waits_longer_than_the_interval_and_silence_is_found_within_twice_it(interval, history):
    keepalive, now = KeepAlive(interval, 0.0), 0.0
    sent = received = 0.0
    for pause, what in history:
        end = now + pause
        while keepalive.next() <= end:
            now = max(now, keepalive.next())
            if keepalive.dead(now):
                assert now - received >= keepalive.patience
                return
            assert keepalive.ping_due(now)
            keepalive.asked(now)
            keepalive.sent(now)
            sent = now
        now = end
        if what == "sent":
            keepalive.sent(now)
            sent = now
        elif what == "received":
            keepalive.received(now)
            received = now

        assert now - sent <= keepalive.interval or now - received <= keepalive.interval + keepalive.patience
        assert now - received <= keepalive.interval + keepalive.patience + 0.001
