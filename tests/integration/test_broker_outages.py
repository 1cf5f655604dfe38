import asyncio
import itertools
import json

import pytest

from leadsman import App, Delivery
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.diagnosis import CLOSES
from leadsman.errors import BrokerError, TlsRefused
from leadsman.testing import Harness, Outages, Scripted, fail
from leadsman.testing.loop import START


class Counter:
    """A device whose every reading is another one."""

    def __init__(self):
        self.taken = 0

    async def __call__(self):
        self.taken += 1
        return {"n": self.taken}


def running_app(harness, devices=3, interval=1, **words):
    app = App("app")
    counters = {f"d{number}": Counter() for number in range(devices)}
    for name, counter in counters.items():
        app.add_telemetry(name, counter, interval=interval, **words)
    return harness(app), counters


def assert_nothing_lost(app: Harness, counters):
    for name, counter in counters.items():
        numbers = [state["n"] for state in app.states(name)]
        first_seen = list(dict.fromkeys(numbers))
        assert first_seen == list(range(1, counter.taken + 1)), name
        assert len(numbers) - len(first_seen) < len(app.broker.connects), "more duplicates than interruptions"


@pytest.mark.slow
@pytest.mark.parametrize("outage", [1, 10, 30, 150, 3000])
def test_no_reading_is_lost_while_the_broker_is_away_and_none_waits_long_after(harness, outage):
    app, counters = running_app(harness)
    app.at(20.3, app.broker.stop)
    app.at(20.3 + outage, app.broker.start)

    app.run(20.3 + outage + 60.5)

    assert_nothing_lost(app, counters)
    back = min(message.at for message in app.broker.log if message.at > 20.3 + outage)
    assert back - (20.3 + outage) <= 0.5


def test_after_an_hour_without_a_broker_the_first_reading_comes_within_half_a_second(harness):
    app, counters = running_app(harness, interval=10)
    app.at(20, app.broker.stop)
    app.at(3620.7, app.broker.start)

    app.run(3622)

    first = min(message.at for message in app.broker.log if message.at > 3620.7)
    assert first - 3620.7 <= 0.5
    assert_nothing_lost(app, counters)
    assert len(app.broker.connects) <= 3600 / 0.35


def test_a_host_that_was_away_for_an_hour_is_found_within_half_a_second_once_it_refused(harness):
    app, counters = running_app(harness, interval=10)

    def power_off():
        app.broker.refuse_connect = BrokerError("cannot connect: no route to host")
        app.broker.cut()

    def host_up():
        app.broker.stop()

    def broker_up():
        app.broker.refuse_connect = None
        app.broker.start()

    app.at(20, power_off)
    app.at(3620, host_up)
    app.at(3660, broker_up)
    app.run(3700)

    away = [at for at, _ in app.broker.connects if 80 < at < 3620]
    refused = [at for at, _ in app.broker.connects if 3620 < at < 3660]
    assert len(away) < 300
    assert refused[0] - 3620 <= 30
    assert max(later - earlier for earlier, later in itertools.pairwise(refused)) <= 0.45
    assert min(message.at for message in app.broker.log if message.at > 3660) - 3660 <= 0.5
    assert_nothing_lost(app, counters)


def test_a_broker_that_is_away_at_the_start_costs_no_reading(harness):
    app, counters = running_app(harness)
    app.broker.stop()
    app.at("30s", app.broker.start)

    app.run("60.5s")

    assert_nothing_lost(app, counters)


def test_readings_kept_back_carry_the_time_they_were_taken(harness):
    app, _ = running_app(harness, devices=1, interval=10)
    app.at(15, app.broker.stop)
    app.at(95, app.broker.start)

    app.run(130.5)

    taken = [message.taken_at - START for message in app.broker.messages("app/d0/state")]
    assert taken == sorted(taken)
    assert set(taken) == {float(second) for second in range(0, 131, 10)}


