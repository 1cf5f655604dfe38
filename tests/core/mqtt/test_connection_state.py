import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.connection_state import (
    DAY,
    DOUBT,
    NOT_LISTENING,
    PATIENT,
    PROOF,
    SETTLED,
    SHORT_LIVED,
    V5,
    V311,
    ConnectionState,
    begin,
    client_id_in_use,
    connected,
    doubt,
    failed,
    interrupted,
    may_be_old,
    misconfigured,
    not_listening,
    refused,
    taken_over,
    try_newer,
)


def outage(seconds, draw=0.5, session=ConnectionState()):
    """Fail for so long; the waits taken, with the time of each."""
    now, waits = 0.0, []
    while now < seconds:
        session, wait = failed(session, now, draw)
        waits.append((now, wait))
        now += wait
    return waits, session


def test_in_the_first_minute_the_waits_are_short_and_fully_jittered():
    waits = [wait for at, wait in outage(59)[0]]

    assert all(0.1 <= wait <= 0.8 for wait in waits)
    assert failed(ConnectionState(), 0.0, 0.0)[1] == 0.1
    assert failed(ConnectionState(), 0.0, 0.999)[1] == pytest.approx(0.8, abs=0.01)


@given(st.lists(st.floats(0, 0.999), min_size=1, max_size=50))
def test_the_wait_after_a_connection_that_lasted_is_spread_further(draws):
    for draw in draws:
        _, lasted = failed(connected(ConnectionState(), 0.0), SETTLED, draw)
        _, flapped = failed(connected(ConnectionState(), 0.0), SETTLED - 0.1, draw)

        assert 0.1 <= flapped <= lasted <= 1.2
        assert flapped <= 0.8


def test_few_of_many_apps_that_lose_their_broker_together_come_back_together():
    dice, shares = random.Random(1), []
    for _ in range(50):
        waits = [failed(ConnectionState(connected_at=0.0), 100.0, dice.random())[1] for _ in range(50)]
        shares.append(max(sum(first <= wait < first + 0.1 for wait in waits) for first in waits) / 50)

    assert sorted(shares)[25] <= 0.2


def test_after_it_they_double_up_to_half_a_minute():
    waits = [wait for at, wait in outage(600, draw=0.99999)[0] if at >= 60]

    assert [round(wait, 1) for wait in waits[:7]] == [1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3600), st.floats(0, 0.999)), max_size=60))
def test_while_nothing_listens_the_waits_are_short_however_long_it_takes(failures):
    session, now = ConnectionState(), 0.0
    for silent_host, later, draw in failures:
        now += later
        step = failed if silent_host else not_listening
        session, wait = step(session, now, draw)

        assert wait <= (PATIENT if silent_host else NOT_LISTENING[1])
        assert wait >= (0.1 if silent_host else NOT_LISTENING[0])


def test_a_host_that_falls_silent_after_it_refused_is_asked_less_and_less_again():
    session, waits = outage(600)[1], []
    for now in range(600, 4200):
        session, wait = not_listening(session, float(now), 0.5)
        assert wait < 0.5
    for now in range(4200, 4300, 25):
        session, wait = failed(session, float(now), 0.5)
        waits.append(wait)

    assert min(waits) >= 0.75 * PATIENT


def test_of_many_apps_that_wait_for_a_broker_to_listen_few_find_it_together():
    dice, shares = random.Random(1), []
    for _ in range(50):
        found = []
        for _ in range(200):  # they lost it together, and it is back after five seconds
            session, wait = failed(ConnectionState(connected_at=0.0), 100.0, dice.random())
            now = 100.0 + wait
            while now < 105.0:
                session, wait = not_listening(session, now, dice.random())
                now += wait
            found.append(now)
        shares.append(max(sum(first <= at < first + 0.1 for at in found) for first in found) / 200)

    assert sorted(shares)[25] <= 0.35


def test_a_settled_connection_ends_the_outage():
    _, session = outage(600)

    session, wait = failed(connected(session, 700.0), 705.0, 0.5)

    assert wait < 0.8
    assert session.outage_since == 705.0


def test_a_link_that_flaps_goes_on_backing_off():
    _, session = outage(600)

    session, wait = failed(connected(session, 700.0), 704.0, 0.5)

    assert wait > 10


@pytest.mark.parametrize("code", [0x86, 0x87])
def test_refused_credentials_are_tried_every_minute_and_sooner_at_first(code):
    session, waits = ConnectionState(), []
    for now in range(6):
        session, wait = refused(session, code, float(now), 0.999)
        waits.append(round(wait))

    assert waits == [5, 10, 20, 60, 60, 60]


