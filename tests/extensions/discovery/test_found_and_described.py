"""Devices that are found and forgotten at awkward moments, and what discovery then has of them at the broker."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from pydantic import BaseModel

from leadsman import App, Context, Finds, Sensor
from leadsman.core.introspection.retained import Listed
from leadsman.core.text.identifiers import identifier
from leadsman.testing import Delivered, Harness

ATTIC, SAID = "homeassistant/device/house/attic/config", "house/attic/health"
"""What describes the device, and how it is."""
KITCHEN = ("Küche", identifier("Küche"))
"""Two names that have one identifier."""


class Climate(BaseModel):
    temperature: Annotated[float, Sensor("°C", device_class="temperature")]


def gateway_app(*heard, discovery="homeassistant", keep_state=False):
    """An app that hears readings, or does something with a device, at some seconds from the start."""
    app = App("house", keep_state=keep_state, discovery=discovery)

    async def gateway(context: Context) -> AsyncIterator[None]:
        begin = asyncio.get_running_loop().time()
        for at, name, what in heard:
            await context.sleep(max(0.0, begin + at - asyncio.get_running_loop().time()))
            device = context.device(name)
            if callable(what):
                what(device)
            else:
                device.publish({"temperature": what})
            yield
        await context.sleep("365d")

    app.add_source("gateway", gateway, finds=Finds(Climate), silence=None)
    return app


def forget(device):
    device.forget()


def configurations(running):
    return sorted(topic.split("/")[3] for topic in running.broker.retained if topic.startswith("homeassistant/"))


def about_attic(running):
    return [topic for topic in running.broker.retained if "attic" in topic]


@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_a_device_that_is_forgotten_before_it_was_described_leaves_nothing(harness, apart):
    running = harness(gateway_app((10, "attic", 20), (10 + apart, "attic", forget)))
    running.run(60)

    assert running.statuses("gateway")[-1] == "ok"
    assert running.errors("gateway") == []
    assert about_attic(running) == []
    assert running.faults() == []


@pytest.mark.parametrize("apart", [0.0, 0.3, 1.5, 6.0])
def test_a_device_that_is_forgotten_and_found_again_is_described_with_its_values_and_its_health(harness, apart):
    heard = [(10, "attic", 20), (30, "attic", forget), (30 + apart, "attic", 21), (60, "attic", 22)]
    running = harness(gateway_app(*heard))
    running.run(50)
    before = len(running.broker.messages(SAID))
    running.run(60)

    retained = running.broker.retained
    assert ATTIC in retained
    assert SAID in retained
    assert retained["house/attic/availability"].payload == b"online", "what was to be removed is wanted again"
    listed = Listed("house")
    listed.add("house/registry", retained["house/registry"].payload)
    assert ATTIC in dict(listed.topics())["attic"]
    assert running.faults() == []
    assert len(running.broker.messages(SAID)) > before


@pytest.mark.parametrize("moment", [9.2, 9.7, 10.05, 10.5, 10.95])
def test_a_device_that_is_forgotten_around_a_reconnect_leaves_nothing_and_the_goodbye_is_whole(harness, moment):
    running = harness(gateway_app((2, "attic", 20), (10.2, "attic", forget)))
    running.run(moment)
    running.broker.stop()
    running.run(0.01)
    running.broker.start()
    running.run(60)

    assert about_attic(running) == []
    running.stop()
    assert running.faults() == []
    assert running.status()["state"] == "offline"


def test_a_topic_of_a_forgotten_device_that_the_broker_does_not_give_up_stays_listed(harness, caplog):
    running = harness(gateway_app((2, "attic", 20), (10, "attic", forget), discovery=None))
    running.run(8)
    running.broker.refusals["house/attic/state"] = 0x87
    running.run(5)
    listed = running.broker.retained["house/registry"].json
    assert "attic" in listed["devices"], "a start that follows now removes it"

    running.run(30)

    assert about_attic(running) == ["house/attic/state"]
    registry = running.broker.retained["house/registry"].json
    assert ("attic" in registry["devices"], registry["others"]) == (False, ["house/attic/state"])
    assert "the broker has not removed 1 retained topic yet: house/attic/state" in caplog.text


def test_a_device_that_is_forgotten_while_there_is_no_connection_leaves_nothing(harness, caplog):
    running = harness(gateway_app((2, "attic", 20), (10, "attic", forget)))
    running.run(8)
    running.broker.stop()
    running.run(60)
    running.broker.start()
    running.run(60)

    assert about_attic(running) == []
    assert sorted(running.broker.retained["house/registry"].json["devices"]) == ["gateway"]
    assert "has not removed" not in caplog.text


def test_a_description_of_another_program_is_left_alone_though_the_device_is_found_later(harness):
    theirs = json.dumps({"o": {"name": "x"}}).encode()
    running = harness(gateway_app((10, "attic", 20)))
    topic = ATTIC
    running.broker.retained[topic] = Delivered(0.0, topic, theirs, True, None)
    running.run(30)

    assert running.broker.retained[topic].payload == theirs
    assert running.faults() == []


def test_two_names_of_one_identifier_that_a_thread_finds_at_once_are_one_device(harness):
    app, accepted = App("house", discovery="homeassistant"), []

    def find(context: Context) -> None:
        for name in KITCHEN:
            device = context.device(name)
            accepted.append(device.accepted)
            device.publish({"temperature": 1})

    @app.telemetry("gateway", interval="10s", finds=Finds(Climate))
    async def scan(context: Context) -> None:
        thread = threading.Thread(target=find, args=(context,))
        thread.start()
        thread.join()  # the loop adds the first one afterwards

    running = harness(app)
    running.run("15s")

    assert accepted[:2] == [True, False]
    assert running.faults() == []
    assert configurations(running) == [KITCHEN[1], "gateway", "leadsman_app"]


def test_devices_that_share_an_identifier_once_they_are_described_are_restored_as_one(tmp_path):
    heard = [(number, name, 20) for number, name in enumerate(KITCHEN, 1)]
    with Harness(gateway_app(*heard, discovery=None, keep_state=True), state_directory=tmp_path) as one:
        one.run("1m")
        assert {f"house/{name}/state" for name in KITCHEN} <= one.broker.retained.keys()

    with Harness(gateway_app(keep_state=True), state_directory=tmp_path) as two:
        two.run("1m")

        assert configurations(two) == [KITCHEN[1], "gateway", "leadsman_app"]
        assert two.faults() == []


def test_the_settings_give_a_found_device_its_name_and_its_area(harness):
    settings = {"devices.attic.name": "Under the roof", "devices.att*.area": "Attic"}
    running = harness(gateway_app((10, "attic", 20)), settings=settings)
    running.run(60)

    described = json.loads(running.broker.retained[ATTIC].payload)["dev"]
    assert (described["name"], described["sa"]) == ("Under the roof", "Attic")
