"""What `leadsman why` asks, and what it prints."""

import contextlib
import json

import pytest

from leadsman import Received
from leadsman.errors import BrokerError, NotListening
from leadsman.tools.cli.main import main

HELD = {
    "held": True,
    "status": "held",
    "circuit": "closed",
    "last_error": "DeviceTimeout: no answer",
    "failing_since": "2026-11-22T08:50:00.000Z",
    "consecutive_failures": 3,
    "last_success_at": None,
}
WORKS = {
    "held": False,
    "status": "ok",
    "stale": False,
    "circuit": "closed",
    "last_error": None,
    "poll_under_way": None,
    "consecutive_failures": 0,
    "counters": {"polls": 1, "failed_polls": 0},
    "last_success_at": "2026-11-22T08:50:00.000Z",
    "next_poll_at": None,
}
READS = {"kind": "telemetry", "handler": "read", "needs": [], "enabled": True}


def document(**devices):
    sections = {name: {"registrations": [READS], "runtime": runtime} for name, runtime in devices.items()}
    return {"app": {"prefix": "house"}, "devices": sections, "jobs": {}}


@pytest.fixture
def ask(stage):
    """Ask an app that answers this: a document, an error as text, or nothing for None."""

    def asked(*arguments, finds, kept=()):
        if finds is not None:
            stage.answers("house/introspect", finds)
        stage.keep(dict(kept))
        found = stage.run("why", *arguments, "--prefix", "house", "--mqtt", "mqtt://broker.lan", "--timeout", "20ms")
        return found.code, found.out

    return asked


OF_THE_APP = ("house/state", "house/availability", "house/lease")
"""Which device is the root, and whether nodes share the app, is known with the answer."""


def test_one_device_is_explained_and_the_exit_code_says_that_it_is_broken(ask, stage):
    code, printed = ask("boiler", finds=document(boiler=HELD))

    assert code == 3
    assert stage.requests == [
        (
            "house/introspect",
            {"sections": ["app", "mqtt", "adapters", "devices", "jobs", "fields"], "devices": ["boiler"]},
        )
    ]
    read = ("house/status", "house/boiler/state", "house/boiler/availability", *OF_THE_APP)
    assert set(read) <= set(stage.broker().filters)
    first, *_, last = printed.splitlines()
    assert first == 'boiler: it failed, and waits for a person, as on_failure="hold" says, since 2026-11-22 08:50:00'
    assert last == "To do: fix it, then: leadsman release boiler --mqtt mqtt://broker.lan --prefix house"


LEFT_OUT = "; passwords and other secrets are left out of the command: add them as you gave them here"


@pytest.mark.parametrize(
    ("arguments", "options", "left_out"),
    [
        ((), "--mqtt mqtt://broker.lan", False),
        (("--set", "x.y=1"), "--set x.y=1 --mqtt mqtt://broker.lan", False),
        (("--mqtt", "mqtt://broker.lan,mqtt://b.lan"), "--mqtt mqtt://broker.lan,mqtt://b.lan", False),
        (
            ("--mqtt", "mqtt://me:s3cret@broker.lan, mqtt://me:s3@cret@b.lan:1"),
            "--mqtt mqtt://broker.lan,mqtt://b.lan:1",
            True,
        ),
        (("--set", "mqtt.password=s3cret"), "--mqtt mqtt://broker.lan", True),
        (("--set", "mqtt.url=mqtt://me:s3cret@broker.lan"), "--mqtt mqtt://broker.lan", True),
    ],
)
def test_what_was_given_is_given_again_without_credentials(stage, arguments, options, left_out):
    stage.answers("house/introspect", document(boiler=HELD))
    found = stage.run("why", "boiler", "--prefix", "house", "--mqtt", "mqtt://broker.lan", *arguments)

    assert "s3" not in found.out
    end = f"leadsman release boiler {options} --prefix house{LEFT_OUT * left_out}"
    assert found.lines[-1] == f"To do: fix it, then: {end}"