def test_a_message_in_flight_when_the_connection_breaks_is_sent_again_and_no_sensor_is_blamed(harness):
    app, counters = running_app(harness, devices=1, interval=60)
    app.broker.lose_acknowledgements = True
    app.run(5)
    app.broker.lose_acknowledgements = False
    app.broker.cut()

    app.run(60.5)

    assert_nothing_lost(app, counters)
    assert app.errors("d0") == []
    assert app.statuses("d0")[-1] == "ok"


def test_a_frozen_broker_disturbs_no_schedule(harness):
    app, counters = running_app(harness)
    app.at(10.5, app.broker.freeze)
    app.at(45.5, app.broker.thaw)

    app.run(120.5)

    assert {counter.taken for counter in counters.values()} == {121}
    assert_nothing_lost(app, counters)


def test_a_frozen_broker_is_left_when_an_acknowledgement_is_ten_seconds_overdue(harness):
    app, _ = running_app(harness)
    app.at(10.5, app.broker.freeze)

    app.run(30)

    assert 20.5 <= app.broker.connects[1][0] <= 23


@pytest.mark.parametrize("devices", [1, 200])
def test_a_frozen_broker_delays_the_end_by_no_more_than_two_seconds(harness, devices):
    app, _ = running_app(harness, devices)
    app.run(5)
    app.broker.freeze()
    app.run(3)

    app.stop()

    assert app.stopped_in <= 2
    assert app.left_behind == 0


def test_without_a_broker_the_end_is_immediate(harness):
    app, _ = running_app(harness)
    app.broker.stop()
    app.run(60)

    app.stop()

    assert app.stopped_in < 0.1


def test_what_is_lost_with_the_process_is_told(harness, caplog):
    app, _ = running_app(harness)
    app.broker.stop()
    app.run(9.5)

    app.stop()

    assert "30 readings were not delivered, and are lost as the process ends" in caplog.text


def test_status_and_availability_that_do_not_arrive_are_not_told_as_lost(harness, caplog):
    app, _ = running_app(harness)
    app.run(9.5)
    app.broker.stop()

    app.stop()

    assert "as the process ends" not in caplog.text


def test_at_the_end_the_status_says_offline_once_and_the_will_stays_unsaid(harness):
    app, counters = running_app(harness)
    app.run(10.5)

    app.stop()

    assert app.status()["state"] == "offline"
    assert [app.availability(name) for name in counters] == [["online"]] * 3
    assert_nothing_lost(app, counters)
    app.loop.run_until_complete(asyncio.sleep(60))
    assert app.status()["session"] == app.broker.messages("app/status")[0].json["session"]
    assert len([message for message in app.broker.messages("app/status") if message.json["state"] == "offline"]) == 1


def test_a_quick_reconnect_does_not_flap_to_offline(harness):
    app, _ = running_app(harness)
    app.at(10, app.broker.cut)

    app.run(60)

    assert {message.json["state"] for message in app.broker.messages("app/status")} == {"online"}


def test_will_and_birth_carry_the_session_and_a_later_connect_a_higher_one(harness):
    app, _ = running_app(harness)
    app.at(10, app.broker.cut)
    app.run(60)

    wills = [json.loads(packet.will_payload) for _, packet in app.broker.connects]
    births = list(dict.fromkeys(message.json["session"] for message in app.broker.messages("app/status")))

    assert [will["session"] for will in wills] == births
    assert births == sorted(births)
    assert len(births) == 2
    assert {will["state"] for will in wills} == {"offline"}
    assert {packet.will_topic for _, packet in app.broker.connects} == {"app/status"}
    assert {packet.client_id for _, packet in app.broker.connects} == {"app"}


def test_a_broker_that_lost_its_memory_gets_every_retained_message_again(harness):
    app, counters = running_app(harness, interval="25m")
    app.run(30)
    before = set(app.broker.retained)

    app.broker.stop(forget=True)
    app.broker.start()
    app.run(5)

    assert set(app.broker.retained) == before
    assert {"app/status", "app/d0/state", "app/d0/availability"} <= before
    assert_nothing_lost(app, counters)


def test_an_old_broker_is_spoken_to_in_its_own_version(harness):
    for manner in ("refuse", "close"):
        app, counters = running_app(harness)
        app.broker.only_v311 = manner

        app.run(10.5)

        assert app.status()["mqtt"]["protocol"] == "3.1.1"
        assert_nothing_lost(app, counters)


