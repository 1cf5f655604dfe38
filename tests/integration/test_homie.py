"""An app describes its devices by Homie 5: in which order, after a restart, and when the broker or a device fails."""

import json
import logging
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from leadsman import App, CircuitBreaker, Delivery, Discovery, OnChange
from leadsman.discovery.homie import Homie
from leadsman.errors import BrokerError, ConfigurationError
from leadsman.introspection.retained import Listed
from leadsman.testing import Delivered, Harness, Scripted, fail
from leadsman_rigs.homie import violations

ROOT, KITCHEN = "homie/5/house", "homie/5/house-kitchen"


class Air(BaseModel):
    co2: int
    note: str | None = None


async def read() -> Air:
    return Air(co2=400)


def house(*names, handler=read, discovery="homie", **options):
    app = App("house", discovery=discovery)
    for name in names or ("kitchen",):
        app.add_telemetry(name, handler, **{"interval": "30s", **options})
    return app


def scripted(*readings):
    """A handler that gives these readings, one after the other."""
    given = Scripted(*readings)

    async def read() -> Air:
        return await given()

    return read


def tree(broker, below="homie/"):
    return {topic: each.payload for topic, each in broker.retained.items() if topic.startswith(below)}


def sent(running, topic):
    return [each.payload for each in running.broker.messages(topic)]


def restarted(before, app):
    """Another run, at the broker of the run before."""
    after = Harness(app)
    after.broker.retained.update(before.broker.retained)
    return after


def test_the_tree_follows_the_convention_from_the_first_moment_at_which_the_app_is_ready(harness):
    running = harness(house("kitchen", "attic"))
    running.run("5s")

    found = {}
    for each in running.broker.log:
        if each.topic.startswith("homie/"):
            found[each.topic] = each.payload
            if found.get(f"{ROOT}/$state") == b"ready":
                assert violations({topic: payload for topic, payload in found.items() if payload}) == []

    assert tree(running.broker)[f"{KITCHEN}/$state"] == b"ready"
    assert tree(running.broker)[f"{KITCHEN}/values/co2"] == b"400"
    assert running.faults() == []


def test_a_device_is_ready_after_its_description_and_its_values(harness):
    """Device Lifecycle: ready "has sent all Homie messages describing the device attributes, ... and their values"."""
    running = harness(house())
    running.run("5s")

    order = [each.topic.removeprefix(f"{KITCHEN}/") for each in running.broker.log if each.topic.startswith(KITCHEN)]

    assert order[0] == "$state"
    assert order.index("$description") < order.index("values/co2") < len(order) - 1 - order[::-1].index("$state")
    assert sent(running, f"{KITCHEN}/$state") == [b"init", b"ready"]


def test_a_value_that_does_not_change_is_published_once(harness):
    running = harness(house(handler=scripted(Air(co2=400), Air(co2=400, note="x"), Air(co2=401))))

    running.run("70s")

    assert sent(running, f"{KITCHEN}/values/co2") == [b"400", b"401"]
    assert sent(running, f"{KITCHEN}/values/note") == [b"", b"x", b""]


def test_a_reading_that_is_not_published_changes_no_value(harness):
    running = harness(house(handler=scripted(Air(co2=400), Air(co2=405), Air(co2=450)), publish=OnChange(20)))

    running.run("70s")

    assert sent(running, f"{KITCHEN}/values/co2") == [b"400", b"450"]


def test_readings_that_are_not_retained_are_events_that_nobody_gets_later(harness):
    """QoS choices explained: "either you get it now, or you don't get it at all"."""
    running = harness(house(delivery=Delivery(retain=False), interval="10s"))
    running.at("15s", running.broker.stop)
    running.at("35s", running.broker.start)

    running.run("55s")

    times = [round(each.at) % 60 for each in running.broker.messages(f"{KITCHEN}/values/co2")]
    assert f"{KITCHEN}/values/co2" not in running.broker.retained
    assert times == [10, 40, 50]


