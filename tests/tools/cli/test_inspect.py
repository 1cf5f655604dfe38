"""What `leadsman inspect` shows to a person."""

import re
import sys
from typing import get_type_hints

import pytest

from leadsman.core.introspection.declared import documents_of
from leadsman.tools.cli.commands import command
from leadsman.tools.cli.main import main

RUNTIME = {
    "status": "circuit_open",
    "circuit": "open",
    "opens": 3,
    "consecutive_failures": 5,
    "last_success_at": None,
    "next_poll_at": "2026-04-08T10:02:00.000Z",
    "last_error": "OSError: away",
}


ON_REQUEST_ALONE = {
    "trace": [
        {"at": "2026-04-08T10:00:00.000Z", "handler": "meter", "attempt": 1, "cycle": 2, "error_type": "OSError"}
        | {"error_message": "away", "reason": "retry", "delay": 2.0}
    ],
    "ledger": {
        "meter": {"slots": 4, "availability": 75.0, "counts": {"published": 3, "failed": 1}, "hours": [], "gaps": []}
    },
    "recent": {
        "meter": {"at": 1775642400.0, "fields": {"watts": 412.5}, "series": {}}
        | {"outcomes": {"at": [1.0, 2.0, 3.0], "words": ["ok", "failed", "ok"]}}
    },
    "fields": {"meter": {"watts": {"unit": "W", "precision": 1, "name": "Leistung"}}},
}
"""Sections that a request must name, as an app answers them."""


def document(**runtime):
    return {
        "app": {
            "name": "house",
            "version": "1",
            "prefix": "house",
            "leadsman": "0.1.0",
            "python": "3.12",
            "started_at": "2026-04-08T10:00:00.000Z",
            "uptime": 42.0,
        },
        "devices": {"meter": {"registrations": [], "runtime": RUNTIME | runtime}},
    }


@pytest.fixture
def show(stage):
    """What `leadsman inspect` prints of a document of a running app."""

    def show(document):
        stage.answers("house/introspect", document)
        found = stage.run("inspect", "--prefix", "house", "--mqtt", "mqtt://broker.lan")
        assert (found.code, found.err) == (0, "")
        return found.out

    return show


def test_it_shows_how_often_the_circuit_opened_and_how_long_it_is_until_the_next_probe(show):
    printed = show(document())

    out = printed
    assert "open (opened 3 times)" in out
    assert "2026-04-08 10:02:00, in 1m18s" in out


def test_names_and_words_of_an_app_cannot_drive_the_terminal(show):
    found = document(status="ok\x1b[2J", circuit="\x1b]0;x\x07")
    found["app"]["name"] = "house\x1b[2J"
    found["devices"]["\x1b[2J"] = found["devices"].pop("meter")

    printed = show(found)

    assert "\x1b" not in printed


def test_a_poll_that_is_due_has_no_time_left(show):
    printed = show(document(next_poll_at="2026-04-08T10:00:42.000Z", opens=1))

    out = printed
    assert "2026-04-08 10:00:42  OSError" in out
    assert "opened" not in out


def test_each_section_of_a_running_app_is_in_the_help():
    [section] = [argument for argument in command("inspect").arguments if argument.flag == "--section"]
    names = set(get_type_hints(documents_of().introspection))

    assert set(ON_REQUEST_ALONE) < names
    assert all(name in section.help for name in names)


TIDE = """
from typing_extensions import TypedDict
from leadsman import App, Extension
from leadsman.extension import Documents

class Water(TypedDict):
    level: float

class Waters(TypedDict, total=False):
    water: dict[str, Water]

class Tide(Extension):
    name = "tide"
    documents = Documents(sections=Waters)

app = App("house", mqtt="mqtt://broker.lan", extensions=[Tide()])
app.add_telemetry("meter", lambda: {"t": 1}, interval="10s")
bare = App("house", mqtt="mqtt://broker.lan")
"""