def test_a_certificate_that_is_not_accepted_is_tried_as_a_password():
    assert misconfigured(ConnectionState(), 0.5) == refused(ConnectionState(), 0x87, 0.0, 0.5)


def test_refused_credentials_begin_with_short_waits_after_an_outage_too():
    _, session = outage(600)

    assert refused(session, 0x87, 600.0, 0.0)[1] == 4.0


def test_a_broker_that_refuses_both_versions_is_not_hammered():
    session, waits = ConnectionState(), []
    for now in range(100, 400):
        session, wait = refused(session, 0x84, float(now), 0.5)
        waits.append(wait)

    assert waits[0] == 0.1
    assert min(waits[70:]) > 5


def test_an_old_broker_that_says_so_gets_the_older_version_at_once():
    session, wait = refused(ConnectionState(), 0x84, 0.0, 0.5)

    assert (session.protocol, wait) == (V311, 0.1)
    assert refused(session, 0x84, 0.0, 0.5)[0].protocol == V5


def silent(session, times):
    """The versions that a broker without a word is greeted with next."""
    versions = []
    for now in range(100, 100 + times):
        session, _ = failed(session, float(now), 0.5, no_connack=True)
        versions.append(session.protocol)
    return session, versions


def test_a_broker_that_is_silent_twice_gets_the_older_version():
    session, versions = silent(ConnectionState(), 2)

    assert versions == [V5, V311]
    assert doubt(connected(session, 200.0), 300.0) == DOUBT - 100.0


def test_while_neither_version_is_answered_each_is_tried_twice():
    assert silent(ConnectionState(), 8)[1] == [V5, V311, V311, V5, V5, V311, V311, V5]


def test_a_silence_between_other_failures_counts_alone():
    session = ConnectionState()
    for now in range(100, 110):
        session, _ = failed(session, float(now), 0.5, no_connack=now % 2 == 0)

    assert session.protocol == V5


def test_an_attempt_at_the_start_may_show_an_old_broker_and_one_in_an_outage_does_not():
    before, seen = ConnectionState(), []
    for now in range(4):
        after, _ = failed(before, float(now), 0.5, no_connack=True)
        seen.append(may_be_old(before, after))
        before = after

    assert seen == [True, True, False, False]
    assert may_be_old(ConnectionState(), refused(ConnectionState(), 0x84, 0.0, 0.5)[0])
    lost = failed(ConnectionState(), 0.0, 0.5)[0]
    assert not may_be_old(lost, failed(lost, 1.0, 0.5, no_connack=True)[0])


@given(st.lists(st.booleans(), max_size=40), st.floats(0, 2 * DAY))
def test_a_broker_that_spoke_5_is_never_left_for_silence(failures, later):
    session, now = connected(ConnectionState(), 0.0), later
    for no_connack in failures:
        session, wait = failed(session, now, 0.5, no_connack=no_connack)
        now += wait
        assert session.protocol == V5
    assert refused(session, 0x84, now, 0.5)[0].protocol == V311


@given(
    st.sampled_from([V5, V311]),
    st.lists(st.sampled_from(["silent", "refused", "cut", "connected"]), max_size=40),
    st.floats(0, DAY),
)
def test_a_pinned_version_is_never_left(version, happenings, pause):
    session, now = begin(version), 0.0
    for what in happenings:
        now += pause
        match what:
            case "connected":
                session = connected(session, now)
                assert doubt(session, now) is None
            case "refused":
                session, wait = refused(session, 0x84, now, 0.5)
                assert wait > 4
            case _:
                session, _ = failed(session, now, 0.5, no_connack=what == "silent")
        assert session.protocol == version


@given(st.lists(st.booleans(), max_size=200))
def test_a_broker_without_an_answer_is_not_hammered(silences):
    session, now = ConnectionState(), 0.0
    for no_connack in silences:
        session, wait = failed(session, now, 0.5, no_connack=no_connack)
        assert wait >= 0.1
        assert now < 120 or wait > 1
        now += wait


def guess(now=0.0):
    """3.1.1, to which only silence had led."""
    return connected(silent(ConnectionState(), 2)[0], now)


def test_a_guess_of_3_1_1_is_tried_again_in_5_once_and_after_that_a_day_later():
    newer = try_newer(guess())
    assert (newer.protocol, doubt(newer, 0.0)) == (V5, None)

    old, wait = failed(newer, DOUBT, 0.5, no_connack=True)
    assert (old.protocol, wait) == (V311, 0.1)
    old = connected(old, DOUBT + 1)
    assert doubt(old, DOUBT + 1) is None
    assert failed(old, DAY, 0.5)[0].protocol == V311
    assert failed(old, DOUBT + 1 + DAY, 0.5)[0].protocol == V5


