"""The demo, as a person would run it."""

import asyncio
import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

from leadsman import Broker
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.message import Message
from leadsman.errors import NotListening
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman.tools.cli.own_broker import Viewer
from leadsman_rigs.one_connection import Hooks

LEADSMAN = [sys.executable, "-m", "leadsman"]
APP = Connect("app", "5.0", None, b"")
WITHOUT_MOSQUITTO = """\
import leadsman.tools.cli.own_broker
leadsman.tools.cli.own_broker.executable = lambda: None
from leadsman.tools.cli.main import main
raise SystemExit(main(["demo", "--for", "4s"]))
"""
WITHOUT_NATS = """\
import leadsman.tools.demo.cluster
leadsman.tools.demo.cluster.nats_executable = lambda: None
from leadsman.tools.cli.main import main
raise SystemExit(main(["demo", "--cluster"]))
"""


def run(*arguments, **options):
    return subprocess.run([*LEADSMAN, *arguments], capture_output=True, text=True, timeout=120, **options)


def test_without_a_terminal_it_prints_lines_and_ends_by_itself():
    result = run("demo", "--for", "5s")

    assert result.returncode == 0
    assert "watts" in result.stdout
    assert "heartbeat  online, ok" in result.stdout
    assert "heartbeat  offline" in result.stdout
    assert "the page is at http://127.0.0.1:" in result.stdout
    assert "leadsman gaps --mqtt mqtt://127.0.0.1:" in result.stdout
    assert "leadsman doctor --prefix leadsman-demo --mqtt mqtt://127.0.0.1:" in result.stdout
    assert "\x1b" not in result.stdout
    assert "Traceback (most" not in result.stderr
    assert re.fullmatch(r"Nothing was broken: 0 readings lost, \d+ received\.", result.stdout.splitlines()[-1])


def test_the_broker_dies_within_the_first_twenty_seconds_and_the_last_line_says_what_was_broken_and_lost():
    result = run("demo", "--for", "12s")  # the demo ends in the middle of the outage

    assert result.returncode == 0
    assert re.search(r"^[\d:]+ door +event_type (opened|shut)$", result.stdout, re.MULTILINE)
    assert "the disk is as the settings say, in [devices.disk]: interval = '5s', name = 'Root disk'" in result.stdout
    memory = re.findall(r"^[\d:]+ memory +used_percent (\S+).*, available_mib (\S+)", result.stdout, re.MULTILINE)
    assert 1 <= len(memory) <= 3  # polled each second, and published once in five: a Mean and a Minimum
    assert [pair for pair in memory if not re.fullmatch(r"\d+(\.\d)? \d+", " ".join(pair))] == []
    outage = result.stdout.index("--- on purpose: the broker is dead for 12 s; the app keeps its readings")
    assert "watts" in result.stdout[outage:]  # they arrived when the broker was started again
    last = result.stdout.splitlines()[-1]
    assert re.fullmatch(r"The broker was dead for \ds: 0 readings lost, \d+ received\.", last)


def test_without_mosquitto_it_brings_its_own_broker_and_says_what_that_is_worth():
    result = subprocess.run([sys.executable, "-c", WITHOUT_MOSQUITTO], capture_output=True, text=True, timeout=120)

    assert result.returncode == 0
    assert "an embedded broker (amqtt, MQTT 3.1.1; for this demo only)" in result.stdout
    assert "watts" in result.stdout
    assert "an outage of the broker is not shown; to see one, install mosquitto" in result.stdout


def test_it_reads_no_settings_of_another_app_that_lie_where_it_is_started(tmp_path):
    (tmp_path / "leadsman.toml").write_text('[rooms.kitchen]\nevery = "10s"\n')

    result = run("demo", "--for", "2s", cwd=tmp_path)

    assert result.returncode == 0, result.stderr


def test_a_broker_that_is_not_there_is_an_error_with_what_to_do():
    result = run("demo", "--broker", f"mqtt://127.0.0.1:{free_port()}")

    assert result.returncode == 1
    assert "Connection refused; start the broker" in result.stderr
    assert "or write leadsman demo without --broker, which brings its own" in result.stderr
    assert result.stdout == ""