def test_an_app_and_its_settings_file_are_given_again(stage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "house_config.py").write_text("from leadsman import App\napp = App('house')\n")
    (tmp_path / "a b.toml").write_text("[mqtt]\nhost = 'broker.lan'\n")
    stage.answers("house/introspect", document(boiler=HELD))

    found = stage.run("why", "house_config:app", "boiler", "--config", "a b.toml")

    assert "leadsman release boiler --app house_config:app --config 'a b.toml' --prefix house" in found.lines[-1]


def test_a_device_that_works_is_no_failure(ask):
    code, printed = ask("attic", finds=document(attic=WORKS))

    assert (code, printed.splitlines()[0]) == (0, "attic: all is well: its readings arrive")


def test_the_verdict_is_json_for_a_program(ask):
    _, printed = ask("boiler", "--json", finds=document(boiler=HELD))

    assert json.loads(printed)["link"] == "hold"


def test_what_the_broker_retains_is_evidence(ask):
    seen = {
        "house/attic/state": Received("house/attic/state", b'{"t":21}', True, taken_at="2026-11-22T08:50:00.000Z"),
        "house/attic/availability": b"offline",
        "house/status": b"no json",
    }

    code, printed = ask("attic", finds=document(attic=WORKS), kept=seen)

    assert code == 3
    assert "the broker retains offline at house/attic/availability" in printed


def test_of_the_root_device_what_is_retained_without_its_level_counts(ask):
    known = document(attic=WORKS)
    known["app"]["root"] = "attic"
    seen = {"house/availability": b"offline"}

    code, printed = ask("attic", finds=known, kept=seen)

    assert code == 3
    assert "the broker retains offline at house/availability" in printed


def test_without_a_device_the_silent_ones_are_listed(ask, stage):
    code, printed = ask(finds=document(boiler=HELD, pump=HELD, attic=WORKS))

    assert code == 3
    assert {"house/status", "house/+/state", "house/+/availability", *OF_THE_APP} <= set(stage.broker().filters)
    assert [line.split()[0] for line in printed.splitlines()[2:4]] == ["boiler", "pump"]
    end = "2 devices silent that should not be; leadsman why DEVICE has the evidence, and what to do."
    assert printed.splitlines()[-1] == end


def test_one_silent_device_is_explained_at_once_and_none_is_said(ask):
    assert "To do:" in ask(finds=document(boiler=HELD, attic=WORKS))[1]
    assert ask(finds=document(attic=WORKS)) == (0, "No device is silent.\n")
    assert json.loads(ask("--json", finds=document(attic=WORKS))[1]) == []


def ledger(*gaps, at="2026-11-22T17:00:00.000Z"):
    return {"at": at, "gaps": [dict(zip(("since", "until", "seconds", "cause"), gap, strict=True)) for gap in gaps]}


GAP = ("2026-11-22T16:35:13.000Z", "2026-11-22T16:35:25.000Z", 12.0, "timed_out\x1b[2J")


def test_a_person_who_asks_about_all_devices_reads_which_silences_are_over(ask, stage):
    ledgers = {
        "attic": ledger(("2026-11-22T15:00:00.000Z", "2026-11-22T15:59:00.000Z", 3540.0, "long ago")),
        "meter": ledger(("2026-11-22T16:01:00.000Z", "2026-11-22T16:01:01.000Z", 1.0, "before"), GAP),
        "boiler": ledger(GAP, ("2026-11-22T16:50:00.000Z", None, 600.0, "still")),
        "new": ledger(),
    }
    looked = document(attic=WORKS) | {"ledger": ledgers}

    code, printed = ask(finds=looked)

    assert code == 0
    assert {"devices", "ledger"} <= set(stage.requests[0][1]["sections"])
    first, _, over, end = printed.splitlines()
    assert first == "No device is silent."
    assert over.startswith("meter was silent 16:35:13 to 16:35:25 (12s): timed out")
    assert "\x1b" not in over
    assert end.startswith("leadsman gaps has more. Times are local: UTC")
    assert ask("--json", finds=looked) == (0, "[]\n")