def test_a_guess_that_is_cut_is_tried_again_in_5_when_its_time_has_come():
    cut = connected(failed(guess(), 100.0, 0.5)[0], 101.0)

    assert doubt(cut, 101.0) == DOUBT - 101.0
    assert failed(cut, DOUBT - 1, 0.5)[0].protocol == V311
    assert failed(cut, DOUBT, 0.5)[0].protocol == V5


def test_5_that_is_tried_while_the_broker_cannot_be_reached_is_tried_until_it_answers():
    session = failed(guess(), DOUBT, 0.5)[0]
    for now in range(1000, 1010):
        session, _ = failed(session, float(now), 0.5)

    assert session.protocol == V5
    assert failed(session, 1010.0, 0.5, no_connack=True)[0].protocol == V311
    assert connected(session, 1010.0).spoke == V5


def test_a_version_that_the_broker_asked_for_is_not_doubted():
    session, _ = refused(ConnectionState(), 0x84, 0.0, 0.5)

    assert doubt(connected(session, 1.0), 1.0) is None


def test_a_version_that_the_user_asked_for_is_neither_doubted_nor_left_for_5():
    session = connected(begin(V311), 0.0)

    assert doubt(session, 0.0) is None
    assert failed(session, 2 * DAY, 0.5)[0].protocol == V311


def test_a_broker_that_was_upgraded_is_spoken_to_in_5_at_a_reconnect_after_a_day():
    session = connected(refused(ConnectionState(), 0x84, 0.0, 0.5)[0], 1.0)

    session, _ = failed(session, DAY, 0.5)
    assert session.protocol == V311
    session, _ = failed(connected(session, DAY + 1), DAY + 10, 0.5)
    assert session.protocol == V5
    session = connected(session, DAY + 11)
    assert failed(session, 3 * DAY, 0.5)[0].protocol == V5


def test_a_broker_that_was_not_upgraded_is_asked_again_a_day_later():
    session = connected(ConnectionState(V311), 0.0)
    session, _ = failed(session, DAY + 1, 0.5)

    session, wait = refused(session, 0x84, DAY + 2, 0.5)

    assert (session.protocol, wait) == (V311, 0.1)
    session = connected(session, DAY + 3)
    assert failed(session, DAY + 100, 0.5)[0].protocol == V311
    assert failed(session, 2 * DAY + 3, 0.5)[0].protocol == V5


def test_a_broker_that_no_longer_speaks_3_1_1_is_spoken_to_in_5():
    session = connected(ConnectionState(V311), 0.0)

    assert refused(session, 0x84, 100.0, 0.5)[0].protocol == V5


@given(st.sampled_from([V5, V311]), st.sampled_from([True, False]), st.integers(0, 30))
def test_a_broker_of_either_version_is_found_at_the_start(speaks, answers, outage_lasts):
    """However long it, or the proxy before it, was silent."""
    session, now = silent(ConnectionState(), outage_lasts)[0], 1000.0
    attempts = 0
    while session.protocol != speaks:
        attempts += 1
        assert attempts <= 5
        if answers:
            session, wait = refused(session, 0x84, now, 0.5)
        else:
            session, wait = failed(session, now, 0.5, no_connack=True)
        now += wait


@given(st.floats(0, 300), st.floats(0.5, 15), st.floats(0, 0.999))
def test_behind_a_proxy_that_is_silent_at_first_5_is_spoken_within_a_quarter_of_an_hour_more(silence, timeout, draw):
    session, now = ConnectionState(), 0.0
    while now < silence:
        now += timeout
        session, wait = failed(session, now, draw, no_connack=True)
        now += wait
    began = now
    session = connected(session, now)
    if (after := doubt(session, now)) is not None:
        session = connected(try_newer(session), now + after)
        now += after

    assert session.spoke == V5
    assert now - began <= DOUBT + 0.001


def test_a_version_that_worked_is_kept_over_cuts():
    session = ConnectionState(protocol=V311)

    session, _ = failed(connected(session, 0.0), 100.0, 0.5)

    assert session.protocol == V311


def test_a_busy_broker_is_backed_off_from_as_an_unreachable_one():
    assert refused(ConnectionState(), 0x89, 0.0, 0.0) == failed(ConnectionState(), 0.0, 0.0)