@pytest.mark.parametrize(("manner", "found"), [("refuse", True), ("close", False)])
def test_a_broker_that_is_replaced_by_an_old_one_is_found_again_if_it_refuses_mqtt_5(harness, manner, found):
    """One that only hangs up may be a proxy whose broker is away."""
    app, counters = running_app(harness)
    app.run(10)
    app.broker.stop()
    app.broker.only_v311 = manner
    app.at(20, app.broker.start)

    app.run(60.5)

    assert {packet.protocol for _, packet in app.broker.connects} == ({"5.0", "3.1.1"} if found else {"5.0"})
    if not found:
        app.broker.only_v311 = None
        app.run(60)
    assert_nothing_lost(app, counters)


def test_a_broker_that_is_replaced_by_a_new_one_is_found_again(harness):
    app, counters = running_app(harness)
    app.broker.only_v311 = "refuse"
    app.run(10)
    app.broker.stop()
    app.broker.only_v311, app.broker.only_v5 = None, True
    app.at(20, app.broker.start)

    app.run(60.5)

    assert app.status()["mqtt"]["protocol"] == "5.0"
    assert_nothing_lost(app, counters)


def test_a_broker_that_hung_up_for_a_while_is_spoken_to_in_version_5_again(harness):
    app, counters = running_app(harness)
    app.broker.only_v311 = "close"
    app.broker.only_v5 = True
    app.run("55s")
    app.broker.only_v311 = None
    app.broker.only_v5 = False

    app.run("60.5s")

    assert app.status()["mqtt"]["protocol"] == "5.0"
    assert_nothing_lost(app, counters)


def test_a_broker_that_is_upgraded_is_spoken_to_in_version_5_at_a_reconnect_after_a_day(harness):
    app, _ = running_app(harness, devices=1, interval="10m")
    app.broker.only_v311 = "refuse"
    app.run("1h")
    app.broker.only_v311 = None
    app.broker.cut()
    app.run("25h")
    between = app.status()["mqtt"]["protocol"]
    app.broker.cut()

    app.run("1h")

    assert (between, app.status()["mqtt"]["protocol"]) == ("3.1.1", "5.0")


def test_refused_credentials_are_told_once_with_what_to_do_and_tried_every_minute(harness, caplog):
    app, counters = running_app(harness)
    app.broker.refuse_connect = 0x86

    app.run("20m")
    gaps = [after[0] - before[0] for before, after in zip(app.broker.connects, app.broker.connects[1:], strict=False)]
    app.broker.refuse_connect = None
    app.run("61.5s")

    assert 4 <= gaps[0] <= 5
    assert max(gaps) <= 60
    assert len(app.broker.connects) <= 30
    assert sum("refused (0x86)" in record.getMessage() for record in caplog.records) == 1
    assert_nothing_lost(app, counters)


def test_a_certificate_that_is_not_accepted_is_told_once_and_tried_every_minute(harness, caplog):
    app, counters = running_app(harness)
    app.broker.refuse_connect = TlsRefused("certificate verify failed")

    app.run("10m")
    attempts = [at for at, _ in app.broker.connects]
    app.broker.refuse_connect = None
    app.run("61.5s")

    assert 4 <= attempts[1] - attempts[0] <= 5
    assert len(attempts) < 20
    assert caplog.text.count("certificate verify failed") == 1
    assert_nothing_lost(app, counters)


@pytest.mark.parametrize("worked", [True, False])
def test_a_url_that_has_worked_is_not_guessed_at(harness, caplog, worked):
    error = BrokerError("no CONNACK; is this a TLS port?")
    error.hint = "; is this a TLS port?"
    app, _ = running_app(harness)
    if worked:
        app.run(10)
    app.broker.refuse_connect = error
    app.broker.cut()

    app.run(10)

    assert ("is this a TLS port?" in caplog.text) is not worked
    assert "no CONNACK" in caplog.text