def test_a_silence_does_not_hide_the_readings_that_were_lost(ask):
    lost = dict(zip(("since", "until", "seconds", "cause"), (GAP[0], GAP[1], 12.0, "dropped"), strict=True))
    late = ledger(("2026-11-22T16:35:20.000Z", "2026-11-22T16:35:21.000Z", 1.0, "late"))
    late["gaps"].insert(0, lost | {"slots": {"dropped": 3}})

    printed = ask(finds=document(attic=WORKS) | {"ledger": {"bad": late}})[1]

    assert printed.splitlines()[2:4] == [
        "bad lost 3 readings 16:35:13 to 16:35:25",
        "bad was silent 16:35:20 to 16:35:21 (1s): late",
    ]


def test_of_many_silences_that_are_over_the_latest_are_named(ask):
    ledgers = {f"d{minute}": ledger((GAP[0], f"2026-11-22T16:{minute}:00.000Z", 1.0, "x")) for minute in range(36, 51)}

    lines = ask(finds=document(attic=WORKS) | {"ledger": ledgers})[1].splitlines()

    assert [line.split()[0] for line in lines[2:]] == [*(f"d{each}" for each in range(50, 40, -1)), "…", "leadsman"]
    assert lines[-2] == "… and 5 further gaps"


@pytest.mark.parametrize("odd", [None, {"x": {}}, {"x": ledger((1, 2, 3, 4))}, {"x": ledger(GAP, at="soon")}])
def test_a_ledger_of_another_version_is_passed_over(ask, odd):
    looked = document(attic=WORKS) | {"ledger": odd}
    assert ask(finds=looked) == (0, "No device is silent.\n")


def test_a_device_that_the_app_does_not_know_is_a_verdict(ask):
    code, printed = ask("boilr", finds="there is no device 'boilr'; did you mean 'boiler'?")

    assert code == 3
    assert "did you mean 'boiler'?" in printed


@pytest.mark.parametrize("device", [("boiler",), ()])
def test_an_app_that_is_busy_does_not_lack_the_device(ask, device, capsys):
    code, printed = ask(*device, finds="4 answers are under way; ask again in a few seconds")

    assert (code, printed) == (1, "")


@pytest.mark.parametrize("device", ["boiler", None])
def test_a_document_of_another_version_is_a_verdict_that_names_what_is_missing(ask, device):
    runtime = {name: value for name, value in HELD.items() if name != "held"}
    found = document(boiler=runtime)
    del found["jobs"]

    code, printed = ask(*([device] if device else []), finds=found)

    assert code == 3
    assert "its app answers in a form that this version of leadsman does not know" in printed
    assert "the field 'held' is missing" in printed


def test_nothing_that_an_app_answers_can_drive_the_terminal(ask):
    evil = document(**{"x\x1b[2J": HELD | {"circuit": "open\x1b[2J"}, "y\x9b": HELD})
    evil["app"]["prefix"] = "house\x1b[2J"

    for arguments in ((), ("boiler",)):
        _, printed = ask(*arguments, finds=evil)
        assert "\x1b" not in printed
        assert "\x9b" not in printed


def test_an_app_that_does_not_answer_is_a_verdict(ask):
    status = {"state": "offline", "session": 1795334400000}

    code, printed = ask("boiler", finds=None, kept={"house/status": status})

    assert code == 3
    assert printed.startswith("boiler: its app ended without its last status, or lost its network")


def test_a_broker_that_cannot_be_reached_is_a_verdict(ask, stage):
    stage.broker().refuse_connect = BrokerError("cannot connect to mqtt://broker.lan: Connection refused")

    code, printed = ask(finds=None)

    assert code == 3
    assert printed.startswith("the broker cannot be reached from here: cannot connect to mqtt://broker.lan")


def registry(prefix, *devices, page=""):
    return {f"{prefix}/registry{page}": {"devices": {each: {} for each in devices}}}


def node(prefix, name, *devices):
    document = {"node": name, "kind": "cluster", "state": "active", "devices": devices, "members": ["attic", "hall"]}
    return {f"{prefix}/nodes/{name}": document, f"{prefix}/nodes/{name}/status": {"state": "online"}}