def test_a_reading_that_changes_while_there_is_no_connection_waits_in_no_outbox(harness):
    running = harness(house(handler=scripted(*(Air(co2=number) for number in range(10))), interval="10s"))
    running.at("15s", running.broker.stop)
    running.at("55s", running.broker.start)

    running.run("58s")

    assert sent(running, f"{KITCHEN}/values/co2") == [b"0", b"1", b"5"]


def test_a_restart_sends_no_description_again(harness):
    with Harness(house()) as before:
        before.run("5s")
    with restarted(before, house()) as after:
        after.run("5s")

        assert sent(after, f"{KITCHEN}/$description") == sent(after, f"{ROOT}/$description") == []
        assert b"init" not in sent(after, f"{ROOT}/$state")
        assert tree(after.broker)[f"{KITCHEN}/$state"] == b"ready"


def test_a_device_that_is_gone_leaves_nothing_and_its_parent_is_told_first():
    """Removing children: "update the parent device ... clear any child-device(s) topics, starting with the $state"."""
    with Harness(house("kitchen", "attic")) as before:
        before.run("5s")
    with restarted(before, house()) as after:
        after.run("20s")

        order = [each.topic for each in after.broker.log]
        gone = [each.topic for each in after.broker.log if each.topic.startswith("homie/5/house-attic/")]
        assert tree(after.broker, "homie/5/house-attic") == {}
        assert order.index(f"{ROOT}/$description") < order.index(gone[0])
        assert gone[0] == "homie/5/house-attic/$state"
        assert violations(tree(after.broker)) == []


def test_a_broker_that_forgot_gets_everything_again(harness):
    running = harness(house())
    running.at("10s", lambda: running.broker.stop(forget=True))
    running.at("12s", running.broker.start)

    running.run("25s")  # before the next reading

    assert tree(running.broker).keys() >= {f"{KITCHEN}/values/co2", f"{KITCHEN}/$description", f"{ROOT}/$state"}
    assert violations(tree(running.broker)) == []


def test_nothing_is_published_for_a_device_that_another_program_describes(harness, caplog):
    running = harness(house("kitchen", "attic"))
    foreign = json.dumps({"homie": "5.0", "name": "mine"})
    running.broker.retained.update(foreign_at(f"{KITCHEN}/$description", foreign))

    running.run("1m")

    assert tree(running.broker, KITCHEN) == {f"{KITCHEN}/$description": foreign.encode()}
    assert tree(running.broker)["homie/5/house-attic/$state"] == b"ready"
    assert [
        line for line in caplog.messages if f"{KITCHEN}/$description" in line and "remove that configuration" in line
    ]


def foreign_at(topic, payload):
    return {topic: Delivered(0.0, topic, payload.encode(), True, None)}


def test_descriptions_of_other_apps_are_left_alone(harness):
    running = harness(house())
    topic = "homie/5/flat-kitchen/$description"
    running.broker.retained.update(foreign_at(topic, '{"type": "leadsman/flat"}'))

    running.run("20s")

    assert sent(running, topic) == []


def test_an_outage_is_an_alert_and_the_state_is_lost_until_the_device_answers(harness):
    app = App("house", discovery="homie")
    replies = Scripted(*[Air(co2=1)] * 3, fail(4, OSError("no answer")), Air(co2=2))

    @app.telemetry("kitchen", interval="30s", circuit_breaker=CircuitBreaker(3, recovery="1m"))
    async def look() -> Air:
        return await replies()

    running = harness(app)
    running.run("70s")
    assert tree(running.broker, f"{KITCHEN}/$alert") == {}
    running.run("81s")  # the third failed poll is at 150 s

    found = tree(running.broker)
    assert b"OSError: no answer" in found[f"{KITCHEN}/$alert/failing"]
    assert f"{KITCHEN}/$alert/circuit" in found
    assert found[f"{KITCHEN}/$state"] == b"lost"
    assert violations(found) == []

    running.run("5m")
    assert tree(running.broker, f"{KITCHEN}/$alert") == {}
    assert tree(running.broker)[f"{KITCHEN}/$state"] == b"ready"


# Commands