@pytest.fixture
def tide(tmp_path, monkeypatch):
    """A working directory with an app whose extension declares a section."""
    (tmp_path / "tide_house.py").write_text(TIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("tide_house", None)


@pytest.mark.parametrize(
    ("app", "section", "code", "said"),
    [
        ("app", "water", 1, "only a running app has the section 'water'; write --live as well"),
        ("app", "watre", 2, "--section: invalid choice: 'watre'; did you mean 'water'?"),
        ("bare", "water", 2, "--section: invalid choice: 'water'; did you mean 'adapters'?"),
    ],
)
def test_the_registrations_of_an_app_have_the_sections_that_its_extensions_declare(
    stage, tide, app, section, code, said
):
    found = stage.run("inspect", f"tide_house:{app}", "--section", section)

    assert (found.code, said in found.err) == (code, True), found.err
    assert stage.requests == []


@pytest.mark.parametrize(
    ("of", "shown"),
    [
        (["--app", "tide_house:app", "--live"], "meter  2.5"),
        (["--prefix", "house", "--mqtt", "mqtt://broker.lan"], '{\n  "water": {\n    "meter": {'),
    ],
)
def test_a_section_of_an_extension_is_asked_for_from_the_app_that_runs_and_shown(stage, tide, of, shown):
    stage.answers("house/introspect", {"water": {"meter": {"level": 2.5}}})

    found = stage.run("inspect", *of, "--section", "water")

    assert [(topic, request["sections"]) for topic, request in stage.requests] == [("house/introspect", ["water"])]
    assert (found.code, found.err) == (0, "")
    assert shown in found.out


def test_the_app_that_runs_says_that_it_has_no_such_section(stage, tide):
    stage.answers("house/introspect", "there is no section 'watre'; did you mean 'water'?")

    found = stage.run("inspect", "--prefix", "house", "--mqtt", "mqtt://broker.lan", "--section", "watre")

    assert (found.code, "there is no section 'watre'; did you mean 'water'?" in found.err) == (1, True), found.err


@pytest.mark.parametrize(
    ("section", "shown"),
    [
        ("trace", "meter poll 3 call 1  retry in 2s  OSError: away"),
        ("ledger", "meter   75 %       4    3     failed 1"),
        ("recent", "meter   2026-04-08 10:00:00  watts 412.5  2 ok, 1 failed"),
        ("fields", "meter   watts  W     1          Leistung"),
    ],
)
def test_a_section_that_a_request_must_name_is_shown_to_a_person(show, section, shown):
    printed = show({section: ON_REQUEST_ALONE[section]})

    assert shown in printed


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """What `leadsman check` prints of an app."""

    def check(code, **environment):
        (tmp_path / "checked.py").write_text("from leadsman import App, Cron\n" + code)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "checked", raising=False)
        monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert main(["check", "checked:app"]) == 0
        return capsys.readouterr().out

    return check


BELL = """
from collections.abc import AsyncIterator
from typing import Literal
app = App("house")
@app.event("bell", offline_on=(OSError, LookupError), delivery=Delivery(history="7d"))
async def bell() -> AsyncIterator[Literal["ring"]]: yield "ring"
"""


def test_a_device_that_sends_events_is_shown_with_the_time_for_which_they_count(check):
    printed = check("from leadsman import Delivery\n" + BELL, DEVICES__BELL__EXPIRY="1m")

    assert re.search(r"bell +event +restarted +history 7d, for 1m", printed)
    assert re.search(r"bell +offline_on +OSError, LookupError +checked.py line \d+", printed)
    assert re.search(r"bell +expiry +'1m' +environment DEVICES__BELL__EXPIRY", printed)


METER = """
app = App("meter")
@app.telemetry("power", interval=1)
async def power() -> dict[str, float]: return {"watts": 1.0}
"""