@pytest.mark.parametrize(
    ("device", "kept", "asked"),
    [
        (None, registry("house", "boiler"), ["house"]),
        (
            None,
            node("house", "attic", "boiler") | node("house", "hall", "pump"),
            ["house/nodes/attic", "house/nodes/hall"],
        ),
        (
            "pump",
            registry("garden", "boiler") | node("house", "attic") | node("house", "hall", "pump"),
            ["house/nodes/hall"],
        ),
        ("pump", node("house", "attic", "pump") | {"x/nodes/a": b"no json"}, ["house/nodes/attic"]),
        ("pump", registry("house", "boiler") | registry("garden", "pump"), ["garden"]),
        ("pump", registry("house", "boiler") | registry("house", "pump", page="/2"), ["house"]),
        ("pump", registry("garden", "pump") | {"x/registry": b"no json"}, ["garden"]),
    ],
)
def test_the_app_is_found_by_the_registries_at_the_broker(stage, device, kept, asked):
    stage.keep(kept)

    stage.run("why", *([device] if device else []), "--mqtt", "mqtt://broker.lan", "--timeout", "10ms")

    assert [topic for topic, _ in stage.requests] == [f"{each}/introspect" for each in asked]


@pytest.mark.parametrize(
    ("device", "kept", "hint"),
    [
        (None, {}, "no app has published a registry at mqtt://broker.lan"),
        ("boilr", registry("house", "boiler"), "did you mean 'boiler'?"),
        (None, registry("a") | registry("b"), "write --prefix a or --prefix b"),
        (None, registry("a") | node("b", "attic", "boiler"), "write --prefix a or --prefix b"),
        ("boiler", registry("a", "boiler") | registry("b", "boiler"), "2 apps match"),
    ],
)
def test_an_app_that_cannot_be_found_by_them_must_be_named(stage, device, kept, hint):
    stage.keep(kept)

    found = stage.run("why", *([device] if device else []), "--mqtt", "mqtt://broker.lan")

    assert found.code == 2
    assert hint in found.err


@pytest.mark.parametrize(
    ("code", "summary", "advice"),
    [
        (0x86, "the broker refused the user name or the password (0x86)", "To do: correct the user name and the "),
        (0x87, "the broker refused the user name or the password (0x87)", "To do: correct the user name and the "),
        (0x88, "the broker cannot be reached from here: ", "To do: start the broker, or "),
    ],
)
def test_a_broker_that_refuses_the_user_need_not_be_started(ask, stage, code, summary, advice):
    stage.broker().refuse_connect = code

    exit_code, printed = ask("boiler", finds=None)

    first, *_, last = printed.splitlines()
    assert exit_code == 3
    assert first.startswith(f"boiler: {summary}")
    assert last.startswith(advice)


def test_without_a_prefix_a_broker_that_cannot_be_reached_is_the_same_verdict(stage):
    stage.broker().refuse_connect = BrokerError("cannot connect")

    found = stage.run("why", "boiler", "--mqtt", "mqtt://broker.lan")

    assert found.code == 3
    assert found.out.startswith("boiler: the broker cannot be reached from here: cannot connect\n")


def test_where_nothing_listens_the_first_line_has_the_address(stage):
    stage.broker().refuse_connect = NotListening("cannot connect: refused", "broker.lan:1883")

    found = stage.run("why", "boiler", "--mqtt", "mqtt://broker.lan")

    assert found.code == 3
    assert found.out.startswith("boiler: nothing listens at broker.lan:1883\n  cannot connect: refused\n")


def test_a_broker_that_refuses_a_subscription_can_be_reached(stage):
    stage.broker().refuse_subscriptions = {"+/registry"}

    found = stage.run("why", "boiler", "--mqtt", "mqtt://broker.lan")

    assert found.code == 1
    assert "refused the subscription" in found.err