def heater():
    app = App("house", discovery="homie")
    wanted = []

    class Heater(BaseModel):
        target: Annotated[float, Field(ge=5, le=30)] = 20.0

    @app.telemetry("kitchen", interval="30s")
    async def look() -> Heater:
        return Heater()

    @app.command("kitchen")
    async def change(given: Heater) -> Heater:
        wanted.append(given.target)
        return given

    @app.command("bell")
    async def ring(times: int) -> None:
        wanted.append(times)

    return app, wanted


def test_a_property_that_is_set_reaches_the_device_and_shows_what_it_says(harness):
    app, wanted = heater()
    running = harness(app)
    running.at("5s", lambda: running.broker.send(f"{KITCHEN}/values/target/set", "23.5"))
    running.at("6s", lambda: running.broker.send("homie/5/house-bell/command/times/set", "3"))

    running.run("10s")

    assert wanted == [23.5, 3]
    assert sent(running, f"{KITCHEN}/values/target") == [b"20.0", b"23.5"]
    (target,) = running.broker.messages("homie/5/house-bell/command/times/$target")
    assert (target.payload, target.retain) == (b"3", False)


@pytest.mark.parametrize(
    ("topic", "payload"),
    [("values/target", "31"), ("values/target", "warm"), ("values/other", "1"), ("values/target", "\x00")],
)
def test_what_does_not_fit_is_answered_and_not_executed(harness, topic, payload):
    app, wanted = heater()
    running = harness(app)
    running.at("5s", lambda: running.broker.send(f"{KITCHEN}/{topic}/set", payload))

    running.run("10s")

    assert wanted == []
    results = [each.json for each in running.broker.messages("house/kitchen/set/result")]
    assert [each["status"] for each in results] == ["error"]


def test_a_flood_of_wrong_commands_logs_one_line(harness, caplog):
    app, _ = heater()
    running = harness(app)
    for number in range(50):
        running.at(f"{5 + number}s", lambda: running.broker.send(f"{KITCHEN}/values/target/set", "warm"))

    with caplog.at_level(logging.WARNING):
        running.run("60s")

    assert len([line for line in caplog.messages if "is refused" in line]) == 1


def test_commands_of_other_programs_and_retained_ones_are_ignored(harness):
    app, wanted = heater()
    running = harness(app)
    running.at("5s", lambda: running.broker.send("homie/5/flat-kitchen/values/target/set", "23"))
    running.at("5s", lambda: running.broker.send(f"{KITCHEN}/values/target/set", "23", retain=True))

    running.run("10s")

    assert wanted == []
    assert running.broker.messages("house/kitchen/set/result") == []


# The will


def test_an_app_that_is_killed_is_lost_with_all_its_devices(harness):
    """Last Will: "Homie requires the last will (LWT) to set the ... $state attribute to the value lost"."""
    running = harness(house())
    running.run("5s")

    running.kill()
    wills = [packet for _, packet in running.broker.connects if packet.will_payload == b"lost"]

    assert [(each.will_topic, each.will_retained) for each in wills] == [(f"{ROOT}/$state", True)]
    assert len({packet.client_id for _, packet in running.broker.connects}) == 2


def test_a_short_break_of_the_connection_does_not_make_it_lost(harness):
    running = harness(house())
    running.at("10s", running.broker.cut)

    running.run("30s")

    assert b"lost" not in sent(running, f"{ROOT}/$state")
    assert tree(running.broker)[f"{ROOT}/$state"] == b"ready"


def test_a_reconnect_sends_no_description_again(harness):
    running = harness(house())
    running.at("10s", running.broker.cut)

    running.run("30s")

    assert len(sent(running, f"{KITCHEN}/$description")) == len(sent(running, f"{ROOT}/$description")) == 1
    assert sent(running, f"{KITCHEN}/$state").count(b"init") == 1


