"""The table of docs/adr/commands.md: on each way into an app, what becomes of a message that the broker kept, that it
sends again, that waits in a session, that an older version has subscribed to, and that an earlier run may have handled.
"""

import threading
from contextlib import contextmanager
from typing import Literal

import pytest

from leadsman import App, Received
from leadsman.testing import Harness, MemoryBroker

Press = Literal["short", "long"]
DURABLE = {"outbox.durability": "acked-or-durable"}
FILTERS = {"acts": "doors/+/press", "feeds": "contacts/+/state", "rings": "bells/+/press"}
"""What the handlers of messages listen to; another version of the app has the second levels as well."""
WIDER = {"acts": "doors/#", "feeds": "contacts/#", "rings": "bells/#"}


class House:
    """One version of an app, and what it did."""

    def __init__(self, filters):
        self.app, self.done = App("house"), []
        app, done = self.app, self.done

        @app.command("door")
        async def door(step: int):
            done.append(("command", step))

        @app.telemetry("tank", interval="1h")
        async def tank():
            done.append(("poll", None))
            return {"litres": 7}

        @app.subscribe(filters["acts"])
        async def press(message: Received):
            done.append(("acts", message.payload))

        @app.subscribe(filters["feeds"], device="contact", stale_after=None)
        async def contact(shut: bool) -> dict[str, bool]:
            done.append(("feeds", shut))
            return {"open": not shut}

        @app.subscribe(filters["rings"], event="bell")
        async def bell(action: str) -> Press:
            done.append(("rings", action))
            return "short"


class Way:
    """A way in: where a message arrives, what it says, and what shows that it was acted on."""

    def __init__(self, topic, payload, effects, kept=0, unsure=None):
        self.topic, self.payload, self.effects = topic, payload, effects
        self.kept = kept
        """How often a message is acted on that the broker had kept before the app came."""
        self.unsure = unsure
        """The topic where a refusal to act on it is read; None if there is no answer."""


def calls(kind):
    return lambda house, broker: sum(each == kind for each, _ in house.done)


def answers(topic):
    return lambda house, broker: sum(b"was restarted" not in each.payload for each in broker.messages(topic))


WAYS = {
    "a command": Way("house/door/set", b"7", calls("command"), unsure="house/door/set/result"),
    "a poll on request": Way("house/tank/get", b'{"transaction":1}', answers("house/tank/get/response")),
    "a request to hold": Way("house/tank/hold/set", b"", answers("house/tank/hold/set/response")),
    "a question": Way("house/introspect", b'{"sections":["mqtt"]}', answers("house/introspect/response")),
    "a message of another program": Way("doors/front/press", b"short", calls("acts"), kept=1),
    "a reading of another program": Way("contacts/front/state", b"true", calls("feeds"), kept=1),
    "an event of another program": Way("bells/front/press", b"short", calls("rings")),
}
for name in ("a poll on request", "a request to hold", "a question"):
    WAYS[name].unsure = f"{WAYS[name].topic}/response"
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@contextmanager
def living(state, broker, filters=FILTERS):
    house = House(filters)
    harness = Harness(house.app, settings=DURABLE, state_directory=state)
    harness.broker = broker
    with harness:
        harness.run("5s")
        yield house, harness
        broker.cut()  # of a process that was killed the system closes the connection


@pytest.fixture
def broker():
    made = MemoryBroker()
    made.keep_sessions = True
    return made


@ways
def test_a_message_is_acted_on_once(tmp_path, broker, way):
    with living(tmp_path, broker) as (house, harness):
        broker.send(way.topic, way.payload)
        harness.run("5s")
        assert way.effects(house, broker) == 1


@ways
def test_one_that_was_kept_is_acted_on_where_a_state_is_and_only_the_first_time(tmp_path, broker, way):
    with living(tmp_path, broker) as (house, harness):
        for _ in range(3):
            broker.send(way.topic, way.payload, retain=True)
            harness.run("5s")
            broker.cut()
            harness.run("5s")
        assert way.effects(house, broker) == way.kept


@ways
def test_one_that_was_handled_live_is_not_handled_again_because_the_broker_kept_it(tmp_path, broker, way):
    with living(tmp_path, broker) as (house, harness):
        broker.send(way.topic, way.payload)
        harness.run("5s")
        broker.cut()
        broker.send(way.topic, way.payload, retain=True)
        harness.run("5s")
        assert way.effects(house, broker) == 1


def test_a_state_that_returns_while_the_app_is_cut_off_is_handled(tmp_path, broker):
    topic = WAYS["a reading of another program"].topic
    with living(tmp_path, broker) as (house, harness):
        broker.send(topic, b"true", retain=True)
        harness.run("5s")
        broker.send(topic, b"false")
        harness.run("5s")
        broker.cut()
        broker.send(topic, b"true", retain=True)
        harness.run("5s")
        assert [done for done in house.done if done[0] == "feeds"] == [("feeds", shut) for shut in (True, False, True)]


