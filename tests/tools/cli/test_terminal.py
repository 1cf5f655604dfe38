"""What the commands print on a terminal of 80 columns: no line is longer, and each command looks as its file in
`at_80_columns` says. A file that is missing is written, and its test fails once: look at it before it is committed."""

import io
import json
import re
import time
from pathlib import Path

import pytest

from leadsman.core.loop.clock import rfc3339
from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.tools.cli.commands import commands
from leadsman.tools.cli.main import main
from leadsman.tools.cli.screen import cells
from leadsman.tools.doctor.checks import Finding
from leadsman.tools.doctor.commands import doctor

EXPECTED = Path(__file__).parent / "at_80_columns"
NOW = 1_795_338_000.0
PORT = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0"
UNAVAILABLE = f"DeviceUnavailable: {PORT} cannot be opened: the port does not exist; is the device plugged in?"
GARBLED = (
    "GarbledData: the meter answered '\\x00\\xff\\x12§§§' instead of 9 bytes that end with their checksum (CRC 16)"
)
WELL = ("Küche", "Gäste-WC unten", "Schlafzimmer der Großeltern", "attic", "cellar", "garage", "hall", "温度計 2階")
PROGRAMS = {"acl", "schema", "completion", "record"}
"""Commands whose output is for a program or a file."""
LOGS = {"run", "replay", "demo", "ble"}
"""Commands that write a log, or draw a screen."""


def at(seconds):
    return rfc3339(NOW + seconds)


def runtime(status="ok", **more):
    return {
        "status": status,
        "held": status == "held",
        "stale": False,
        "circuit": "closed",
        "opened_at": None,
        "opens": 0,
        "consecutive_failures": 0,
        "counters": {"polls": 1440, "failed_polls": 2, "retried_polls": 3, "calls": 1449, "retries": 9},
        "last_success_at": at(-20),
        "next_poll_at": at(40),
        "failing_since": None,
        "last_error": None,
        "poll_under_way": None,
    } | more