def test_reasons_that_take_turns_are_logged_once_each(harness, caplog):
    app, _ = running_app(harness)
    app.broker.only_v311, app.broker.only_v5 = "close", True

    app.run("5m")

    assert caplog.text.count("No connection to the broker: closed before CONNACK") == 1
    assert caplog.text.count("No connection to the broker: it does not speak this version") == 1
    assert len({packet.protocol for _, packet in app.broker.connects}) == 2


def test_a_refusal_that_may_pass_keeps_the_message_and_holds_up_nobody_else(harness):
    app, counters = running_app(harness, interval=10)
    app.broker.refusals["app/d0/state"] = 0x97
    app.run(40)
    others_meanwhile = len(app.states("d1"))
    app.broker.refusals.clear()

    app.run(80.5)

    assert others_meanwhile == 5
    assert_nothing_lost(app, counters)


def test_a_topic_that_is_not_allowed_is_named_in_the_heartbeat(harness):
    app, _ = running_app(harness)
    app.broker.refusals["app/d0/state"] = 0x87

    app.run(31)

    assert app.status()["health"] == "degraded"
    assert "app/d0/state" in app.status()["mqtt"]["last_error"]


@pytest.mark.parametrize("code", [0x90, 0x95, 0x99])
def test_a_refusal_for_good_costs_that_message_only_and_is_counted(harness, caplog, code):
    app, _ = running_app(harness, devices=1, interval=10)
    app.run(5)
    app.broker.refusals["app/d0/state"] = code
    app.run(10)
    app.broker.refusals.clear()

    app.run(45.5)

    assert [state["n"] for state in app.states("d0")] == [1, 3, 4, 5, 6, 7]
    assert app.status()["mqtt"]["outbox"]["dropped"] == 1
    assert app.status()["mqtt"]["outbox"]["dropped_by"] == {"refused": 1}
    assert any("dropped" in record.getMessage() for record in caplog.records)


def test_a_message_that_breaks_the_connection_is_given_up_while_the_others_arrive(harness):
    app, counters = running_app(harness, interval=30)
    app.run(5)
    app.broker.poison.add("app/d0/state")
    app.run(60)
    app.broker.poison.clear()

    app.run(60.5)

    del counters["d0"]
    assert_nothing_lost(app, counters)
    assert app.status()["mqtt"]["outbox"]["dropped"] >= 1
    assert app.states("d0")[-1]["n"] == 5
    assert len(app.broker.connects) < 20


CLOSING = {"without a word": None, "after an acknowledgement": 0, "after a refusal": 0x87, "after one for good": 0x95}


@pytest.mark.parametrize("code", CLOSING.values(), ids=CLOSING)
@pytest.mark.parametrize("poison", ["app/d3/state", "app/status", "app/registry", "app/d3/availability"])
def test_a_topic_that_breaks_every_connection_costs_the_others_nothing_and_is_named(harness, caplog, poison, code):
    app, counters = running_app(harness, devices=10)
    app.broker.poison.add(poison)
    app.broker.poison_code = code

    app.run("2m")

    arrived = [
        (message.at, message.json["n"]) for name in counters for message in app.broker.messages(f"app/{name}/state")
    ]
    late = [at for at, number in arrived if at - (number - 1) > 2 and at > 5]
    poisoned = set(counters) if poison != "app/d3/state" else set(counters) - {"d3"}
    for name in poisoned:
        assert list(dict.fromkeys(state["n"] for state in app.states(name)))[:118] == list(range(1, 119))
    assert not late
    assert len(app.broker.connects) < 30
    assert caplog.text.count(f"The broker refuses messages to {poison}: ") == 1
    assert "another client" not in caplog.text
    assert caplog.text.count("No connection to the broker") <= 4


@pytest.mark.slow
@pytest.mark.parametrize("code", CLOSING.values(), ids=CLOSING)
def test_many_topics_that_break_the_connection_leave_it_up_most_of_the_time(harness, code):
    app, _ = running_app(harness, devices=20)
    app.broker.poison = {f"app/d{number}/state" for number in range(10)}
    app.broker.poison_code = code

    app.run("10m")
    before = len(app.broker.connects)
    app.run("5m")

    late = [
        message
        for number in range(10, 20)
        for message in app.broker.messages(f"app/d{number}/state")
        if message.at > 600 and message.at - (message.json["n"] - 1) > 2
    ]
    assert len(app.broker.connects) - before < 50
    assert not late


