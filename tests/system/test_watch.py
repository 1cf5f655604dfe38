"""`leadsman watch` on a terminal, with a real broker that restarts."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from leadsman_rigs.listener import Listener

WATCH = [sys.executable, "-m", "leadsman", "watch"]
HOUSE = """
@app.telemetry("boiler", interval=0.5, circuit_breaker=CircuitBreaker(2, recovery=60))
async def boiler():
    raise OSError("no answer")

@app.telemetry("attic", interval=0.5)
async def attic():
    return {"t": 21.5}
"""


class Terminal:
    """A terminal of 80 columns on which a program runs."""

    def __init__(self, command):
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(follower)
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
        self.follower, self.text = follower, ""

    def read(self, seconds):
        if select.select([self.leader], [], [], seconds)[0]:
            self.text += os.read(self.leader, 65_536).decode(errors="replace")

    @property
    def frame(self):
        """The lines of the last frame that is complete."""
        frames = [each for each in self.text.split("\x1b[H")[1:] if each.endswith("\x1b[J")]
        return [re.sub("\x1b\\[[0-9;]*[mKJ]", "", line) for line in frames[-1].split("\r\n")] if frames else []

    def wait_for(self, *words, without=(), timeout=60.0):
        """The first frame with all these words, and none of the others."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.read(0.1)
            shown = "\n".join(self.frame)
            if all(word in shown for word in words) and not any(word in shown for word in without):
                return self.frame
        pytest.fail(f"{words} did not come; the screen is:\n" + "\n".join(self.frame))

    def press(self, keys):
        os.write(self.leader, keys.encode())

    def ended(self):
        """The exit code, once the program has ended."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        self.read(0.1)
        return self.process.wait(1)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.leader)
        os.close(self.follower)


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
    assert "Traceback" not in screen.text


@pytest.mark.parametrize("leave", [lambda it: it.press("\x03"), lambda it: it.process.send_signal(signal.SIGTERM)])
def test_without_a_broker_it_says_so_and_ctrl_c_or_sigterm_end_it_cleanly(terminal, leave):
    screen = terminal("--mqtt", "mqtt://127.0.0.1:1")
    screen.wait_for("no connection to the broker for", "Connection refused")

    leave(screen)

    assert screen.ended() == 0
    assert termios.tcgetattr(screen.follower) == screen.before
    assert "Traceback" not in screen.text


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


@pytest.mark.parametrize("form", [("--once",), ("--once", "--json"), ()])
def test_a_prefix_that_no_app_has_is_an_error(house, form):
    command = [*WATCH, "sys", "nobody", *form, "--mqtt", house.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert "no app with the prefix nobody at mqtt://" in done.stderr
    assert "boiler" in done.stdout