FAILING = {
    "Wärmepumpe im Keller": runtime(
        "circuit_open",
        circuit="open",
        opens=3,
        consecutive_failures=57,
        opened_at=at(-85_000),
        counters={"polls": 12_880, "failed_polls": 500, "retried_polls": 412, "calls": 14_704, "retries": 1824},
        last_success_at=at(-86_400),
        next_poll_at=at(300),
        failing_since=at(-86_000),
        last_error=UNAVAILABLE,
    ),
    "boiler": runtime(
        "held",
        consecutive_failures=4,
        last_success_at=None,
        next_poll_at=None,
        failing_since=at(-90),
        last_error=GARBLED,
    ),
}
RUNTIMES = FAILING | {name: runtime() for name in WELL}
ROWS = [
    ("Wärmepumpe im Keller", 57, 1, "retry", 2.0, UNAVAILABLE),
    ("Wärmepumpe im Keller", 57, 4, "count", None, UNAVAILABLE),
    ("Wärmepumpe im Keller", None, None, "circuit open", None, None),
    ("attic", 3, 2, "retry", 0.5, "DeviceTimeout: no answer within 3 s"),
    ("attic", None, None, "recovered", None, None),
]
TRACE = [
    {"number": number, "at": at(number - 60), "handler": handler, "cycle": cycle, "attempt": attempt, "reason": reason}
    | {"delay": delay, "error_type": error and error.partition(": ")[0]}
    | {"error_message": error and error.partition(": ")[2]}
    for number, (handler, cycle, attempt, reason, delay, error) in enumerate(ROWS)
]
GAPS = [
    {"since": at(-86_000), "until": None, "seconds": 86_000.0, "cause": "failed"}
    | {"slots": {"failed": 57, "circuit_open": 1376}},
    {"since": at(-90_000), "until": at(-89_000), "seconds": 1000.0, "cause": "failed"} | {"slots": {"failed": 16}},
]
LEDGER = {
    name: {
        "at": at(0),
        "slots": 1440,
        "counts": {"published": 1440},
        "availability": 100.0,
        "hours": [{"start": at(-86_400), "slots": 60, "counts": {}}],
        "gaps": [],
    }
    for name in WELL
} | {
    "Wärmepumpe im Keller": {
        "at": at(0),
        "slots": 1440,
        "counts": {"published": 7, "failed": 57, "circuit_open": 1376, "too_late": 12, "missed": 3},
        "availability": 0.486,
        "hours": [],
        "gaps": GAPS,
    }
}
DOCUMENT = {
    "app": {
        "name": "house",
        "version": "2026.11",
        "prefix": "home/first floor",
        "leadsman": "0.1.0",
        "python": "3.12.1",
        "started_at": at(-90_061),
        "uptime": 90_061.0,
        "state_files": {"/var/lib/house/state.db": "OSError: [Errno 28] No space left on device"},
    },
    "mqtt": {
        "broker": "mqtt://broker.wohnung.example.net:1883",
        "protocol": "5.0",
        "connects": 12,
        "outbox": {"messages": 1203, "oldest": 3601.0, "delivered": 88_120, "dropped": 0},
        "brokers": [{"broker": "mqtts://second-broker.wohnung.example.net:8883", "last_error": UNAVAILABLE}],
        "limited_by": None,
        "last_error": "the broker closed the connection: keep alive timeout (0x8d)",
    },
    "adapters": [
        {"adapter": "SerialPort", "open": False, "error": UNAVAILABLE, "reopened": 57}
        | {"health": {"opened": False, "discarded": 120, "silent_for": 86_000.0}}
    ],
    "devices": {name: {"registrations": [{"kind": "telemetry"}], "runtime": each} for name, each in RUNTIMES.items()},
    "jobs": {},
    "trace": TRACE,
    "ledger": LEDGER,
    "recent": {
        "Küche": {"at": NOW, "fields": {"temperature": 21.5, "Luftfeuchtigkeit": 48, "co2": 812, "Licht": "aus"}}
        | {"outcomes": {"words": ["ok"] * 118 + ["failed"] * 2}}
    },
    "fields": {"Küche": {"temperature": {"unit": "°C", "device_class": "temperature", "precision": 1}}},
}
ENDED = {"since": at(-1500), "until": at(-1488), "seconds": 12.0, "cause": "failed"}
READS = {"kind": "telemetry", "handler": "read", "needs": ["SerialPort"], "enabled": True}
SILENT = {
    "app": DOCUMENT["app"],
    "devices": {name: {"registrations": [READS], "runtime": each} for name, each in RUNTIMES.items()},
    "jobs": {},
    "ledger": {name: {"at": at(0), "gaps": [ENDED]} for name in WELL[:3]},
}
FOUND = [
    Finding("broker", "address", "ok", "mqtt://broker.wohnung.example.net:1883 answers, 4 ms away"),
    Finding(
        "topics",
        "publish",
        "fail",
        "the broker refuses home/first floor/Küche/state and 19 other topics: not authorized (0x87)",
        "add them to its access list; leadsman acl house:app prints the lines",
    ),
    Finding("machine", "serial ports", "warn", UNAVAILABLE, f"plug it in; ls -l {PORT} shows whether it is there"),
    Finding("machine", "clock", "unknown", "no program that sets the clock of this machine says how well it does so"),
]
VALUES = {"Küche": {"temperature": "21.5 °C", "Luftfeuchtigkeit": "48 %", "co2": "812 ppm"}, "hall": {"Licht": "aus"}}
READING = {f"{name} (of the water that flows back)": 21.5 for name in WELL}
NODE = {
    "node": "gateway-1.wohnung.example.net",
    "kind": "cluster",
    "state": "active",
    "at": at(0),
    "since": at(-3600),
    "ttl_s": 15.0,
    "version": "2026.11",
    "devices": list(WELL),
    "device_count": 8,
    "shard_count": 4,
    "registered": 12,
    "labels": ["rs485", "bluetooth"],
    "members": [],
    "unowned": list(FAILING),
    "unowned_count": 2,
    "handovers": {"gained": 12, "lost": 3, "released": 1},
    "without_node": [{"needs": ["modbus"], "devices": 2}],
    "engine": {"reachable": False, "unreachable_since": at(-60)},
}
APP = """
from typing import Annotated
from pydantic import BaseModel
from leadsman import App, CircuitBreaker, OnChange, Sensor

app = App("house")

class Air(BaseModel):
    temperature: Annotated[float, Sensor("°C")]

for name in {names!r}:
    @app.telemetry(name, interval="1m", retry=3, circuit_breaker=CircuitBreaker(5), publish=OnChange(0.1))
    async def air() -> Air:
        return Air(temperature=21.5)
"""


REGISTRY = {
    "app": "house",
    "introspect": "house/introspect",
    "devices": {name: {"topics": {"state": f"house/{name}/state"}} for name in RUNTIMES},
}
STATUS = {"state": "online", "session": 7, "at": at(-3), "uptime": 90_061.0, "devices": RUNTIMES}
STATUS |= {
    "mqtt": {"protocol": "5.0", "connects": 12, "outbox": {"messages": 1203}, "last_error": "keep alive timeout"}
}


