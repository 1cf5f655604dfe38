"""`leadsman watch` on a terminal, with a real broker that restarts."""

import json
import signal
import socket
import subprocess
import sys
import termios

import pytest

from leadsman_rigs.listener import Listener
from leadsman_rigs.terminal import Terminal

WATCH = [sys.executable, "-m", "leadsman", "watch"]
HOUSE = """
@app.telemetry("boiler", interval=0.5, circuit_breaker=CircuitBreaker(2, recovery=60))
async def boiler():
    raise OSError("no answer")

@app.telemetry("attic", interval=0.5)
async def attic():
    return {"t": 21.5}
"""


@pytest.fixture
def house(mosquitto, start_app):
    start_app(HOUSE, mosquitto.url)
    with Listener(mosquitto.port) as listener:
        listener.wait_for("sys/attic/state")
        listener.wait_for("sys/status", where=lambda message: b"circuit_open" in message.payload)
    return mosquitto


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments):
        opened.append(Terminal([*WATCH, *arguments]))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_it_shows_the_devices_explains_one_outlives_the_broker_and_leaves_the_terminal_as_it_was(house, terminal):
    screen = terminal("--mqtt", house.url)
    board = screen.wait_for("boiler", "circuit open", "OSError: no answer", "t 21.5", "MQTT 5.0")
    assert all(len(line) <= 80 for line in board)

    screen.press("\r")
    screen.wait_for("To do: ", "its circuit is open", "leadsman circuit")
    screen.press("\x1b")
    screen.wait_for("last value", without=["To do"])

    house.kill()
    screen.wait_for("no connection to the broker for", "the board shows old values")
    house.start()
    screen.wait_for("attic", "online", without=["no connection"])

    screen.press("q")
    assert screen.ended() == 0
    assert screen.text.endswith("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(screen.follower) == screen.before
    assert "Traceback (most" not in screen.text


@pytest.mark.parametrize("leave", [lambda it: it.press("\x03"), lambda it: it.process.send_signal(signal.SIGTERM)])
def test_without_a_broker_it_says_so_and_ctrl_c_or_sigterm_end_it_cleanly(terminal, leave):
    screen = terminal("--mqtt", "mqtt://127.0.0.1:1")
    screen.wait_for("no connection to the broker for", "Connection refused")

    leave(screen)

    assert screen.ended() == 0
    assert termios.tcgetattr(screen.follower) == screen.before
    assert "Traceback (most" not in screen.text


def test_it_is_printed_once_for_people_and_programs(house):
    def once(*arguments):
        done = subprocess.run([*WATCH, *arguments, "--mqtt", house.url], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    table = once()
    found = json.loads(once("--once", "--json", "s*"))

    assert "circuit open" in table
    assert "\x1b" not in table
    assert [app["prefix"] for app in found["apps"]] == ["sys"]
    verdicts = {each["device"]: each["why"]["link"] for each in found["devices"]}
    assert verdicts == {"attic": "none", "boiler": "circuit"}


def test_a_broker_that_takes_the_connection_and_says_nothing_is_told_so():
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        url = f"mqtt://127.0.0.1:{frozen.getsockname()[1]}"
        command = [*WATCH, "--once", "--timeout", "0.5s", "--mqtt", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert f"{url} did not answer within " in done.stderr


@pytest.mark.parametrize("form", [("--once",), ("--once", "--json"), ()])
def test_a_prefix_that_no_app_has_is_an_error(house, form):
    command = [*WATCH, "sys", "nobody", *form, "--mqtt", house.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert "no app with the prefix nobody at mqtt://" in done.stderr
    assert "boiler" in done.stdout
