"""The ledger agrees with what a subscriber of the broker has counted, whatever fails, and survives a restart."""

import asyncio
import json
import random
from collections import Counter
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from leadsman import App, CircuitBreaker, Cron, Every, FixedBackoff, RetryRequested
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.outbox import Outbox
from leadsman.errors import DeviceTimeout, DeviceUnavailable
from leadsman.testing import Harness, Outages
from leadsman.testing.loop import START
from leadsman_rigs.examples import examples

DAY = 86_400.0
HOUR = 3600.0
DAYS = 2 + examples(1)


async def one():
    """A handler without a thread, which would take real time."""
    return {"n": 1}


def asked(running, *devices):
    """The ledgers of devices, by introspection."""
    request = {"sections": ["ledger"]} | ({"devices": list(devices)} if devices else {})
    before = len(running.broker.messages("app/answers/me"))
    running.broker.send("app/introspect", request, response_topic="app/answers/me")
    running.run(1)
    pages = [json.loads(each.payload) for each in running.broker.messages("app/answers/me")[before:]]
    assert all(page["status"] == "ok" for page in pages), pages
    found = {}
    for page in pages:
        found |= page["data"].get("ledger", {})
    return found


def summed(ledger):
    """Check a ledger, and return its counts."""
    by = Counter()
    for hour in ledger["hours"]:
        assert hour["slots"] - 1 <= sum(hour["counts"].values()) <= hour["slots"]
        by.update(hour["counts"])
    assert by == ledger["counts"]
    assert sum(hour["slots"] for hour in ledger["hours"]) == ledger["slots"]
    return by


class Device:
    """A device that does anything a device may do, with the chances of a day."""

    def __init__(self, dice):
        self.dice, self.read, self.pauses = dice, 0, 0
        self.chances = [dice.random() * share for share in (0.3, 0.2, 0.05, 0.05, 0.05)]

    async def __call__(self):
        fails, slow, garbage, asks, nothing = self.chances
        draw = self.dice.random()
        if draw < fails:
            raise self.dice.choice([DeviceUnavailable("gone"), DeviceTimeout("no answer"), ValueError("odd")])
        if draw < fails + slow:
            await asyncio.sleep(self.dice.choice([0.5, 40, 100, 10_000]))
        elif draw < fails + slow + garbage:
            return {"n": object()}
        elif draw < fails + slow + garbage + asks:
            self.pauses += 1
            raise RetryRequested(delay=self.dice.choice([1, 90, 3000]), reason="busy")
        elif draw < fails + slow + garbage + asks + nothing:
            return None
        self.read += 1
        return {"n": self.read}


def app_of(dice, **options):
    """An app of five devices with chosen options, and their intervals."""
    app, intervals = App("app", **options), {}
    for number in range(5):
        interval = dice.choice([7, 60, 60, 900])
        more = {}
        if dice.random() < 0.5:
            more["circuit_breaker"] = CircuitBreaker(dice.choice([1, 3]))
        if dice.random() < 0.3:
            more["publish"] = Every("10m")
        if dice.random() < 0.3:
            more["on_failure"] = "hold"
        if dice.random() < 0.3:
            more["overrun"] = "finish"
        app.add_telemetry(
            f"d{number}",
            Device(dice),
            interval=interval,
            retry=dice.choice([0, 2]),
            backoff=FixedBackoff("5s"),
            timeout=dice.choice(["5s", "50s"]) if interval > 50 else "5s",
            **more,
        )
        intervals[f"d{number}"] = interval
    return app, intervals