ARGUMENTS = {
    "check": ("house_80:app",),
    "doctor": ("--prefix", "house"),
    "inspect": ("--prefix", "house"),
    "trace": ("--prefix", "house"),
    "why": ("--prefix", "house"),
    "watch": ("--once",),
    "gaps": ("--prefix", "house"),
    "held": ("--prefix", "house"),
    "hold": ("--prefix", "house", "Wärmepumpe im Keller"),
    "release": ("--prefix", "house", "Wärmepumpe im Keller"),
    "circuit": ("--prefix", "house", "Wärmepumpe im Keller", "--action", "isolate"),
    "poll": ("Küche", "--prefix", "house"),
    "outbox": ("--state-directory", "."),
    "cluster": ("status", "house"),
    "clean": ("--prefix", "house", "--all", "--dry-run"),
    "simulate": ("house_80:app", "--for", "30m"),
    "diff": ("house_80:app", "--before", ".", "--for", "10m"),
    "init": ("house",),
    "health": ("health.json",),
}
"""What is typed behind the name of each command that prints answers for a person."""


@pytest.fixture
def printed(monkeypatch, stage, tmp_path):
    """Types a command in a terminal with so many columns, and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "house_80.py").write_text(APP.format(names=WELL), "utf-8")
    (tmp_path / "health.json").write_text(
        json.dumps({"at": time.monotonic(), "period": 10.0, "fresh": True, "words": f"house runs; {UNAVAILABLE}"})
    )
    spool = SpoolFile(tmp_path / "outbox.db", Quota(least_free=0))
    spool.open()
    spool.write([SpoolRow(1, 7, "house/Küche/state", b"21.5", 1, True, NOW, None, False)], (), [])
    spool.close()
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/house")
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setattr(doctor, "_facts", lambda subject: None)
    monkeypatch.setattr(doctor, "findings", lambda facts: FOUND)
    monkeypatch.setenv("MQTT__HOST", "broker.lan")
    stage.keep({"house/registry": REGISTRY, "house/status": STATUS})
    stage.keep({f"house/{name}/state": value for name, value in VALUES.items()})
    stage.answers("house/Küche/get", READING)
    for topic in ("hold", "release", "circuit"):
        stage.answers(f"house/Wärmepumpe im Keller/{topic}/set", {"circuit": "isolated"})

    def run(command, width=80, *arguments):
        monkeypatch.setenv("COLUMNS", str(width))
        if command == "cluster":
            stage.keep({f"house/nodes/{NODE['node']}": NODE, f"house/nodes/{NODE['node']}/status": {"state": "online"}})
        answer = {"why": SILENT, "watch": [{"data": None}]}.get(command, DOCUMENT)
        stage.answers("house/introspect", answer)
        if command == "doctor":  # which asks nobody here, and says how long it took
            monkeypatch.setattr("time.monotonic", lambda: 0.0)
        found = stage.run(command, *(arguments or ARGUMENTS[command]))
        assert found.err == ""
        return found.out

    return run


def test_each_command_that_prints_for_a_person_is_looked_at():
    assert set(ARGUMENTS) | PROGRAMS | LOGS == set(commands())


@pytest.mark.parametrize("command", ARGUMENTS)
@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(printed, command, width):
    lines = printed(command, width).splitlines()

    assert lines
    assert [line for line in lines if cells(line) > width] == []


@pytest.mark.parametrize("command", ["doctor", "inspect", "trace", "why", "gaps", "watch"])
def test_it_looks_so_on_80_columns(printed, command):
    found, file = printed(command), EXPECTED / f"{command}.txt"
    if not file.exists():
        file.write_text(found, "utf-8")
        pytest.fail(f"{file} is new: look at it")

    assert found == file.read_text("utf-8")


def test_the_device_that_is_asked_about_is_explained_within_80_columns(printed):
    lines = printed("why", 80, "Wärmepumpe im Keller", "--prefix", "house").splitlines()

    assert len(lines) > 5  # a command stays whole, so that it can be pasted
    assert [line for line in lines if cells(line) > 80 and not line.startswith("  leadsman ")] == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("command", ["doctor", "inspect", "trace", "gaps", "watch"])
def test_colour_is_for_a_terminal_alone_and_takes_no_room(printed, command, monkeypatch):
    plain, terminal = printed(command), Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", terminal)

    main([command, *ARGUMENTS[command]])

    coloured = terminal.getvalue()
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert [line.rstrip() for line in without_colour(coloured).splitlines()] == plain.splitlines()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.truncate(0)
    terminal.seek(0)
    main([command, *ARGUMENTS[command]])
    assert "\x1b" not in terminal.getvalue()


def without_colour(text):
    return re.sub("\x1b\\[[0-9;]*m", "", text)
