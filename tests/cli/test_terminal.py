"""What the commands print on a terminal of 80 columns: no line is longer, and each command looks as its file in
`at_80_columns` says. A file that is missing is written, and its test fails once: look at it before it is committed."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadsman.cli import answering, clean, doctor, poll, remote, watch, why
from leadsman.cli.cells import cells
from leadsman.cli.main import COMMANDS, main
from leadsman.cli.why import Answers
from leadsman.doctor.findings import Finding
from leadsman.monitoring import watchdog
from leadsman.mqtt.broker import Brokers
from leadsman.mqtt.connection import Received
from leadsman.spool import backup
from leadsman.spool.backup import View
from leadsman.timing.clock import rfc3339

EXPECTED = Path(__file__).parent / "at_80_columns"
NOW = 1_795_338_000.0
PORT = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0"
UNAVAILABLE = f"DeviceUnavailable: {PORT} cannot be opened: the port does not exist; is the device plugged in?"
GARBLED = (
    "GarbledData: the meter answered '\\x00\\xff\\x12§§§' instead of 9 bytes that end with their checksum (CRC 16)"
)
WELL = ("Küche", "Gäste-WC unten", "Schlafzimmer der Großeltern", "attic", "cellar", "garage", "hall", "温度計 2階")
PROGRAMS = {"acl", "schema", "completion"}
"""Commands whose output is for a program or a file."""
LOGS = {"run", "demo"}
"""Commands that write a log, or draw a screen."""


def at(seconds):
    return rfc3339(NOW + seconds)


def runtime(status="ok", **more):
    return {
        "status": status,
        "held": status == "held",
        "circuit": "closed",
        "opens": 0,
        "consecutive_failures": 0,
        "counters": {"polls": 1440, "retried_polls": 3},
        "last_success_at": at(-20),
        "next_due_at": at(40),
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
        counters={"polls": 12_880, "retried_polls": 412},
        last_success_at=at(-86_400),
        next_due_at=at(300),
        failing_since=at(-86_000),
        last_error=UNAVAILABLE,
    ),
    "boiler": runtime(
        "held",
        consecutive_failures=4,
        last_success_at=None,
        next_due_at=None,
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
    | {"delay": delay, "outage_id": None, "error_type": error and error.partition(": ")[0]}
    | {"error_message": error and error.partition(": ")[2]}
    for number, (handler, cycle, attempt, reason, delay, error) in enumerate(ROWS)
]
GAPS = [
    {"since": at(-86_000), "until": None, "seconds": 86_000.0, "cause": f"failed: {UNAVAILABLE}"}
    | {"slots": {"failed": 57, "circuit_open": 1376}},
    {"since": at(-90_000), "until": at(-89_000), "seconds": 1000.0, "cause": f"failed: {GARBLED}"}
    | {"slots": {"failed": 16}},
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
    "words": {"Küche": ["It is polled every 60 s, and each call has 3 s; a poll that fails is tried again 3 times."]},
    "recent": {
        "Küche": {"at": NOW, "fields": {"temperature": 21.5, "Luftfeuchtigkeit": 48, "co2": 812, "Licht": "aus"}}
        | {"outcomes": {"words": ["ok"] * 118 + ["failed"] * 2}}
    },
    "fields": {"Küche": {"temperature": {"unit": "°C", "device_class": "temperature", "precision": 1}}},
}
VERDICTS = [
    {
        "device": name,
        "link": "circuit",
        "state": "broken",
        "summary": "its circuit is open: the device failed 57 polls in a row, and is only probed now and then",
        "since": at(-86_000),
        "cause": f"it fails with {UNAVAILABLE} for 23h53m; leadsman probes it every 5 min",
        "evidence": [f"the last error was {UNAVAILABLE}", "the last value was 21.5 °C, 48 %, 812 ppm and 1013.2 hPa"],
        "advice": f"plug the device in; then: leadsman circuit --prefix house --device '{name}' --action close",
    }
    for name in FAILING
]
ENDED = [f"{name} was silent 16:35:13 to 16:35:25 (12s): failed: {GARBLED}" for name in WELL[:3]]
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


def kept(topic, document):
    return {topic: Received(topic, json.dumps(document).encode(), True)}


REGISTRY = {
    "app": "house",
    "introspect": "house/introspect",
    "devices": {name: {"topics": {"state": f"house/{name}/state"}} for name in RUNTIMES},
}
STATUS = {"state": "online", "session": 7, "at": at(-3), "uptime_s": 90_061.0, "devices": RUNTIMES}
STATUS |= {"mqtt": {"protocol": "5.0", "connects": 12, "outbox_messages": 1203, "last_error": "keep alive timeout"}}


def board(*arguments, **options):
    """Print the board, from messages instead of those of a broker."""
    watcher = watch.Watcher(Brokers.of("mqtt://broker.lan"), ())
    watcher._away_since = None
    messages = kept("house/registry", REGISTRY) | kept("house/status", STATUS)
    messages |= {
        topic: each for name, value in VALUES.items() for topic, each in kept(f"house/{name}/state", value).items()
    }
    for message in messages.values():
        watcher._fleet.hear(message, NOW)
    watcher._print(as_json=False)


ARGUMENTS = {
    "check": ("house_80:app",),
    "doctor": ("--prefix", "house"),
    "inspect": ("--prefix", "house"),
    "trace": ("--prefix", "house"),
    "why": ("--prefix", "house"),
    "watch": ("--once",),
    "gaps": ("--prefix", "house"),
    "held": ("--prefix", "house"),
    "hold": ("--prefix", "house", "--device", "Wärmepumpe im Keller"),
    "release": ("--prefix", "house", "--device", "Wärmepumpe im Keller"),
    "circuit": ("--prefix", "house", "--device", "Wärmepumpe im Keller", "--action", "isolate"),
    "poll": ("Küche", "--prefix", "house"),
    "outbox": ("list", "--state-directory", "."),
    "cluster": ("status", "house"),
    "clean": ("--prefix", "house", "--all", "--dry-run"),
    "simulate": ("house_80:app", "--for", "30m"),
    "init": ("house",),
    "health": ("health.json",),
}
"""What is typed behind the name of each command that prints answers for a person."""


@pytest.fixture
def printed(monkeypatch, capsys, tmp_path):
    """Types a command in a terminal with so many columns, and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "house_80.py").write_text(APP.format(names=WELL), "utf-8")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/house")
    monkeypatch.setattr(watch, "time", SimpleNamespace(time=lambda: NOW))
    monkeypatch.setattr(watch, "watch", board)
    monkeypatch.setattr(why, "verdicts", lambda *arguments: Answers(VERDICTS, ENDED))
    monkeypatch.setattr(remote, "ask", lambda *arguments, **options: DOCUMENT)
    monkeypatch.setattr(poll, "ask", lambda brokers, topic, *_, **__: DOCUMENT if "introspect" in topic else READING)
    monkeypatch.setattr(answering, "retained", lambda *arguments: {})
    monkeypatch.setattr(remote, "retained", lambda *arguments: kept(f"house/nodes/{NODE['node']}", NODE))
    monkeypatch.setattr(clean, "retained", lambda *arguments: kept("house/registry", REGISTRY))
    monkeypatch.setattr(doctor, "_facts", lambda subject: None)
    monkeypatch.setattr(doctor, "findings", lambda facts: FOUND)
    monkeypatch.setattr(doctor.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(backup, "look", lambda path: View(12, 3456, NOW, {}, ()))
    monkeypatch.setattr(watchdog, "read_health", lambda path, now: (True, f"house runs; {UNAVAILABLE}"))

    def run(command, width=80, *arguments):
        monkeypatch.setenv("COLUMNS", str(width))
        main([command, *(arguments or ARGUMENTS[command])])
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def test_each_command_that_prints_for_a_person_is_looked_at():
    assert set(ARGUMENTS) | PROGRAMS | LOGS == {command.name for command in COMMANDS}


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


def test_the_device_that_is_asked_about_is_explained_within_80_columns(printed, monkeypatch):
    monkeypatch.setattr(why, "verdicts", lambda *arguments: Answers(VERDICTS[:1]))

    lines = printed("why", 80, "boiler", "--prefix", "house").splitlines()

    assert [line for line in lines if cells(line) > 80] == []


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