def disturb(running, dice, names, until):
    """Arrange what people and brokers do until then."""
    for _ in range(dice.randrange(8)):
        at = dice.uniform(0, until - 2000)
        running.at(at, dice.choice([running.broker.stop, running.broker.cut, running.broker.freeze]))
        back = at + dice.uniform(0.1, 1900)
        running.at(back, running.broker.start)
        running.at(back, running.broker.thaw)
    for _ in range(dice.randrange(40)):
        name = dice.choice(names)
        topic, payload = dice.choice(
            [
                (f"app/{name}/get", b""),
                (f"app/{name}/release/set", b""),
                (f"app/{name}/circuit/set", b"isolate"),
                (f"app/{name}/circuit/set", b"close"),
                (f"app/{name}/circuit/set", b"disable"),
            ]
        )
        running.at(dice.uniform(0, until), lambda topic=topic, payload=payload: running.broker.send(topic, payload))
    if dice.random() < 0.5:
        running.at(dice.uniform(0, until), lambda: running.loop.block(dice.choice([3, 300])))
    if dice.random() < 0.5:
        running.at(dice.uniform(0, until), lambda: running.loop.step_wall(dice.choice([-4000, -5, 5, 50_000])))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_on_a_random_day_every_slot_has_one_disposition(seed):
    dice = random.Random(seed)
    random.seed(seed)
    app, intervals = app_of(dice)
    with Harness(app) as running:
        length = dice.choice([2, 8]) * HOUR
        disturb(running, dice, list(intervals), length)
        running.run(length + dice.uniform(0, 60))
        running.broker.start()
        running.broker.thaw()
        running.run(120)
        now, found = running.now, asked(running)
        running.stop()
        for name, interval in intervals.items():
            by = summed(found[name])
            assert found[name]["slots"] == pytest.approx(now // interval + 1, abs=1), name
            assert found[name]["slots"] - sum(by.values()) in (0, 1), name
        assert running.faults() == []


@pytest.mark.slow
def test_the_ledger_agrees_with_a_subscriber_over_days(harness):
    dice = random.Random(1)
    random.seed(1)
    app, devices, hours = App("app"), {}, {}
    for number in range(6):
        device = devices[f"d{number}"] = Device(dice)
        breaker = CircuitBreaker(5) if number % 2 else None
        rule = Every("10m") if number % 3 == 2 else None
        app.add_telemetry(f"d{number}", device, interval=300, retry=1, circuit_breaker=breaker, publish=rule)
    running = harness(app)
    for day in range(DAYS):
        at = day * DAY + dice.uniform(0, DAY / 2)
        running.at(at, dice.choice([running.broker.stop, running.broker.cut, running.broker.freeze]))
        running.at(at + dice.uniform(60, 8 * HOUR), running.broker.start)
        running.at(at + 8 * HOUR, running.broker.thaw)
    for _ in range(DAYS):
        running.run(DAY - 10)  # just before a slot
        for name, ledger in asked(running).items():
            summed(ledger)
            hours |= {(name, hour["start"]): hour for hour in ledger["hours"]}
        running.run(8.9)

    for name, device in devices.items():
        states = running.states(name)
        by, mine = Counter(), [hour for (other, _), hour in hours.items() if other == name]
        for hour in mine:
            by.update(hour["counts"])
        assert sum(hour["slots"] for hour in mine) == DAYS * DAY / 300
        assert sum(by.values()) in (DAYS * DAY / 300, DAYS * DAY / 300 - 1)
        arrived = len({state["n"] for state in states})
        assert 100 < by["published"] + by["replayed"] <= arrived
        assert arrived <= by["published"] + by["replayed"] + device.pauses  # the poll at the end of one has no slot
        assert by["replayed"] > 10
        assert by["buffered"] == by["dropped"] == 0


@pytest.mark.slow
def test_readings_that_the_outbox_dropped_are_no_longer_counted_as_read(harness, monkeypatch):
    monkeypatch.setattr("leadsman.core.wiring.core.Outbox", lambda: Outbox(most_messages=100))
    app, numbers = App("app"), iter(range(10**6))

    async def count():
        return {"n": next(numbers)}

    app.add_telemetry("d", count, interval=10)
    running = harness(app)
    running.run(HOUR)
    running.broker.stop()
    running.run(2 * HOUR)
    running.broker.start()
    running.run(HOUR - 5)

    ledger = asked(running, "d")["d"]
    by, arrived = summed(ledger), {state["n"] for state in running.states("d")}
    (gap,) = ledger["gaps"]
    assert by["published"] + by["replayed"] == len(arrived)
    assert by["dropped"] == gap["slots"]["dropped"] == ledger["slots"] - len(arrived) > 500
    assert gap["cause"] == "dropped"
    assert ledger["availability"] == pytest.approx(100 * len(arrived) / ledger["slots"], abs=0.001)


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_loses_no_slot(seed, tmp_path):
    dice = random.Random(seed)
    lives, now = 4, 0.0
    for _ in range(lives):
        app = App("app", keep_state=True)
        app.add_telemetry("d", Device(dice), interval=60)
        with Harness(app, wall=START + now, state_directory=tmp_path) as running:
            running.run(dice.uniform(0, 3 * HOUR))
            if dice.random() < 0.5:
                running.broker.stop()
            (running.stop if dice.random() < 0.7 else running.kill)()
            now += running.now + dice.choice([5.0, 100.0, 2 * HOUR])
    app = App("app", keep_state=True)
    app.add_telemetry("d", one, interval=60)
    with Harness(app, wall=START + now, state_directory=tmp_path) as running:
        running.run(1)
        ledger = asked(running, "d")["d"]
        by = summed(ledger)
        assert ledger["slots"] == pytest.approx(now / 60, abs=2 * lives + 1)
        assert sum(by.values()) == ledger["slots"]
        assert by["buffered"] == 0


def test_a_stop_is_a_gap_that_the_next_reading_ends(tmp_path):
    for at in (0.0, HOUR):
        app = App("app", keep_state=True)
        app.add_telemetry("d", one, interval=60)
        with Harness(app, wall=START + at, state_directory=tmp_path) as running:
            running.run(600)
            ledger = asked(running, "d")["d"]
    (gap,) = ledger["gaps"]
    assert gap["cause"] == "stopped"
    assert gap["slots"] == {"missed": ledger["counts"]["missed"]}
    assert gap["seconds"] == pytest.approx(HOUR - 601, abs=5)


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_cron_schedule_is_counted_right_when_summer_time_begins_and_ends(day, harness):
    zone = ZoneInfo("Europe/Berlin")
    midnight = datetime.fromisoformat(day).replace(tzinfo=zone)
    end = midnight + timedelta(days=1)
    app = App("app")
    app.add_telemetry("hourly", one, schedule=Cron("0 * * * *", zone="Europe/Berlin"))
    app.add_telemetry("daily", one, schedule=Cron("30 2 * * *", zone="Europe/Berlin"))
    running = harness(app, wall=midnight.timestamp() - 1)
    length = end.timestamp() - midnight.timestamp()
    running.run(length - 10)
    found = asked(running)
    assert summed(found["hourly"]) == {"published": length / HOUR}
    assert summed(found["daily"]) == {"published": 1}


def test_a_device_that_is_not_enabled_has_slots_that_are_disabled(harness):
    app = App("app")
    app.add_telemetry("on", one, interval=60)
    app.add_telemetry("off", one, interval=60, enabled=False)
    app.add_telemetry("cron", one, schedule="*/10 * * * *", enabled=False)
    running = harness(app)
    running.run(2 * HOUR)
    found = asked(running)
    assert summed(found["off"]) == {"disabled": 120}
    assert summed(found["cron"]) == {"disabled": 12}
    assert found["off"]["availability"] is None
    assert found["on"]["availability"] == 100.0


def test_slots_that_came_due_before_the_app_polled_are_starting(harness, caplog):
    @asynccontextmanager
    async def slow(settings):
        await asyncio.sleep(330)
        yield

    app = App("app", lifespan=slow)
    app.add_telemetry("d", one, interval=60)
    running = harness(app)
    running.run(600)
    ledger = asked(running, "d")["d"]
    assert summed(ledger) == {"starting": 5, "published": 6}
    assert ledger["gaps"][0]["cause"] == "starting"
    assert "5 polls missed so far, the last one of d: the app did not poll yet" in caplog.text


def test_a_source_has_readings_and_gaps_and_no_slots(harness):
    app, fails = App("app"), iter([False, True, True, False])

    @app.source("s", backoff=FixedBackoff("60s"), stale_after="10m", silence=None)
    async def feed():
        if next(fails, False):
            raise DeviceUnavailable("gone")
        yield {"n": 1}
        await asyncio.sleep(1000)
        yield {"n": 2}

    running = harness(app)
    running.run(HOUR)
    ledger = asked(running, "s")["s"]
    first, second, *_ = ledger["gaps"]
    assert ledger["slots"] == 0
    assert ledger["availability"] is None
    assert ledger["counts"] == {"published": len(running.states("s"))}
    assert (first["cause"], first["seconds"]) == ("silent", pytest.approx(400, abs=1))
    assert (second["cause"], second["seconds"]) == ("failed", pytest.approx(120, abs=5))


def test_one_reading_of_a_source_that_cannot_be_published_is_no_gap(harness):
    app = App("app")

    @app.source("s", silence=None)
    async def feed():
        for value in (1, object(), 2):
            yield {"n": value}
            await asyncio.sleep(10)
        await asyncio.Event().wait()

    running = harness(app)
    running.run(60)

    assert [error["type"] for error in running.errors("s")] == ["ResultError"] * 2  # the second says that it is over
    ledger = asked(running, "s")["s"]
    assert (ledger["counts"], ledger["gaps"]) == ({"published": 2}, [])


def test_the_message_is_retained_each_hour_and_after_a_gap_has_ended(harness):
    app = App("app")
    app.add_telemetry("d", Outages({"n": 1}, [(600, 900)]), interval=60)
    running = harness(app)
    running.run(2.5 * HOUR)

    sent = running.broker.messages("app/d/ledger")
    document = running.broker.retained["app/d/ledger"].json
    assert [round(each.at / 60) for each in sent] == [16, 60, 120]
    assert document["counts"] == {"published": 115, "failed": 5}
    assert [gap["seconds"] for gap in document["gaps"]] == [pytest.approx(300, abs=1)]
    assert document["availability"] == pytest.approx(95.833)


@pytest.mark.slow
def test_nothing_is_said_while_the_broker_is_away(harness):
    app = App("app")
    app.add_telemetry("d", one, interval=60)
    running = harness(app)
    running.run(600)
    running.broker.stop()
    running.run(HOUR)
    waiting = running.broker.messages("app/d/ledger")
    running.broker.start()
    running.run(300)

    (said,) = running.broker.messages("app/d/ledger")
    assert waiting == []
    assert said.json["counts"]["replayed"] > 55
    summed(said.json)


@pytest.mark.parametrize("kept", [False, True])
def test_a_broker_that_lost_the_session_gets_the_ledgers_again(harness, kept):
    app = App("app")
    app.add_telemetry("d", one, interval=60)
    running = harness(app)
    running.broker.connack = ConnAck(session_present=kept)
    running.run(2 * HOUR)
    before = len(running.broker.messages("app/d/ledger"))
    running.broker.stop(forget=not kept)
    running.run(10)
    running.broker.start()
    running.run(120)

    again = len(running.broker.messages("app/d/ledger")) - before
    assert again == (0 if kept else 1)
    assert "app/d/ledger" in running.broker.retained
