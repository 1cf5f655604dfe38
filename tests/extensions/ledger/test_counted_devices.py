"""What the ledger says of each kind of device, and of what happens to it: by introspection, as a person asks."""

import asyncio
import itertools
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman import App, Buffer, Context, Delivery, FixedBackoff, RetryRequested
from leadsman.testing import Harness, Scripted, fail, hang
from leadsman_rigs.examples import examples
from leadsman_rigs.hostile import payloads
from leadsman_rigs.stage import access_of

Press = Literal["single", "double"]
READING = {"t": 21.5}


def polled(handler, **options):
    app = App("app")
    app.add_telemetry("d", handler, **options)
    return app


def asked(running, device="d"):
    """The ledger of a device, by introspection."""
    request = {"sections": ["ledger"], "devices": [device]}
    running.broker.send("app/introspect", request, response_topic="app/answers/me")
    running.run(1)
    return running.broker.messages("app/answers/me")[-1].json["data"]["ledger"][device]


def test_of_more_polls_than_the_cpu_can_make_each_is_counted_at_once_and_there_is_one_gap(harness):
    interval, made = 0.02, {f"d{number}": [] for number in range(60)}
    app = App("app", heartbeat="10s")
    for name in made:

        async def read(name=name):
            made[name].append(running.now)
            running.loop.block(0.001)  # of a virtual CPU, which makes a third of the polls
            return {"n": len(made[name])}

        app.add_telemetry(name, read, interval=interval, spread=0)
    running = harness(app)
    running.run(15)

    ledger, calls = asked(running, "d7"), made["d7"]
    answer = running.broker.messages("app/answers/me")[-1]
    counts, polled = ledger["counts"], sum(call <= answer.at for call in calls)
    assert sum(counts.values()) in (ledger["slots"], ledger["slots"] - 1)
    assert counts["missed"] > 500
    assert sum(counts.values()) - counts["missed"] == pytest.approx(polled, abs=2)
    assert ledger["slots"] * interval == pytest.approx(answer.at, abs=0.3)
    causes, slots = ([gap[key] for gap in ledger["gaps"]] for key in ("cause", "slots"))
    assert set(causes) == {"late"}
    assert len(slots) <= 2, "one, and the one of the poll that is due just now"
    assert sum(each["missed"] for each in slots) == counts["missed"]


