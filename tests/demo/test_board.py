"""The board of the demo, on terminals of several sizes."""

import io
import json

import pytest
from rich.console import Console

from leadsman.demo.board import Board
from leadsman.mqtt.connection import Received

NOW = 1_800_000_000.0
WELL = {"status": "ok"}
UNPLUGGED = {
    "status": "circuit_open",
    "consecutive_failures": 3,
    "last_error": (
        "DeviceUnavailable: /tmp/leadsman-tty-9yjx11ub/ttyDevice cannot be opened: the port does not exist; "
        "is the device plugged in?"
    ),
    "next_poll_at": "2027-01-15T08:00:03Z",
}
WAYS = "http://127.0.0.1:8080/ · leadsman watch --mqtt mqtt://127.0.0.1:47813"
SIZES = [(80, 24), (60, 20), (100, 30), (120, 40)]


def heard(board, topic, payload):
    board.hear(Received(f"demo/{topic}", json.dumps(payload).encode(), False), NOW)


def board(meter):
    it = Board("demo", "mqtt://127.0.0.1:47813 (a mosquitto of its own)", WAYS)
    heard(it, "load/state", {"cpu_percent": 100.0, "load_1m": 5.89, "load_5m": 4.49})
    heard(it, "meter/state", {"watts": 998.7})
    mqtt = {"protocol": "5.0", "connects": 1, "outbox_messages": 0, "dropped": 0}
    devices = {"disk": WELL, "load": WELL, "memory": WELL, "meter": meter, "temperature": WELL}
    heard(it, "status", {"state": "online", "health": "ok", "uptime_s": 29, "mqtt": mqtt, "devices": devices})
    for number in range(30):
        it.events.append(f"22:25:{number:02} meter: still failing after {number}s: {UNPLUGGED['last_error']}")
    return it


def drawn(it, width, height):
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(it.screen(NOW, width, height))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("meter", [WELL, UNPLUGGED], ids=["well", "unplugged"])
def test_nothing_is_off_the_screen(size, meter):
    width, height = size

    lines = drawn(board(meter), width, height)

    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("http://127.0.0.1:8080/ · leadsman watch")
    assert any(line.startswith("online, ok") for line in lines)
    assert "22:25:29" in "".join(lines[-4:])  # the newest line of the log


@pytest.mark.parametrize("size", SIZES)
def test_nothing_moves_when_a_device_fails(size):
    well, failing = drawn(board(WELL), *size), drawn(board(UNPLUGGED), *size)

    for start in ("── devices", "device ", "meter  ", "── heartbeat", "── log"):
        places = [[number for number, line in enumerate(lines) if line.startswith(start)] for lines in (well, failing)]
        assert places[0] == places[1]
    assert well[3] == failing[3]


@pytest.mark.parametrize("size", SIZES)
def test_it_says_why_a_device_fails_and_when_it_is_asked_next(size):
    words = " ".join("".join(drawn(board(UNPLUGGED), *size)).split())

    assert "3 failed polls, DeviceUnavailable" in words
    assert "next poll in 3 s" in words


def test_a_look_that_is_due_is_not_announced_in_zero_seconds():
    due = {**UNPLUGGED, "next_poll_at": "2027-01-15T08:00:00Z"}

    lines = drawn(board(due), 120, 40)

    assert "polling now" in " ".join(lines)