@pytest.mark.parametrize(("code", "reason"), [(0x87, "not authorized; check its access list (0x87)"), (None, CLOSES)])
def test_a_reason_that_the_broker_gave_outlives_the_connections_that_break_afterwards(harness, code, reason):
    app, _ = running_app(harness, devices=3)
    app.broker.poison.add("app/d1/state")
    app.broker.poison_code = code

    app.run("1m")
    app.broker.poison_code = None  # from now on it hangs up without a word
    app.run("5m")

    fault = f"the broker does not accept messages of 'app/d1/state': {reason}"
    assert len(app.broker.connects) > 2
    assert app.status()["mqtt"]["last_error"] == fault


def test_a_topic_that_is_allowed_again_gets_everything_through_that_waited(harness):
    app, counters = running_app(harness, devices=10)
    app.broker.poison.add("app/d3/state")
    app.broker.poison_code = 0x87
    app.run("5m")
    app.broker.poison.clear()

    app.run("65.5s")

    assert_nothing_lost(app, counters)
    assert app.status()["mqtt"]["last_error"] is None


def test_a_subscription_that_breaks_every_connection_is_left_out_and_named(harness, caplog):
    app, counters = running_app(harness)
    app.broker.poison_filters.add("app/+/get")

    app.run("10.5m")

    assert_nothing_lost(app, counters)
    assert len(app.broker.connects) == 4
    assert caplog.text.count("closes the connection on the subscription to 'app/+/get'") == 1
    assert "'app/+/get'" in app.status()["mqtt"]["last_error"]
    assert "another client" not in caplog.text
    app.broker.poison_filters.clear()
    app.run("1h")
    app.broker.cut()
    app.run("60.5s")
    assert app.status()["mqtt"]["last_error"] is None


def test_after_three_breaks_a_message_that_is_too_large_costs_itself_only(harness, caplog):
    class Growing(Counter):
        async def __call__(self):
            reading = await super().__call__()
            return {**reading, "text": "x" * (9000 if self.taken % 20 == 0 else 1)}

    app = App("app")
    app.add_telemetry("d", Growing(), interval=1)
    app.add_telemetry("other", Counter(), interval=1)
    running = harness(app)
    receive = running.broker.receive

    def limited(connection, packet_id, message):
        running.broker.poison = {message.topic} if message.size > 5000 else set()
        receive(connection, packet_id, message)

    running.broker.receive = limited
    running.run("60.5s")

    assert [state["n"] for state in running.states("d")] == [n for n in range(1, 62) if n % 20]
    assert "the broker closes the connection on a message of 9109 bytes" in caplog.text
    assert len(running.broker.connects) == 4, "the first one, and one after each break: so is the size learned"
    assert list(dict.fromkeys(state["n"] for state in running.states("other"))) == list(range(1, 62))


def test_a_message_larger_than_the_broker_takes_is_not_sent_but_told(harness, caplog):
    app = App("app")
    app.add_telemetry("large", Scripted({"text": "x" * 5000}, {"text": "short"}), interval=10)
    running = harness(app)
    running.broker.connack = ConnAck(maximum_packet_size=2000)

    running.run(15)

    assert running.states("large") == [{"text": "short"}]
    assert len(running.broker.connects) == 1
    assert any("larger than the limit of the broker: 2000 bytes" in record.getMessage() for record in caplog.records)


def of_health(running):
    """The health of an app, and what is wrong with its connection, as it said last."""
    heartbeat = running.broker.messages("app/status")[-1].json
    return heartbeat["health"], heartbeat["mqtt"]["last_error"]