def test_a_reconnect_sends_nothing_over_what_another_program_published_meanwhile(harness):
    running = harness(house())
    foreign = json.dumps({"homie": "5.0", "name": "mine"})
    running.at("10s", lambda: running.broker.retained.update(foreign_at(f"{KITCHEN}/$description", foreign)))
    running.at("11s", running.broker.cut)

    running.run("30s")

    assert tree(running.broker)[f"{KITCHEN}/$description"] == foreign.encode()


def test_an_app_whose_will_was_a_mistake_says_that_it_is_ready(harness):
    running = harness(house())
    running.run("5s")
    (will,) = [each for key, each in running.broker._clients.items() if key.endswith("-homie")]
    running.broker.refuse_connect = BrokerError("refused")

    will.end("connection reset", will=True)
    running.run("15s")
    assert tree(running.broker)[f"{ROOT}/$state"] == b"lost"

    running.broker.refuse_connect = None
    running.run("70s")
    assert tree(running.broker)[f"{ROOT}/$state"] == b"ready"


def test_a_broker_that_takes_no_second_connection_is_one_line_in_the_log(harness, caplog):
    running = harness(house())
    connect = running.broker.connect

    async def only_one(packet, listener):
        if packet.client_id.endswith("-homie"):
            raise BrokerError("not authorized")
        return await connect(packet, listener)

    running.broker.connect = only_one
    running.run("5m")

    assert tree(running.broker)[f"{ROOT}/$state"] == b"ready"
    assert len([line for line in caplog.messages if "allow this client id" in line]) == 1


def test_an_app_that_stops_disconnects_all(harness):
    running = harness(house("kitchen", "attic"))
    running.run("5s")
    running.stop()

    found = tree(running.broker)
    assert {found[f"{each}/$state"] for each in (ROOT, KITCHEN, "homie/5/house-attic")} == {b"disconnected"}


# Settings and the registry


def test_the_settings_choose_the_convention_and_its_first_level():
    given = {"discovery.convention": "homie", "discovery.prefix": "lab"}
    with Harness(house(discovery=Discovery(prefix="ha/x")), settings=given) as running:
        running.run("5s")

        assert running.broker.retained["lab/5/house/$state"].payload == b"ready"
        assert [topic for topic in running.broker.retained if topic.startswith(("ha", "homie"))] == []
    with Harness(house(discovery=Discovery(prefix="ha/x")), settings={"discovery.convention": "homie"}) as running:
        running.run("5s")

        assert f"{ROOT}/$state" in running.broker.retained


def test_a_prefix_of_two_levels_is_refused():
    with pytest.raises(ConfigurationError, match="such as 'homie'"):
        Discovery("homie", prefix="a/b")


def test_a_subscription_that_covers_what_homie_listens_to_is_refused():
    app = house()

    @app.subscribe("homie/#")
    async def listen(payload: dict) -> None: ...

    with pytest.raises(ConfigurationError, match="overlaps with 'homie/5/"):
        app.load()


def test_devices_with_one_identifier_are_reported_at_the_load():
    with pytest.raises(ConfigurationError, match="'Living room' and 'living-room' have one identifier"):
        house("Living room", "living-room").load()


def test_every_retained_topic_is_in_the_registry(harness):
    running = harness(house())
    running.run("70s")

    listed = Listed("house")
    for topic, each in running.broker.retained.items():
        listed.add(topic, each.payload)
    listed.prove({topic: each.payload for topic, each in running.broker.retained.items()})

    known = {topic for _, topics in listed.topics() for topic in topics}
    assert tree(running.broker).keys() <= known
    assert "house/kitchen/health" not in known | running.broker.retained.keys()


def test_a_dry_run_describes_nothing():
    with Harness(house(), dry_run=True) as running:
        running.run("1m")

        assert [each.topic for each in running.broker.log if "homie" in each.topic] == []
        assert len(running.broker.connects) == 1


def test_a_fault_in_the_goodbye_costs_nothing_else(harness, monkeypatch):
    def broken(self, names):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Homie, "goodbye", broken)
    running = harness(house())
    running.run("5s")

    running.stop()

    assert running.status()["state"] == "offline"
    assert [each["where"] for each in running.faults()] == ["the goodbye of discovery"]