@ways
@pytest.mark.parametrize("breaks", [1, 3])
def test_one_whose_acknowledgement_is_lost_comes_again_and_is_acted_on_once(tmp_path, broker, way, breaks, caplog):
    caplog.set_level("INFO")
    with living(tmp_path, broker) as (house, harness):
        broker.unheard = True
        broker.send(way.topic, way.payload)
        harness.run("1s")
        for left in range(breaks, 0, -1):
            broker.unheard = left > 1
            broker.cut()
            harness.run("5s")
        assert way.effects(house, broker) == 1
        assert f"a message at {way.topic} came again" in caplog.text
        broker.send(way.topic, way.payload)  # the next one is a new one
        harness.run("5s")
        assert way.effects(house, broker) == 2


@ways
def test_one_that_waits_in_the_session_is_acted_on(tmp_path, broker, way):
    with living(tmp_path, broker) as (house, harness):
        broker.cut()
        broker.send(way.topic, way.payload)
        harness.run("5s")
        assert way.effects(house, broker) == 1


@ways
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_one_that_waits_while_the_app_is_restarted_is_acted_on(tmp_path, broker, way, ending):
    with living(tmp_path, broker) as (_, harness):
        getattr(harness, ending)()
    before = way.effects(House(FILTERS), broker)
    broker.send(way.topic, way.payload)
    with living(tmp_path, broker) as (house, _):
        assert way.effects(house, broker) - before == 1


@ways
@pytest.mark.parametrize(("old", "new"), [(FILTERS, WIDER), (WIDER, FILTERS)], ids=["wider", "narrower"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_the_filter_of_an_older_version_brings_nothing_twice(tmp_path, broker, way, old, new, ending):
    with living(tmp_path, broker, old) as (_, harness):
        getattr(harness, ending)()
    broker.send(way.topic, way.payload)  # waits for one version or the other
    with living(tmp_path, broker, new) as (house, harness):
        waited = way.effects(house, broker)
        broker.send(way.topic, way.payload)
        harness.run("5s")
        assert waited == 1
        assert way.effects(house, broker) == 2


@ways
def test_a_session_of_which_nothing_is_known_ends_before_it_brings_anything_twice(tmp_path, broker, way):
    with living(tmp_path / "old", broker, WIDER) as (_, harness):
        harness.kill()
    with living(tmp_path / "new", broker) as (house, harness):
        before = way.effects(house, broker)
        broker.send(way.topic, way.payload)
        harness.run("5s")
        assert way.effects(house, broker) - before == 1


@ways
def test_one_that_a_killed_run_may_have_handled_is_refused_and_the_sender_is_told(tmp_path, broker, way):
    with living(tmp_path, broker) as (house, harness):
        broker.unheard = True
        broker.send(way.topic, way.payload)
        harness.run("1s")
        assert way.effects(house, broker) == 1
        harness.kill()
    broker.unheard = False
    acted = len(broker.log)
    with living(tmp_path, broker) as (house, harness):
        after = MemoryBroker()
        after.log = broker.log[acted:]
        assert way.effects(house, after) == 0
        if way.unsure is not None:
            (answer,) = [each.json for each in after.messages(way.unsure)]
            assert answer["status"] == "error"
            assert "may have handled this request before; send it again" in answer["error"]


def test_a_session_of_an_older_version_gets_no_subscription_back(tmp_path, broker):
    with living(tmp_path, broker, FILTERS):
        pass
    with living(tmp_path, broker, WIDER):
        (session,) = broker._sessions.values()
        assert {*WIDER.values()} <= {*session.filters}
        assert not {*FILTERS.values()} & {*session.filters}


def test_an_app_that_gets_no_thread_to_remember_its_subscriptions_has_them_all_the_same(tmp_path, broker, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "leadsman call":
            raise RuntimeError("can't start new thread")
        start(thread)

    with living(tmp_path, broker, FILTERS):
        pass
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with living(tmp_path, broker, WIDER) as (house, harness):
        broker.send("doors/front/lock", b"shut")
        harness.run("5s")
        assert ("acts", b"shut") in house.done


@pytest.mark.parametrize("killed", [False, True])
def test_the_heartbeat_of_another_app_that_comes_again_reports_no_app_that_has_left(tmp_path, broker, killed):
    with living(tmp_path, broker) as (_, harness):
        broker.unheard = True
        broker.send("house/status", {"state": "online", "client_id": "other"})
        harness.run("200s" if killed else "60s")
        if killed:
            harness.kill()
        else:
            broker.unheard = False
            broker.cut()
            harness.run("100s")
            assert harness.status()["mqtt"]["last_error"] is None
            return
    broker.unheard = False
    with living(tmp_path, broker) as (_, harness):
        harness.run("40s")
        assert harness.status()["mqtt"]["last_error"] is None


@ways
def test_one_that_comes_while_the_app_ends_is_acted_on_once_or_the_log_says_that_it_is_not(
    tmp_path, broker, way, caplog
):
    with living(tmp_path, broker) as (house, harness):
        harness.app.stop()
        broker.send(way.topic, way.payload)
        harness.stop()
        acted = way.effects(house, broker)
    assert acted == (way.unsure is not None)  # requests are answered, messages of others come too late
    assert acted or f"message at {way.topic}: not handled to its end, since the app ends" in caplog.text
    with living(tmp_path, broker) as (second, _):
        assert way.effects(second, broker) == (acted if way.topic != "house/door/set" else 0)  # none by the next life
