"""Processes that have one name, and so one state directory: two of one app, and two apps of two authors."""

import json
import time

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.processes import program_process

NOBODY = "mqtt://127.0.0.1:9"
APP = """
from leadsman import App, Context
app = App("m", {words})

@app.telemetry({device!r}, interval=0.1)
async def read(context: Context):
    {body}
    return {{"by": {device!r}}}
"""


@pytest.fixture
def program(tmp_path):
    """Write a program and start it: ``program("ann", "gas", url)``."""
    running = []

    def start(author, device, url, body="pass", words="", **environment):
        directory = tmp_path / author
        directory.mkdir(exist_ok=True)
        (directory / "m.py").write_text(APP.format(device=device, body=body, words=words))
        target = f"{directory / 'm.py'}:app"
        variables = {"XDG_STATE_HOME": str(tmp_path / "state"), "MQTT__URL": url, **environment}
        log = tmp_path / f"{author}-{len(running)}.log"
        running.append(program_process("leadsman", ["run", target], log, **variables))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.kill()


def warnings(process):
    return [line.split(" WARNING ", 1)[1] for line in process.log.splitlines() if " WARNING " in line]


def owned_by(process, directory):
    """Wait until a process has written down that the state is its own."""
    file = directory / "state" / "leadsman" / "m" / "owner"
    while not file.exists() or json.loads(file.read_text())["pid"] != process.process.pid:
        assert process.process.poll() is None
        time.sleep(0.02)


def left_behind(program, *arguments, **words):
    """A program that ends with readings on disk."""
    first = program(*arguments, NOBODY, **words)
    first.wait_for("No connection to the broker")
    assert first.end()[0] == 0
    assert "on disk for the broker, and the next start sends them" in first.log
    return first


@pytest.mark.parametrize("waits", [False, True], ids=["nothing on disk", "readings on disk"])
def test_the_first_warning_of_a_second_process_is_that_another_one_runs(program, mosquitto, tmp_path, waits):
    if waits:
        left_behind(program, "ann", "gas")
    first = program("ann", "gas", mosquitto.url)
    first.wait_for("connected to the broker")
    owned_by(first, tmp_path)
    second = program("ann", "gas", mosquitto.url)
    second.wait_for("another process of this app runs")
    second.end()

    said = [line for line in warnings(second) if "blocked" not in line]  # the machine is busy
    assert said[0].startswith(f"another process of this app runs (process {first.process.pid} on ")
    assert "; stop it, or give this one a prefix of its own (--prefix, MQTT__TOPIC_PREFIX)" in said[0]
    assert not [line for line in warnings(first) if "another process" in line]


def test_a_second_process_whose_state_must_be_written_waits_and_says_first_for_whom(program, mosquitto, tmp_path):
    stores = "context.store['n'] = 1"
    first = program("ann", "gas", mosquitto.url, stores)
    first.wait_for("connected to the broker")
    assert first.end()[0] == 0  # the store is on disk
    first.start()
    owned_by(first, tmp_path)
    second = program("ann", "gas", mosquitto.url, stores)
    second.wait_for("waiting 5 s for it to end")

    said = second.log.splitlines()
    assert "INFO m starts with leadsman" in said[0]
    assert f"another process of this app runs (process {first.process.pid} on " in said[1]


def test_readings_of_another_app_of_the_name_are_not_sent_and_stay(program, listen, tmp_path):
    left_behind(program, "ann", "gas")
    file = tmp_path / "state" / "leadsman" / "m" / "outbox.db"
    before = file.read_bytes()

    with Mosquitto() as broker:
        listener = listen(broker.port)
        other = program("bob", "boiler", broker.url)
        assert other.process.wait(60) == 78
        refused = other.log.splitlines()[-1]
        listener.client.publish("end", b"x", 1)
        listener.wait_for("end")
        assert [each.topic for _, each in listener.messages if each.topic != "end"] == []
        assert file.read_bytes() == before
        assert f"{file.parent} has the state of another app, {tmp_path}/ann/m.py (devices: gas)" in refused
        assert "Give this app a name or a prefix of its own." in refused

        third = program("bob", "boiler", broker.url, words="prefix='bob'")  # as the message says
        listener.wait_for("bob/boiler/state")
        assert third.end()[0] == 0
        again = program("ann", "gas", broker.url)
        listener.wait_for("m/gas/state", 2)
        assert "on disk for the broker from an earlier run" in again.log


@pytest.mark.parametrize("state", ["context.store['n'] = 1", "pass"])
def test_stores_and_the_state_of_failures_of_another_app_are_not_touched(program, mosquitto, tmp_path, state):
    words = "" if "store" in state else "keep_state=True"
    first = program("ann", "gas", mosquitto.url, state, words)
    first.wait_for("gas: first reading")
    assert first.end()[0] == 0
    directory = tmp_path / "state/leadsman/m"
    before = {each.name: each.read_bytes() for each in directory.iterdir()}
    assert before.keys() & {"gas.json", "resilience.db"}

    other = program("bob", "boiler", mosquitto.url, "pass", "keep_state=True")

    assert other.process.wait(60) == 78
    assert {each.name: each.read_bytes() for each in directory.iterdir()} == before


def test_two_apps_that_run_at_once_are_told_apart_even_if_nothing_waits(program, mosquitto, tmp_path):
    first = program("ann", "gas", mosquitto.url)
    first.wait_for("connected to the broker")
    owned_by(first, tmp_path)

    assert program("bob", "boiler", mosquitto.url).process.wait(60) == 78


def test_two_apps_in_one_state_directory_are_told_apart_by_their_names(program, tmp_path):
    shared = {"STATE_DIRECTORY": str(tmp_path / "shared")}
    left_behind(program, "ann", "gas", **shared)
    other = program("bob", "boiler", NOBODY, **shared)

    assert other.process.wait(60) == 78
    assert "Give this app another STATE_DIRECTORY." in other.log


def test_an_app_that_was_moved_sends_what_it_left_and_says_where_that_is_from(program, listen, mosquitto, tmp_path):
    left_behind(program, "ann", "gas")
    listener = listen(mosquitto.port)
    moved = program("opt", "gas", mosquitto.url)
    moved.wait_for("on disk for the broker from an earlier run")
    listener.wait_for("m/gas/state", 2)

    assert f"has the state of {tmp_path}/ann/m.py (devices: gas), which this app continues with" in moved.log


def test_an_app_that_was_edited_sends_the_readings_of_a_device_that_is_gone_with_a_warning(
    program, listen, mosquitto, tmp_path
):
    left_behind(program, "ann", "gas")
    listener = listen(mosquitto.port)
    edited = program("ann", "heat", mosquitto.url)
    listener.wait_for("m/gas/state")

    assert "none of these devices is in the app any more; what waits there is sent" in warnings(edited)[0]
    assert edited.end()[0] == 0


def test_an_app_that_left_nothing_gives_way_to_another_of_its_name(program, mosquitto):
    first = program("ann", "gas", mosquitto.url, MQTT__TOPIC_PREFIX="m", OUTBOX__DURABILITY="memory")
    first.wait_for("connected to the broker")
    assert first.end()[0] == 0
    other = program("bob", "boiler", mosquitto.url)
    other.wait_for("boiler: first reading")

    assert other.end()[0] == 0