@pytest.mark.parametrize("cause", ["refused for good", "too large"])
def test_health_names_the_topic_whose_readings_are_dropped_until_the_broker_takes_one(harness, cause):
    app = App("app")
    app.add_telemetry("bad", Scripted({"text": "x" * 5000}), interval=1)
    app.add_telemetry("good", Counter(), interval=1)
    running = harness(app)
    if cause == "too large":
        running.broker.connack = ConnAck(maximum_packet_size=2000)
        why = "the broker does not accept messages of 'app/bad/state': larger than the limit of the broker: 2000 bytes"
    else:
        running.broker.refusals["app/bad/state"] = 0x90
        why = "the broker refused a message of 'app/bad/state' (0x90)"
    running.run("3m")
    assert of_health(running) == ("degraded", why)

    running.broker.refusals.clear()
    running.broker.connack = ConnAck()
    running.broker.cut()
    running.run("3m")

    assert of_health(running) == ("ok", None)


def test_a_small_receive_maximum_is_obeyed(harness):
    app, counters = running_app(harness, devices=50)
    app.broker.connack = ConnAck(receive_maximum=3)
    most = 0
    receive = app.broker.receive

    def watched(connection, packet_id, message):
        nonlocal most
        most = max(most, connection.listener.outbox.in_flight)
        receive(connection, packet_id, message)

    app.broker.receive = watched
    app.run(10.5)

    assert most <= 3
    assert_nothing_lost(app, counters)


def test_no_more_messages_are_in_flight_than_the_broker_allows(harness):
    app, _ = running_app(harness, devices=200)
    app.broker.connack = ConnAck(receive_maximum=20)
    app.broker.lose_acknowledgements = True

    app.run(3)

    assert len(app.broker.log) == 20


@pytest.mark.slow
def test_an_outage_longer_than_the_outbox_costs_the_oldest_counts_them_and_keeps_the_newest(harness, caplog):
    app, counters = running_app(harness, devices=2, interval=1)
    app.broker.stop()
    app.at("2h", app.broker.start)

    app.run("2h1m")

    delivered = [state["n"] for state in app.states("d0")]
    assert delivered == sorted(delivered)
    assert delivered[-1] == counters["d0"].taken
    dropped = app.status()["mqtt"]["outbox"]["dropped"]
    assert dropped == sum(counter.taken for counter in counters.values()) - len(app.states("d0")) - len(
        app.states("d1")
    )
    assert 4000 < dropped < 5000
    assert sum("messages dropped" in record.getMessage() for record in caplog.records) <= 45


def test_a_reading_that_expired_meanwhile_is_not_delivered(harness):
    app, _ = running_app(harness, devices=1, interval=10, delivery=Delivery(expiry=25))
    app.run(5)
    app.broker.stop()
    app.run(60)
    app.broker.start()

    app.run(5)

    assert [state["n"] for state in app.states("d0")][1:] == [6, 7, 8]


def test_device_faults_and_broker_faults_together_lose_nothing(harness):
    sensor = Outages({"t": 1}, [("30s", "90s"), ("5m", "6m")])
    app = App("app")
    app.add_telemetry("d", sensor, interval=5, retry=2)
    running = harness(app)
    for start in (20, 100, 320):
        running.at(start, running.broker.stop)
        running.at(start + 40, running.broker.start)

    running.run("10m")

    assert len(running.states("d")) >= len(sensor.answered)
    assert [error["event"] for error in running.errors("d")].count("recovered") == 2


def test_an_error_is_told_also_when_the_broker_was_away_at_its_onset(harness):
    app = App("app")
    app.add_telemetry("d", Scripted(fail(3), {"t": 1}), interval=10)
    running = harness(app)
    running.broker.stop()
    running.at(60, running.broker.start)

    running.run(90)

    assert [error["event"] for error in running.errors("d")] == ["onset", "reminder", "recovered"]


def test_a_broker_that_says_who_took_the_connection_over_is_believed_at_once(harness, caplog):
    app, counters = running_app(harness, devices=1)
    app.run("30s")
    app.broker.cut("session taken over", 0x8E)

    app.run("90.5s")

    assert caplog.text.count("another client uses the client id 'app'") == 1
    assert app.broker.connects[1][0] >= 32.5
    assert app.status()["mqtt"]["last_error"] is None
    assert_nothing_lost(app, counters)