def test_it_publishes_to_the_broker_that_it_is_told(mosquitto, listen):
    listener = listen(mosquitto.port)

    result = run("demo", "--for", "3s", "--broker", mosquitto.url)

    assert result.returncode == 0
    assert f"watch it with: mosquitto_sub -h 127.0.0.1 -p {mosquitto.port} -t 'leadsman-demo/#' -v" in result.stdout
    assert listener.on("leadsman-demo/meter/state")


def test_with_discovery_it_describes_its_devices_and_says_where_they_appear_and_how_they_go(mosquitto, listen):
    listener = listen(mosquitto.port)

    result = run("demo", "--for", "4s", "--discovery", "--broker", mosquitto.url)

    assert result.returncode == 0
    assert "unless it has them; the devices are at Settings > Devices" in result.stdout
    assert f"-p {mosquitto.port} -t 'homeassistant/device/leadsman-demo/#' -v" in result.stdout
    assert f"leadsman clean --prefix leadsman-demo --all --mqtt {mosquitto.url}" in result.stdout
    assert listener.on("homeassistant/device/leadsman-demo/meter/config")


def test_with_discovery_and_a_broker_of_its_own_it_says_what_to_type_in_home_assistant():
    result = run("demo", "--for", "4s", "--discovery")

    assert result.returncode == 0
    assert "Home Assistant: give its MQTT integration the broker 127.0.0.1 and the port " in result.stdout
    assert "leadsman clean" not in result.stdout


def test_without_nats_server_the_demo_of_a_cluster_says_what_to_install():
    result = subprocess.run([sys.executable, "-c", WITHOUT_NATS], capture_output=True, text=True, timeout=120)

    assert result.returncode == 1
    assert "apt-get install nats-server" in result.stderr
    assert result.stdout == ""


def test_three_nodes_of_the_demo_take_over_from_one_that_is_killed_and_give_it_its_part_again():
    result = run("demo", "--cluster")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "Traceback (most" not in result.stderr
    assert "\x1b" not in result.stdout
    killed, back, ended = result.stdout.splitlines()[-3:]
    assert re.match(r"pi-2 was killed: \d+ devices moved, longest gap \d", killed)
    assert re.match(r"pi-2 came back: \d+ devices moved", back)
    assert re.match(r"pi-3 was stopped: \d+ devices moved", ended)


def test_ctrl_c_ends_the_demo_of_a_cluster_with_all_that_it_has_started():
    with subprocess.Popen([*LEADSMAN, "demo", "--cluster"], stdout=subprocess.PIPE, text=True) as process:
        while "60 meters: pi-1" not in process.stdout.readline():
            assert process.poll() is None
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 0
    assert len(started) == 5  # three nodes, and two servers
    assert not [child for child in started if child.is_running()]


@pytest.fixture
def demo():
    """A demo on a terminal of 80 columns and 24 lines."""
    with started() as demo:
        yield demo


@contextlib.contextmanager
def started(**environment):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(
        [*LEADSMAN, "demo"], stdin=follower, stdout=follower, stderr=follower, env=variables
    ) as process:
        os.close(follower)
        yield process, leader
        process.terminate()  # and not killed: its broker would outlive it
        os.close(leader)


def frames(drawn):
    """The screens that were drawn, each as its lines."""
    plain = re.sub("\x1b\\[[0-9;]*[mKJ]", "", drawn.partition("\x1b[?25h")[0])
    return [frame.split("\r\n") for frame in plain.split("\x1b[H")[1:]]


@pytest.mark.parametrize("leave", ["q", "ctrl-c", "SIGINT", "SIGTERM"])
def test_on_a_terminal_it_draws_the_board_of_watch_until_it_is_left_and_the_last_line_is_the_account(demo, leave):
    process, leader = demo

    drawn = heard(leader, "leadsman watch", "the page is at http://127.0.0.1:", "watts ", "all is well")
    if leave.startswith("SIG"):
        process.send_signal(getattr(signal, leave))
    else:
        os.write(leader, {"q": b"q", "ctrl-c": b"\x03"}[leave])
    drawn += heard(leader, "received.")

    assert process.wait(60) == 0
    screen, left, account = drawn.partition("\x1b[?1049l")  # the alternate screen is left
    assert left
    assert "Traceback (most" not in drawn
    assert re.search(r"Nothing was broken: 0 readings lost, \d+ received\.", account)
    assert max(len(line) for frame in frames(screen) for line in frame) <= 80
    assert max(map(len, frames(screen))) <= 24