def test_the_poll_at_the_end_of_a_pause_has_no_slot_and_its_reading_ends_the_gap(harness):
    running = harness(polled(Scripted(fail(1, RetryRequested("26m", "HTTP 429")), READING), interval="25m"))
    running.run("55m")

    ledger = asked(running)

    (gap,) = ledger["gaps"]
    assert (gap["since"], gap["until"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:26:00.000Z")
    assert gap["slots"] == {"deferred": 2}
    assert [(hour["slots"], hour["counts"]) for hour in ledger["hours"]] == [(3, {"deferred": 2, "published": 1})]


@pytest.mark.parametrize("layout", ["fields", "both"])
def test_a_reading_with_a_topic_for_each_value_is_counted_once(harness, layout):
    running = harness(polled(Scripted({"a": 1, "b": 2, "c": 3}, {}, {"a": 1}), interval="10s", layout=layout))
    running.run("25s")

    assert asked(running)["counts"] == {"published": 3}


@pytest.mark.parametrize("kind", ["telemetry", "source"])
@pytest.mark.parametrize("durability", ["memory", "acked-or-durable"])
def test_what_a_newer_reading_replaced_in_an_outage_is_suppressed_and_no_gap(harness, kind, durability, tmp_path):
    app, values = App("app"), itertools.count()

    async def poll():
        return {"n": next(values)}

    async def source():
        while True:
            yield {"n": next(values)}
            await asyncio.sleep(1)

    if kind == "telemetry":
        app.add_telemetry("d", poll, interval=1, delivery=Delivery(keep="newest"))
    else:
        app.add_source("d", source, delivery=Delivery(keep="newest"))
    running = harness(app, settings={"outbox.durability": durability}, state_directory=tmp_path / "state")
    running.at(10.5, running.broker.stop)
    running.at(40.5, running.broker.start)
    running.run(50.5)

    ledger = asked(running)
    assert 26 <= ledger["counts"]["suppressed"] <= 32
    assert ledger["counts"].keys() == {"published", "replayed", "suppressed"}
    assert ledger["gaps"] == []


def test_the_time_in_which_a_device_has_left_is_a_gap(harness):
    app = App("app")

    @app.source("d", stale_after="1h")
    async def listen(context: Context):
        yield READING
        await context.sleep(10)
        context.unavailable("its battery is low")
        await context.sleep(60)
        yield READING
        await context.sleep("1h")

    running = harness(app)
    running.run(20)

    gap = asked(running)["gaps"][-1]
    assert (gap["cause"], gap["until"]) == ("left", None)
    running.run(60)
    assert asked(running)["gaps"][-1]["seconds"] == pytest.approx(60, abs=1)


def test_polls_that_fail_after_their_device_has_left_are_in_the_gap(harness):
    app = App("app")
    polls = iter([READING, None, OSError("no answer"), OSError("no answer"), READING])

    @app.telemetry("d", interval="10s")
    async def read(context: Context):
        poll = next(polls)
        if isinstance(poll, OSError):
            raise poll
        if poll is None:
            context.unavailable("it sleeps")
        return poll

    running = harness(app)
    running.run(35)

    gap = asked(running)["gaps"][-1]
    assert (gap["cause"], gap["slots"]) == ("left", {"deferred": 1, "failed": 2})


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("retry", [0, 2])
def test_the_gap_of_an_outage_begins_with_its_first_call(harness, stubborn, retry):
    script = Scripted(READING, hang(100, stubborn=stubborn), fail(9), READING)
    running = harness(polled(script, interval=60, timeout=20, retry=retry, backoff=FixedBackoff(1, jitter=0)))
    running.run("13m30s")

    assert asked(running)["gaps"][-1]["since"] == "2026-01-01T00:01:00.000Z"


def test_the_access_list_has_the_topic_of_the_ledger_of_a_root_device():
    app = App("gas")
    app.add_telemetry(None, Scripted(READING), interval=10)

    assert "gas/ledger" in access_of(app).publish


def test_patterns_of_an_app_hide_secrets_in_the_ledger_too(harness):
    app = App("app", redact=[r"SN-\d+"])
    app.add_telemetry("d", Scripted(READING, fail(99, OSError("no answer from SN-12345678"))), interval="10s")
    running = harness(app)
    running.run(25)

    assert asked(running)["gaps"] != []
    assert "SN-1234" not in json.dumps(asked(running))


class Button:
    """An app with a button, and the presses that arrive at it."""

    def __init__(self, keep_state=False, **options):
        self.presses, self.fails = Buffer(10_000), None
        self.app = App("app", keep_state=keep_state)

        @self.app.event("d", **options)
        async def button() -> AsyncIterator[Press]:
            if self.fails is not None:
                raise self.fails
            async for press in self.presses:
                if press == "pull":
                    raise OSError("the cable was pulled")
                yield press

    def press(self, *presses):
        for each in presses:
            self.presses.put(each)


@given(st.lists(st.sampled_from(["single", "double", None, "triple", ""]), max_size=30))
def test_each_event_is_counted_and_has_no_slot(presses):
    button = Button()
    with Harness(button.app) as running:
        running.run(1)
        button.press(*presses)
        running.run(20)

        ledger, known = asked(running), [each for each in presses if each in ("single", "double")]
        assert ledger["events"] == len(known)
        assert sum(ledger["counts"].values()) == len(known)
        assert ledger["slots"] == 0


def test_days_without_an_event_are_no_gap(harness):
    running = harness(Button().app)
    running.run("2d")

    assert asked(running)["gaps"] == []


def test_the_time_in_which_a_source_of_events_does_not_listen_is_one_gap(harness):
    button = Button()
    running = harness(button.app)
    running.run("10s")
    button.press("pull")
    running.run("2s")
    button.fails = OSError("no cable")
    running.run("10m")
    button.fails = None
    running.run("15m")

    assert [gap["until"] is not None for gap in asked(running)["gaps"]] == [True]


@pytest.mark.parametrize(("away", "counts"), [(5, {"replayed": 3}), (30, {"dropped": 3})])
@pytest.mark.parametrize("durability", ["memory", "acked-or-durable"])
def test_events_of_an_outage_are_counted_as_they_arrive_or_grow_too_old(away, counts, durability, harness, tmp_path):
    button = Button()
    running = harness(button.app, settings={"outbox.durability": durability}, state_directory=tmp_path)
    running.at(10.5, running.broker.stop)
    running.at(10.5 + away, running.broker.start)
    running.at(11, lambda: button.press("single", "single", "double"))
    running.run(60)

    assert (asked(running)["counts"], asked(running)["events"]) == (counts, 3)


def test_events_are_counted_over_a_restart(tmp_path):
    button = Button(keep_state=True)
    with Harness(button.app, state_directory=tmp_path) as first:
        first.run("10s")
        button.press("single")
        first.run("2m")
    with Harness(button.app, state_directory=tmp_path, wall=first.loop.wall_time() + 60) as second:
        second.run("10s")
        assert asked(second)["events"] == 1


def test_a_flood_of_events_is_counted(harness):
    button = Button()
    running = harness(button.app)
    running.run(1)
    button.press(*["single"] * 5000)
    running.run(30)

    assert asked(running)["counts"] == {"published": 5000}


def test_the_ledger_of_a_device_is_listed_and_goes_with_its_device_and_not_with_its_state():
    def run(retained, *names, **options):
        app = App("app")
        for name in names:
            app.add_telemetry(name, Scripted(READING), interval=10, **options)
        with Harness(app) as running:
            running.broker.retained.update(retained)
            running.run("70m")  # a ledger is published each hour
            return dict(running.broker.retained)

    def below(retained, name):
        return sorted(topic.split("/")[2] for topic in retained if topic.startswith(f"app/{name}/"))

    both = run({}, "d", "e")
    assert below(both, "e") == ["availability", "ledger", "state"]
    assert both["app/registry"].json["devices"]["e"]["retained"] == ["state", "availability", "ledger"]
    one = run(both, "d")
    assert (below(one, "d"), below(one, "e")) == (["availability", "ledger", "state"], [])
    assert below(run(one, "d", delivery=Delivery(retain=False)), "d") == ["availability", "ledger"]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_lie_in_the_table_of_the_ledger_costs_only_its_device(tmp_path_factory, data):
    def house():
        app = App("app", keep_state=True)
        for name in ("d", "other"):
            app.add_telemetry(name, Scripted(READING, fail(3), READING), interval="10s")
        return app

    state = tmp_path_factory.mktemp("state") / "state"
    with Harness(house(), state_directory=state) as first:
        first.run("2m")
        wall = first.loop.wall_time()
    with closing(sqlite3.connect(state / "resilience.db")) as database, database:
        found = dict(database.execute("SELECT name, document FROM ledger"))
        lies = data.draw(payloads(json.loads(found["d"])))[:2_000_000].decode(errors="replace")
        database.execute("UPDATE ledger SET document = ? WHERE name = 'd'", (lies,))

    with Harness(house(), state_directory=state, wall=wall + 60) as second:
        second.run("5s")
        assert asked(second, "other")["gaps"] != []
        assert asked(second, "d")["counts"] != {}
        assert second.status()["devices"]["other"]["status"] == "ok"
        assert not [each for each in second.broker.messages("app/error") if b"fault" in each.payload]
    shutil.rmtree(state)