@pytest.mark.parametrize(
    ("environment", "lines"),
    [
        ({}, [r"topic prefix  meter +the app\n", r"client id     meter +the prefix\n"]),
        (
            {"MQTT__TOPIC_PREFIX": "club", "MQTT__INSTANCE": "b"},
            [
                r"topic prefix  club +environment MQTT__TOPIC_PREFIX\n",
                r"client id     club-b +the prefix and environment MQTT__INSTANCE\n",
            ],
        ),
        ({"MQTT__CLIENT_ID": "mine"}, [r"client id     mine +environment MQTT__CLIENT_ID\n"]),
    ],
)
def test_check_shows_prefix_client_id_and_state_with_their_origins(tmp_path, check, environment, lines):
    shown = check(METER, **environment)

    assert [line for line in lines if re.search(line, shown) is None] == [], shown
    assert shown.count("client id") == 1
    assert re.search(rf"state +{re.escape(str(tmp_path))} +STATE_DIRECTORY\n", shown)


@pytest.mark.parametrize(
    ("protocol", "length", "said"), [("3.1.1", 24, True), ("5.0", 24, False), ("3.1.1", 23, False)]
)
def test_check_says_that_a_broker_of_the_old_version_may_refuse_a_long_client_id(check, protocol, length, said):
    url = f"mqtt://localhost?protocol={protocol}"

    assert ("MQTT 3.1.1 may refuse" in check(METER, MQTT__URL=url, MQTT__CLIENT_ID="x" * length)) is said


@pytest.mark.parametrize(
    ("health", "shown"),
    [
        ({"opened": False, "discarded": 0, "silent_for": 6.496}, "discarded: 0, received nothing for 6s"),
        ({"opened": True, "silent_for": None}, "received nothing yet"),
        ({"quota_left": None, "conditional": 2}, "conditional: 2"),
        ({"last_error": "a\x1b[2J"}, r"last error: a\x1b[2J"),
    ],
)
def test_the_health_of_an_adapter_is_shown_in_words_with_units(health, shown, show):
    adapter = {"adapter": "SerialPort", "open": True, "error": None, "reopened": 1, "health": health}

    printed = show({"adapters": [adapter]})

    assert [line.split(None, 3) for line in printed.splitlines() if "SerialPort" in line] == [
        ["SerialPort", "yes", "1", shown]
    ]


def test_a_device_that_is_named_is_shown_with_each_of_its_fields(stage):
    registered = {"kind": "telemetry", "handler": "read", "enabled": True, "interval": 90.0, "group": None}
    found = document(deferred_until="2026-04-08T10:05:00.000Z", counters={"polls": 7, "calls": 9, "retries": 2})
    found["devices"]["meter"]["registrations"] = [registered, {"kind": "command", "handler": "write", "queue": 16}]
    stage.answers("house/introspect", found)

    printed = stage.run("inspect", "--prefix", "house", "--mqtt", "mqtt://broker.lan", "meter").out

    assert printed.partition("\nmeter\n")[2].splitlines() == [
        "  kind      telemetry",
        "  handler   read",
        "  enabled   yes",
        "  interval  1m30s",
        "",
        "  kind     command",
        "  handler  write",
        "  queue    16",
        "",
        "  status                circuit_open",
        "  circuit               open",
        "  consecutive failures  5",
        "  opens                 3",
        "  last error            OSError: away",
        "  next poll at (UTC)    2026-04-08 10:02:00",
        "  deferred until (UTC)  2026-04-08 10:05:00",
        "  counters              polls: 7, calls: 9, retries: 2",
    ]


MQTT = {
    "broker": "mqtt://broker.lan:1883",
    "protocol": "5.0",
    "connects": 3,
    "away_since": "2026-04-08T10:00:00.000Z",
    "limited_by": None,
    "last_error": "refused\x1b[2J",
    "unknown": "what a later version says",
    "outbox": {"messages": 12, "bytes": 34567, "oldest": 3601.25, "dropped": 0, "dropped_by": {}},
    "brokers": [
        {"broker": "mqtt://broker.lan:1883", "last_error": None},
        {"broker": "mqtt://other.lan:1883", "last_error": "OSError: away"},
    ],
    "subscriptions": {"tele/+/SENSOR": {"received": 7, "failed": 0, "last_error": None}},
}