def test_on_a_terminal_it_says_what_it_breaks_and_what_the_app_keeps_meanwhile(demo):
    _, leader = demo

    heard(leader, "on purpose: the broker is dead for 12 s", "no connection to the broker for", "reading", "on disk")


NOISY = """
import os, threading, time
def write():
    while True:
        os.write(2, b"a library complains\\n")
        time.sleep(0.2)
threading.Thread(target=write, daemon=True).start()
"""


def test_what_a_library_writes_to_stderr_is_a_line_of_the_board_and_tears_no_picture(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOISY)

    with started(PYTHONPATH=str(tmp_path)) as (process, leader):
        drawn = heard(leader, "a library complains", "all is well")
        os.write(leader, b"q")
        drawn += heard(leader, "\x1b[?1049l")

        assert process.wait(60) == 0
    torn = [line for frame in frames(drawn) for line in frame if re.search(".a library complains|complains.", line)]
    assert torn == []


def test_what_the_outbox_delivers_after_an_outage_is_seen_from_the_first_message_on():
    async def outages(mosquitto):
        seen, broker = asyncio.Queue(), Broker.from_url(mosquitto.url)
        viewer = Viewer(broker, "demo/#", lambda message: seen.put_nowait(message.payload))
        listening = asyncio.create_task(viewer.listen())
        for outage in range(3):
            connection = await next_connection(viewer)
            connection.publish(Message("demo/meter/state", b"%d" % outage))
            async with asyncio.timeout(60):
                assert await seen.get() == b"%d" % outage
                mosquitto.kill()
                while viewer.failure is None:
                    await asyncio.sleep(0.01)
            with pytest.raises(NotListening):
                await viewer.connect_next(APP, Hooks())
            mosquitto.start()
        listening.cancel()

    with Mosquitto() as mosquitto:
        asyncio.run(outages(mosquitto))


async def next_connection(viewer):
    """As soon as there is one."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NotListening):
                return await viewer.connect_next(APP, Hooks())
            await asyncio.sleep(0.001)


def heard(leader, *words):
    """What a terminal got until it had all these words."""
    text, end = "", time.monotonic() + 60
    while not all(each in text for each in words):
        assert time.monotonic() < end, text
        if select.select([leader], [], [], 0.1)[0]:
            text += os.read(leader, 65_536).decode(errors="replace")
    return text


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "COMMAND"),
        (("demo", "--for", "30"), "such as '90s'"),
        (("demo", "--for", "-1s"), "--for"),
        (("demo", "--broker", "http://x"), "write mqtt://"),
        (("demo", "--cluster", "--for", "30s"), "write it alone"),
        (("fly",), "there is no command 'fly'"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_to_write(arguments, hint):
    result = run(*arguments)

    assert result.returncode in (1, 2, 78)
    assert hint in result.stderr
    assert "Traceback (most" not in result.stderr


def test_help_teaches():
    assert "watch real readings arrive" in run("--help").stdout
    assert "leadsman demo --for 30s" in run("demo", "--help").stdout
    assert "leadsman demo --cluster" in run("demo", "--help").stdout
    assert run("--version").stdout.startswith("leadsman ")


@pytest.mark.parametrize(
    ("page", "told", "reading"),
    [
        ("http-devices", 'roof/inverter/state  {"watts":412.5}', "inverter  watts=412.5 W"),
        ("i2c", 'attic/room/state  {"temperature":21.5}', "room  temperature=21.5 °C"),
        (
            "onewire",
            'heating/28-000005e2fdc3/state  {"temperature":54.25}',
            "28-000005e2fdc3  temperature=54.25 °C",
        ),
    ],
)
def test_the_whole_app_of_a_page_has_thirty_lines_at_most_and_shows_what_it_publishes(page, told, reading, tmp_path):
    code = re.findall(r"```python\n(.*?)```", Path(f"docs/how-to/{page}.md").read_text(), re.DOTALL)
    whole = next(each for each in reversed(code) if "__main__" in each)
    (tmp_path / "house.py").write_text(whole)

    command = [sys.executable, "house.py", "--demo", "--show", "--for", "4s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)

    assert len(whole.splitlines()) <= 30
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    assert reading in done.stdout