events = st.lists(
    st.tuples(st.sampled_from(["up", "cut", "mute", "refused"]), st.integers(0, 255), st.floats(0, 1000)), max_size=50
)


@given(events, st.floats(0, 1, exclude_max=True))
def test_no_history_makes_it_hammer_or_give_up(history, draw):
    session, now = ConnectionState(), 0.0
    for what, code, passed in history:
        now += passed
        if what == "up":
            session = connected(session, now)
            continue
        session, wait = (
            refused(session, code, now, draw)
            if what == "refused"
            else failed(session, now, draw, no_connack=what == "mute")
        )
        assert (PROOF[0] if session.short_lived == SHORT_LIVED - 1 else 0.1) <= wait <= 300


def flapping(connections, lasting, draw=0.999):
    """Connections that each last so long; the waits after them."""
    session, now, waits = ConnectionState(), 0.0, []
    for _ in range(connections):
        session, wait = failed(connected(session, now), now + lasting, draw)
        now += lasting + wait
        waits.append(round(wait, 1))
    return session, waits


def test_connections_that_end_within_seconds_are_another_client_with_our_id():
    session, waits = flapping(8, lasting=1.0)

    assert client_id_in_use(session)
    assert waits[3:] == [5.0, 10.0, 20.0, 40.0, 60.0]
    assert not client_id_in_use(flapping(3, lasting=1.0)[0])


def test_a_connection_that_holds_ends_the_suspicion():
    session, _ = flapping(8, lasting=1.0)

    session, wait = failed(connected(session, 1000.0), 1006.0, 0.5)

    assert not client_id_in_use(session)
    assert wait < 0.8


def test_a_broker_that_cannot_be_reached_is_no_clash():
    assert not client_id_in_use(outage(600)[1])


def test_a_broker_that_goes_away_after_a_clash_is_tried_as_quickly_as_ever():
    session, _ = flapping(8, lasting=1.0)

    session, wait = failed(session._replace(outage_since=500.0), 501.0, 0.5)

    assert wait < 0.8


def test_a_connection_that_broke_on_a_message_is_no_clash_and_is_made_again_at_once():
    _, session = outage(600)
    for now in range(700, 800):
        session, wait = interrupted(connected(session, now), now + 0.5, 0.5, useful=True)

    assert not client_id_in_use(session)
    assert wait < 0.8


def test_a_connection_that_broke_before_anything_got_through_is_backed_off_from():
    _, session = outage(600)

    assert interrupted(connected(session, 700.0), 701.0, 0.5, useful=False)[1] > 10


def test_a_broker_that_says_that_another_client_took_over_is_believed():
    session, wait = taken_over(connected(ConnectionState(), 0.0), 1000.0, 0.999)

    assert client_id_in_use(session)
    assert round(wait) == 5
    assert round(taken_over(connected(session, 1005.0), 1006.0, 0.999)[1]) == 10


def test_a_broker_that_is_killed_again_and_again_is_no_clash():
    session = ConnectionState()
    for now in range(0, 100, 2):
        session, _ = failed(connected(session, now), now + 1.0, 0.5)
        session, _ = failed(session, now + 1.5, 0.5)

    assert not client_id_in_use(session)


def lost_attempt(session, now, kind):
    """An attempt that does not lead to a connection, because the broker is away."""
    if kind == "refused":
        return not_listening(session, now, 0.5)
    return failed(session, now, 0.5, no_connack=kind == "reset before CONNACK")


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 4.9),
            st.floats(0.06, 20.0),
            st.floats(0.0, 0.999),
            st.sampled_from(["refused", "unanswered", "reset before CONNACK"]),
        ),
        max_size=30,
    )
)
def test_a_broker_that_comes_and_goes_is_no_clash_whether_or_not_the_app_meets_it_away(times):
    session, now = ConnectionState(), 0.0
    for lasts, away, draw, kind in times:
        now += lasts
        session, wait = failed(connected(session, now - lasts), now, draw)
        assert not client_id_in_use(session)
        back, now = now + away, now + wait
        while now < back:
            session, wait = lost_attempt(session, now, kind)
            now += wait


@pytest.mark.parametrize("tells", [True, False])
def test_only_an_attempt_that_fails_tells_a_broker_that_comes_and_goes_from_a_twin(tells):
    session, now = ConnectionState(), 0.0
    for _ in range(4):
        session, _ = failed(connected(session, now), now + 3.0, 0.5)
        if tells:
            session, _ = failed(session, now + 3.3, 0.5, no_connack=True)
        now += 3.6

    assert client_id_in_use(session) is not tells