def test_what_a_document_declares_is_shown_a_line_each_in_its_unit_and_its_tables_behind_it(show):
    assert show({"mqtt": MQTT}).splitlines() == [
        "mqtt",
        "  broker            mqtt://broker.lan:1883",
        "  protocol          5.0",
        "  connects          3",
        r"  last error        refused\x1b[2J",
        "  away since (UTC)  2026-04-08 10:00:00",
        "  outbox            messages: 12, bytes: 34,567 B, oldest: 1h1s, dropped: 0",
        "",
        "broker                  last error",
        "----------------------  -------------",
        "mqtt://broker.lan:1883",
        "mqtt://other.lan:1883   OSError: away",
        "",
        "subscription   received  failed",
        "-------------  --------  ------",
        "tele/+/SENSOR  7         0",
    ]


def test_what_receive_maximum_costs_is_said_in_a_sentence(show):
    limited = {**MQTT, "limited_by": "receive_maximum", "window": 20}
    allowed = "the broker allows 20 messages in flight (Receive Maximum)"

    assert f"readings come faster than the broker accepts them, and arrive late: {allowed}" in show({"mqtt": limited})
    assert "arrive late" not in show({"mqtt": MQTT})


def test_a_blank_line_ends_the_table_of_nodes_before_the_fields_of_the_connection(show):
    nodes = [{"node": "pi-1", "state": "active", "devices": 3}]

    lines = show({"app": {"name": "house", "nodes": nodes}, "mqtt": {"broker": "mqtt://broker.lan"}}).splitlines()

    assert lines[lines.index("mqtt") - 1] == ""


@pytest.mark.parametrize("app", [None, "house", []])
def test_a_section_that_is_no_document_is_refused_in_a_sentence(stage, app):
    stage.answers("house/introspect", {"app": app})

    found = stage.run("inspect", "--prefix", "house", "--mqtt", "mqtt://broker.lan")

    assert (found.code, "Traceback (most" in found.err) == (1, False)
    assert "the app answers in a form that this version of leadsman does not know" in found.err


def test_a_field_of_another_version_is_shown_as_it_is(show):
    printed = show({"app": {"name": 7, "started_at": "noon", "uptime": "long", "nodes": 3, "state_files": ["x"]}})

    assert [line.split() for line in printed.splitlines()] == [
        ["app"],
        ["name", "7"],
        ["started", "at", "(UTC)", "noon"],
        ["uptime", "long"],
        ["state", "files", "x"],
    ]


def test_check_says_when_a_cron_schedule_is_due_next_and_what_is_subscribed_to(check):
    shown = check(
        "app = App('house')\n"
        "@app.telemetry('bins', schedule=Cron('30 6 * * *', zone='Europe/Berlin', at_start=True))\n"
        "def bins() -> None: ...\n"
        "@app.telemetry('meter', schedule='0 0 1 1 *')\n"
        "def meter() -> None: ...\n"
        "@app.subscribe('tele/+/SENSOR')\n"
        "def heard(payload: str) -> None: ...\n"
    )

    first, second, third = (line for line in shown.splitlines() if " is polled " in line or "messages at" in line)
    assert re.fullmatch(
        r"bins is polled at the start of the app, and then on \w+ \d{4}-\d\d-\d\d at 06:30 \(Europe/Berlin\)", first
    )
    assert re.fullmatch(r"meter is polled next on \w+ \d{4}-01-01 at 00:00 \(the zone of this machine\)", second)
    assert re.fullmatch(r"messages at tele/\+/SENSOR go to .*heard", third)


def test_an_app_without_a_version_shows_none(show):
    assert "version" not in show({"app": {"name": "house", "version": "0"}})
    assert "version  2.1" in show({"app": {"name": "house", "version": "2.1"}})