def test_a_broker_that_refuses_the_subscription_to_the_answer_can_be_reached(stage):
    stage.broker().refuse_subscriptions = {"house/introspect/response"}

    found = stage.run("why", "boiler", "--prefix", "house", "--mqtt", "mqtt://broker.lan")

    assert found.code == 1
    assert "refused the subscription" in found.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("why", "boiler/x", "--prefix", "house"),
        ("why", "boiler", "--prefix", "a//b"),
        ("hold", "--prefix", "house", "a/b"),
        ("inspect", "--prefix", "house", "+"),
        ("gaps", "--prefix", "#"),
        ("run", "house:app", "--prefix", "a//b"),
        ("doctor", "--prefix", ""),
    ],
)
def test_a_name_that_no_device_or_app_can_have_is_a_wrong_command_line(arguments, capsys):
    with contextlib.suppress(SystemExit):
        assert main([*arguments]) == 2

    err = capsys.readouterr().err
    assert "leadsman" in err
    assert "Traceback (most" not in err


@pytest.mark.parametrize("arguments", [("inspect",), ("gaps",), ("trace",), ("held",), ("hold", "boiler")])
def test_without_an_app_the_only_one_at_the_broker_is_asked(stage, arguments):
    stage.keep(registry("house", "boiler"))
    asked = "house/boiler/hold/set" if arguments[0] == "hold" else "house/introspect"
    stage.answers(asked, "enough is known")

    found = stage.run(*arguments, "--mqtt", "mqtt://broker.lan")

    assert (found.code, found.err) == (1, "leadsman: enough is known\n")
    assert [topic for topic, _ in stage.requests] == [asked]


FAILS = WORKS | HELD | {"held": False, "status": "error", "last_error": "DeviceUnavailable: No route to host"}


def test_the_cause_comes_first_and_lines_break_between_words_on_a_terminal(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, printed = ask("boiler", finds=document(boiler=FAILS))

    assert code == 3
    first = printed.splitlines()[0]
    assert first.startswith("boiler: No route to host, 3 polls in a row.")
    assert max(map(len, printed.splitlines())) <= 80


def test_the_first_line_is_red_on_a_terminal_if_the_device_should_not_be_silent(ask, monkeypatch):
    monkeypatch.setattr("leadsman.tools.cli.tables.wants_colour", lambda *_: True)

    _, broken = ask("boiler", finds=document(boiler=FAILS))
    _, works = ask("boiler", finds=document(boiler=WORKS))
    _, several = ask(finds=document(boiler=FAILS, pump=FAILS))

    assert broken.startswith("\x1b[31mboiler: No route to host")
    assert "\x1b[1mTo do: " in broken
    assert works.startswith("\x1b[32mboiler: all is well")
    assert "\x1b[31mboiler" in several


def test_a_command_in_the_advice_is_a_line_of_its_own_on_a_terminal_and_never_broken(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, printed = ask("boiler", finds=document(boiler=HELD))

    assert printed.splitlines()[-1] == "  leadsman release boiler --mqtt mqtt://broker.lan --prefix house"


def test_advice_with_names_that_have_spaces_can_be_pasted(ask):
    _, printed = ask("hot water", finds=document(**{"hot water": HELD}))

    assert "'hot water'" in printed


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("lodge_why:app", ("lodge/introspect", None)),
        ("lodge_why:app boiler", ("lodge/introspect", ["boiler"])),
        ("boiler", ("house/introspect", ["boiler"])),
        ("aa:bb:cc", ("house/introspect", ["aa:bb:cc"])),
        ("--prefix garden a:b", ("garden/introspect", ["a:b"])),
        ("--app lodge_why:app a:b", ("lodge/introspect", ["a:b"])),
    ],
)
def test_an_app_is_named_as_elsewhere(stage, tmp_path, monkeypatch, words, asked):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lodge_why.py").write_text("from leadsman import App\napp = App('lodge')\n")
    stage.keep(registry("house", "boiler", "aa:bb:cc"))

    stage.run("why", *words.split(), "--mqtt", "mqtt://broker.lan", "--timeout", "10ms")

    ((topic, request),) = stage.requests
    assert (topic, request.get("devices")) == asked


def test_a_word_too_many_is_named(capsys):
    assert main(["why", "house:app", "boiler", "pump"]) == 2
    assert "'pump' is one word too many" in capsys.readouterr().err
