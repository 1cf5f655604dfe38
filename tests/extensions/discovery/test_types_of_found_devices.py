"""Devices whose readings have fields that only the device itself knows, so that the handler says them at run time."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leadsman import App, Context, Finds, Sensor
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Harness
from leadsman_rigs.examples import examples

DEGREES = Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement")]
PERCENT = Annotated[float, Sensor("%", device_class="humidity")]


def gateway_app(*heard, discovery="homeassistant"):
    """At each time, seconds from the start: the name of a sensor, its reading, and what is said of it."""
    app = App("house", discovery=discovery, keep_state=True)

    @app.source("gateway", finds=Finds(), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for at, name, reading, said in heard:
            await context.sleep(max(0.0, begin + at - loop.time()))
            context.device(name, **said).publish(reading)
            yield
        await context.sleep("365d")

    return app


def described(harness, device="attic"):
    return harness.broker.retained[f"homeassistant/device/house/{device}/config"].json


GROWING = [
    (1, "attic", {"temperature": 20.0}, {"fields": {"temperature": DEGREES}, "title": "H5075 1234"}),
    (60, "attic", {"temperature": 20.0, "humidity": 50.0}, {"fields": {"temperature": DEGREES, "humidity": PERCENT}}),
    (120, "attic", {"humidity": 51.0}, {"fields": {"humidity": PERCENT}}),
]


def test_a_device_is_described_by_what_its_handler_says_of_it(harness):
    running = harness(gateway_app(*GROWING))
    running.run(30)

    found = described(running)
    assert found["dev"]["name"] == "H5075 1234"
    words = {"unit_of_meas": "°C", "dev_cla": "temperature", "stat_cla": "measurement"}
    assert words.items() <= found["cmps"]["temperature"].items()
    assert "humidity" not in found["cmps"]


def test_a_field_that_comes_later_is_described_besides_and_none_goes(harness):
    running = harness(gateway_app(*GROWING))
    running.run(30)
    before = described(running)["cmps"]["temperature"]
    running.run(200)

    found = described(running)["cmps"]
    assert found["temperature"] == before
    assert found["humidity"]["unit_of_meas"] == "%"
    sent = [each for each in running.broker.log if each.topic == "homeassistant/device/house/attic/config"]
    assert len(sent) == 2
    assert all(each.payload for each in sent)
    assert {each.payload for each in running.broker.messages("house/attic/availability")} == {b"online"}


def test_two_devices_of_one_handler_have_fields_of_their_own(harness):
    said = [(1, name, {name: 1.0}, {"fields": {name: DEGREES}}) for name in ("attic", "cellar")]

    running = harness(gateway_app(*said))
    running.run(30)

    assert {"attic"} == {"attic", "cellar"} & described(running, "attic")["cmps"].keys()
    assert {"cellar"} == {"attic", "cellar"} & described(running, "cellar")["cmps"].keys()


class TestRestart:
    def second(self, tmp_path, *heard):
        with Harness(gateway_app(*GROWING), state_directory=tmp_path) as one:
            one.run("5m")
        two = Harness(gateway_app(*heard), state_directory=tmp_path)
        with two:
            two.broker.retained.update(one.broker.retained)
            two.run("5m")
        return one, two

    def test_the_description_is_what_it_was_before_the_device_is_heard(self, tmp_path):
        one, two = self.second(tmp_path)

        assert described(two) == described(one)
        assert not [each for each in two.broker.log if each.topic == "homeassistant/device/house/attic/config"]

    def test_a_kill_forgets_no_field(self, tmp_path):
        with Harness(gateway_app(*GROWING), state_directory=tmp_path / "one") as one:
            one.run(200)
            shutil.copytree(tmp_path / "one", tmp_path / "killed")  # as a kill would leave it
            kept = dict(one.broker.retained)
        with Harness(gateway_app(), state_directory=tmp_path / "killed") as two:
            two.broker.retained.update(kept)
            two.run("5m")

        assert "humidity" in described(two)["cmps"]
        assert not [each for each in two.broker.log if each.topic == "homeassistant/device/house/attic/config"]

    def test_a_field_that_is_said_alone_after_it_takes_none_away(self, tmp_path):
        one, two = self.second(tmp_path, (10, "attic", {"humidity": 1.0}, {"fields": {"humidity": PERCENT}}))

        assert described(two)["cmps"] == described(one)["cmps"]


WRONG = [
    ({"fields": {"temperature": list}}, InvalidType, "float, int, bool, str or datetime"),
    ({"fields": {"temperature": "float"}}, InvalidType, "temperature is 'float'"),
    ({"fields": {"a/b": float}}, InvalidValue, "letters, digits and underscores"),
    ({"fields": {"": float}}, InvalidValue, "letters, digits"),
    ({"fields": [float]}, InvalidType, "write a dict"),
    ({"title": 5}, InvalidType, "title is 5"),
]


@pytest.mark.parametrize(("said", "error", "text"), WRONG)
def test_what_is_invalid_is_named(harness, said, error, text):
    caught = []
    app = App("house")

    @app.source("gateway", finds=Finds(), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        with pytest.raises(error, match=text) as found:
            context.device("attic", **said)
        caught.append(found.value)
        yield
        await context.sleep("1d")

    running = harness(app)
    running.run(5)

    assert len(caught) == 1


def descriptions(harness, device="attic"):
    """What other programs are told of a device, by topic."""
    begins = f"homeassistant/device/house/{device}"
    return {topic: each.json for topic, each in harness.broker.retained.items() if topic.startswith(begins)}


def restarted(directory, *heard, **options):
    """An app after some seconds, with the state of the run before."""
    with Harness(gateway_app(*heard, **options), state_directory=directory) as harness:
        harness.run("5s")
        assert harness.faults() == []
    return harness


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True),
        st.sampled_from([float, int, bool, str, datetime, DEGREES, PERCENT]),
        min_size=1,
    ),
)
def test_what_is_kept_over_a_restart_is_what_was_said(fields):
    with TemporaryDirectory() as directory:
        one = restarted(Path(directory), (1, "attic", {}, {"fields": fields, "title": "Attic"}))
        two = restarted(Path(directory))

    assert descriptions(two) == descriptions(one)
    assert descriptions(one)
    assert fields.keys() <= {key for each in descriptions(one).values() for key in each["cmps"]}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(JSON | st.fixed_dictionaries({"fields": st.dictionaries(st.text(), JSON), "title": JSON}))
@example({"fields": []})
@example({"fields": {"a/b": ["number", None]}})
@example({"fields": {"a": ["nothing", None]}})
@example({"fields": {"a": ["number", {"unknown": 1}]}})
def test_damage_is_nothing(damaged):
    heard = [(1, name, {}, {"fields": {"temperature": DEGREES}}) for name in ("attic", "cellar")]
    with TemporaryDirectory() as directory:
        one = restarted(Path(directory), *heard)
        with closing(sqlite3.connect(Path(directory) / "resilience.db")) as database, database:
            ((kept,),) = database.execute("SELECT document FROM handler WHERE name = 'attic'").fetchall()
            text = json.dumps(json.loads(kept) | {"found_type": damaged})
            database.execute("UPDATE handler SET document = ? WHERE name = 'attic'", (text,))
        two = restarted(Path(directory))
        three = restarted(Path(directory))

    assert descriptions(two, "cellar") == descriptions(one, "cellar") != {}
    assert descriptions(three) == descriptions(two)


def test_the_number_of_fields_is_bounded_and_the_first_ones_stay(harness):
    groups = [["first"], *([f"f{number}" for number in range(begin, begin + 40)] for begin in (0, 40, 80))]
    running = harness(
        gateway_app(*((at, "attic", {}, {"fields": dict.fromkeys(each, float)}) for at, each in enumerate(groups)))
    )
    running.run("20s")

    known = [key for each in descriptions(running).values() for key in each["cmps"] if key[0] == "f"]
    assert len(known) == len(set(known)) == 50
    assert {"first", *groups[1]} < set(known)


def test_a_title_from_outside_is_made_safe(harness):
    titles = {"attic": " \x1b[31mH5075\x07 " + "x" * 200, "cellar": "x" * 200}
    running = harness(gateway_app(*((1, name, {}, {"title": title}) for name, title in titles.items())))
    running.run("5s")

    attic, cellar = (described(running, name)["dev"]["name"] for name in titles)
    assert "H5075" in attic
    assert attic.isprintable()
    assert len(attic) <= len(cellar) == 80
