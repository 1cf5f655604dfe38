"""The board of the demo, on terminals of several sizes."""

import json
import logging

import pytest

from leadsman import Received
from leadsman.tools.cli.screen import text_of
from leadsman.tools.demo.board import Board, BoardLog

NOW = 1_800_000_000.0
AWAY_SINCE = "2027-01-15T07:59:53Z"
UNPLUGGED = {
    "status": "circuit_open",
    "consecutive_failures": 3,
    "last_error": (
        "DeviceUnavailable: /tmp/leadsman-tty-9yjx11ub/ttyDevice cannot be opened: the port does not exist; "
        "is the device plugged in?"
    ),
    "next_poll_at": "2027-01-15T08:00:03Z",
}
WELL = {"status": "ok", "consecutive_failures": 0, "last_error": None, "next_poll_at": "2027-01-15T08:00:01Z"}
READINGS = {
    "disk": {"free_gib": 69.8},
    "load": {"cpu_percent": 100.0, "load_1m": 5.89, "load_5m": 4.49},
    "memory": {"used_percent": 11.2},
    "meter": {"watts": 998.7},
    "temperature": {"coretemp": 41.0},
}
CONNECTED = {"connected": True, "protocol": "5.0", "connects": 1, "outbox": {"dropped": 0}}
AWAY = {**CONNECTED, "connected": False, "away_since": AWAY_SINCE}
WAYS = "http://127.0.0.1:8080/ · leadsman watch --mqtt mqtt://127.0.0.1:47813"
SIZES = [(80, 24), (60, 20), (100, 30), (120, 40)]


def arrives(it, device, reading, taken_at):
    it.hear(Received(f"demo/{device}/state", json.dumps(reading).encode(), False, taken_at=taken_at), NOW)


def document(meter=WELL, mqtt=CONNECTED, waits=0, published=1):
    devices = {name: meter if name == "meter" else WELL for name in READINGS}
    more = {"counters": {"published": published}, "outbox": {"messages": waits}}
    return {
        "mqtt": mqtt,
        "devices": {name: {"runtime": {**runtime, **more}} for name, runtime in devices.items()},
        "recent": {name: {"at": NOW - 2, "fields": fields} for name, fields in READINGS.items()},
        "fields": {"meter": {"watts": {"unit": "W", "device_class": "power"}}},
    }


def board(**options):
    it = Board("demo", "mqtt://127.0.0.1:47813 (a mosquitto of its own)", WAYS)
    it.take(document(**options))
    it.hear(Received("demo/status", b'{"state": "online", "health": "ok", "uptime": 29, "devices": {}}', False), NOW)
    for number in range(30):
        it.events.append(f"22:25:{number:02} meter: still failing after {number}s: {UNPLUGGED['last_error']}")
    return it


def logged(it, text, error=None):
    thrown = None if error is None else (type(error), error, None)
    BoardLog(it).emit(logging.LogRecord("py.warnings", logging.WARNING, "x.py", 1, "%s", (text,), thrown))
    return it.events[-1].partition(" ")[2]


def test_a_warning_of_python_is_one_line_of_the_log():
    assert logged(board(), "plant.py:3: UserWarning: it is old\n  import it\n") == "plant.py:3: UserWarning: it is old"


def test_an_exception_that_ends_a_thread_is_one_line_with_its_error():
    line = logged(board(), "an exception ended the thread reader", OSError("gone"))

    assert line == "an exception ended the thread reader: gone"


def drawn(it, width, height):
    return [text_of(line, colour=False) for line in it.screen(NOW, width, height)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("meter", [WELL, UNPLUGGED], ids=["well", "unplugged"])
@pytest.mark.parametrize("mqtt", [CONNECTED, AWAY], ids=["connected", "away"])
def test_nothing_is_off_the_screen(size, meter, mqtt):
    width, height = size

    lines = drawn(board(meter=meter, mqtt=mqtt), width, height)

    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("http://127.0.0.1:8080/ · leadsman watch")
    assert any(line.startswith("online, ok") for line in lines)
    if height > 20:
        assert "22:25:29" in "".join(lines[-4:])  # the newest line of the log


def test_how_many_arrived_has_nine_columns_of_a_wide_screen_and_the_reading_has_the_rest():
    heads = next(line for line in drawn(board(), 100, 30) if line.startswith("device "))

    assert (heads.index("age"), heads.index("arrived")) == (78, 91)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("trouble", [{"meter": UNPLUGGED}, {"mqtt": AWAY, "waits": 3}], ids=["device", "broker"])
def test_nothing_moves_when_a_device_or_the_broker_fails(size, trouble):
    well, failing = drawn(board(), *size), drawn(board(**trouble), *size)

    for start in ("── devices", "device ", "meter  ", "── the broker", "── heartbeat", "── log"):
        places = [[number for number, line in enumerate(lines) if line.startswith(start)] for lines in (well, failing)]
        assert places[0] == places[1]
    assert well[3] == failing[3]


@pytest.mark.parametrize("size", SIZES)
def test_it_says_why_a_device_fails_and_when_it_is_asked_next(size):
    words = " ".join("".join(drawn(board(meter=UNPLUGGED), *size)).split())

    assert "3 failed polls, next poll in 3 s: DeviceUnavailable" in words


def test_a_look_that_is_due_is_not_announced_in_zero_seconds():
    due = {**UNPLUGGED, "next_poll_at": "2027-01-15T08:00:00Z"}

    lines = drawn(board(meter=due), 120, 40)

    assert "polling now" in " ".join(lines)


@pytest.mark.parametrize("size", SIZES)
def test_while_the_broker_is_away_it_shows_what_the_app_reads_and_how_much_of_it_waits(size):
    lines = drawn(board(mqtt=AWAY, waits=3), *size)

    assert any("watts 998.7 W" in line for line in lines if line.startswith("meter"))
    assert any(line.startswith("away for 7s, 15 readings on disk") for line in lines)


def test_a_device_that_is_well_but_has_no_reading_yet_has_a_row_without_one():
    it = board()
    it.take(document() | {"recent": {"memory": {"at": None, "fields": {}}}})

    assert [line.split() for line in drawn(it, 80, 24) if line.startswith("memory")] == [["memory", "ok", "0"]]


def test_a_reading_that_arrives_twice_counts_once_and_one_that_does_not_arrive_is_missing():
    it = board(published=2)
    for taken_at in ("08:00:01", "08:00:02", "08:00:02"):
        arrives(it, "meter", {"watts": 1.0}, taken_at)
    for device in READINGS:
        if device != "meter":
            arrives(it, device, READINGS[device], "08:00:01")

    assert it.arrived == 6
    assert it.missing == 4