@pytest.mark.parametrize("code", [0x8B, 0x98])
def test_a_broker_that_says_why_it_closes_is_believed(harness, caplog, code):
    app, counters = running_app(harness)

    for second in range(10, 30, 2):
        app.at(second + 0.0001, lambda: app.broker.cut("shutting down", code))

    app.run("60.5s")

    assert "another client" not in caplog.text
    assert "refuses messages" not in caplog.text
    assert_nothing_lost(app, counters)


def test_a_topic_that_is_refused_does_not_delay_the_end(harness):
    app, _ = running_app(harness)
    app.broker.refusals["app/d0/state"] = 0x87
    app.run(20)

    app.stop()

    assert app.stopped_in < 0.1
    assert app.status()["state"] == "offline"


def test_a_topic_that_only_short_connections_broke_on_rests_for_seconds_only(harness):
    app, counters = running_app(harness)
    app.broker.poison.add("app/d0/state")
    for start in range(5, 95, 3):
        app.at(start, app.broker.stop)
        app.at(start + 1, app.broker.start)
    app.run("96s")
    app.broker.poison.clear()

    app.run("10s")

    assert app.states("d0")[-1]["n"] >= counters["d0"].taken - 1


def test_connections_that_break_with_messages_in_flight_are_no_other_client(harness, caplog):
    app, counters = running_app(harness, devices=10)
    app.broker.lose_acknowledgements = True
    for second in range(1, 30):
        app.at(second + 0.01, app.broker.cut)
    app.run("30s")
    app.broker.lose_acknowledgements = False
    app.broker.cut()

    app.run("30.5s")

    assert "another client" not in caplog.text
    assert {counter.taken for counter in counters.values()} == {61}


def test_another_client_with_our_id_is_told_once_and_both_slow_down(harness, caplog):
    class Nobody:
        def acknowledged(self, packet_id, code): ...

        def lost(self, reason, code=0): ...

        def received(self, message): ...

    async def twin():
        while app.now < 600:
            await asyncio.sleep(1.0)
            await app.broker.connect(app.broker.connects[0][1], Nobody())

    app, counters = running_app(harness, devices=1, interval=10)
    app.run("1s")
    task = app.loop.create_task(twin())
    app.run("10m")
    ours = [at for at, packet in app.broker.connects if packet is not app.broker.connects[0][1]]
    task.cancel()
    clash = app.status()["mqtt"]["last_error"]
    app.run("5m")

    assert "another client uses the client id 'app'" in clash
    assert caplog.text.count("another client uses") == 1
    assert len(ours) < 40
    assert caplog.text.count("connected to the broker") < 6
    assert app.status()["mqtt"]["last_error"] is None
    assert_nothing_lost(app, counters)


@pytest.mark.parametrize("delivery", [Delivery(), Delivery(taken_at="payload")])
def test_readings_taken_before_the_clock_was_set_arrive_with_the_right_time(harness, delivery):
    app, counters = running_app(harness, devices=1, interval=1, delivery=delivery)
    app.loop.step_wall(-START)  # it is 1970
    app.broker.stop()
    app.at("6.5s", lambda: app.loop.step_wall(START))
    app.at("10s", app.broker.start)

    app.run("30s")

    times = {message.json["n"]: message.taken_at for message in app.broker.messages("app/d0/state")}
    assert len(times) == counters["d0"].taken
    assert [times[n] - START - n for n in sorted(times)] == pytest.approx([-1.0] * len(times), abs=0.1)
    if delivery.taken_at:
        written = [message.json["taken_at"] for message in app.broker.messages("app/d0/state")]
        assert {text[:16] for text in written} == {"2026-01-01T00:00"}


def test_a_clock_that_is_set_while_connected_changes_no_reading_that_has_arrived(harness):
    app, _ = running_app(harness, devices=1, interval=1)
    app.at("10.5s", lambda: app.loop.step_wall(-3600))

    app.run("20s")

    times = [message.taken_at for message in app.broker.messages("app/d0/state")]
    assert times[:11] == pytest.approx([START + n for n in range(11)], abs=0.1)
    assert times[11:] == pytest.approx([START - 3600 + n for n in range(11, len(times))], abs=0.1)
