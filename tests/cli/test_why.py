"""What `leadsman why` asks, and what it prints."""

import json
from pathlib import Path

import pytest

from leadsman.cli import remote, why
from leadsman.cli.main import main
from leadsman.cli.remote import Looked
from leadsman.errors import BrokerError, ConnectionRefused, SubscriptionRefused
from leadsman.introspection.requests import SECTIONS
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import Topics

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
    "next_due_at": None,
}
READS = {"kind": "telemetry", "handler": "read", "needs": [], "enabled": True}


def document(**devices):
    sections = {name: {"registrations": [READS], "runtime": runtime} for name, runtime in devices.items()}
    return {"app": {"prefix": "house"}, "devices": sections, "jobs": {}}


@pytest.fixture
def ask(monkeypatch, capsys):
    def asked(*arguments, finds):
        def look(broker, topic, request, timeout, filters, status):
            asked.request, asked.filters = request, (status, *filters)
            if isinstance(finds, BrokerError):
                raise finds
            return finds

        monkeypatch.setattr(why, "look", look)
        monkeypatch.setattr(why, "processes", lambda brokers, prefix, devices: [Topics(prefix)])
        code = main(["why", *arguments, "--prefix", "house", "--mqtt", "mqtt://broker.lan"])
        return code, capsys.readouterr().out

    return asked


OF_THE_APP = ("house/state", "house/availability", "house/lease")
"""Which device is the root, and whether nodes share the app, is known with the answer."""


def test_one_device_is_explained_and_the_exit_code_says_that_it_is_broken(ask):
    code, printed = ask("boiler", finds=Looked(document(boiler=HELD), None, False, {}))

    assert code == 3
    assert ask.request == {"sections": [*SECTIONS, "fields"], "devices": ["boiler"]}
    assert ask.filters == ("house/status", "house/boiler/state", "house/boiler/availability", *OF_THE_APP)
    first, *_, last = printed.splitlines()
    assert first == 'boiler: it failed, and waits for a person, as on_failure="hold" says, since 2026-11-22 08:50:00'
    assert last == "To do: mend it, then: leadsman release --mqtt mqtt://broker.lan --prefix house --device boiler"


@pytest.mark.parametrize(
    ("arguments", "options", "left_out"),
    [
        ((None, None, (), None), "", False),
        (("house:app", Path("a b.toml"), ("x.y=1",), None), " house:app --config 'a b.toml' --set x.y=1", False),
        ((object(), None, (), "mqtt://a,mqtts://b?ca=/c.pem"), " --mqtt 'mqtt://a,mqtts://b?ca=/c.pem'", False),
        ((None, None, (), "mqtt://me:s3cret@a, mqtt://me:s3/c@ret@b:1"), " --mqtt mqtt://a,mqtt://b:1", True),
        ((None, None, ("mqtt.password=s3cret", "mqtt.url=mqtt://me:s3cret@a"), None), "", True),
    ],
)
def test_what_was_given_is_given_again_without_credentials(arguments, options, left_out):
    assert why.given(*arguments) == (options, left_out)


def test_advice_says_that_credentials_are_left_out_of_the_command(ask):
    found = Looked(document(boiler=HELD), None, False, {})
    _, printed = ask("boiler", "--set", "mqtt.password=s3cret", finds=found)

    assert "s3cret" not in printed
    assert printed.splitlines()[-1].endswith("--device boiler" + why.LEFT_OUT)


def test_a_device_that_works_is_no_failure(ask):
    code, printed = ask("attic", finds=Looked(document(attic=WORKS), None, False, {}))

    assert (code, printed.splitlines()[0]) == (0, "attic: all is well: its readings arrive")


def test_the_verdict_is_json_for_a_program(ask):
    _, printed = ask("boiler", "--json", finds=Looked(document(boiler=HELD), None, False, {}))

    assert json.loads(printed)["link"] == "hold"


def test_what_the_broker_retains_is_evidence(ask):
    seen = {
        "house/attic/state": Received("house/attic/state", b'{"t":21}', True, taken_at="2026-11-22T08:50:00.000Z"),
        "house/attic/availability": Received("house/attic/availability", b"offline", True),
        "house/status": Received("house/status", b"no json", True),
    }

    code, printed = ask("attic", finds=Looked(document(attic=WORKS), None, False, seen))

    assert code == 3
    assert "the broker retains offline at house/attic/availability" in printed


def test_of_the_root_device_what_is_retained_without_its_level_counts(ask):
    known = document(attic=WORKS)
    known["app"]["root"] = "attic"
    seen = {"house/availability": Received("house/availability", b"offline", True)}

    code, printed = ask("attic", finds=Looked(known, None, False, seen))

    assert code == 3
    assert "the broker retains offline at house/availability" in printed


def test_without_a_device_the_silent_ones_are_listed(ask):
    code, printed = ask(finds=Looked(document(boiler=HELD, pump=HELD, attic=WORKS), None, False, {}))

    assert code == 3
    assert ask.filters == ("house/status", "house/+/state", "house/+/availability", *OF_THE_APP)
    assert [line.split()[0] for line in printed.splitlines()[2:4]] == ["boiler", "pump"]
    end = "2 devices silent that should not be; leadsman why DEVICE has the evidence, and what to do."
    assert printed.splitlines()[-1] == end


def test_one_silent_device_is_explained_at_once_and_none_is_said(ask):
    assert "To do:" in ask(finds=Looked(document(boiler=HELD, attic=WORKS), None, False, {}))[1]
    assert ask(finds=Looked(document(attic=WORKS), None, False, {})) == (0, "No device is silent.\n")
    assert json.loads(ask("--json", finds=Looked(document(attic=WORKS), None, False, {}))[1]) == []


def ledger(*gaps, at="2026-11-22T17:00:00.000Z"):
    return {"at": at, "gaps": [dict(zip(("since", "until", "seconds", "cause"), gap, strict=True)) for gap in gaps]}


GAP = ("2026-11-22T16:35:13.000Z", "2026-11-22T16:35:25.000Z", 12.0, "failed: DeviceUnavailable: gone\x1b[2J")


def test_a_person_who_asks_about_all_devices_reads_which_silences_are_over(ask):
    ledgers = {
        "attic": ledger(("2026-11-22T15:00:00.000Z", "2026-11-22T15:59:00.000Z", 3540.0, "long ago")),
        "meter": ledger(("2026-11-22T16:01:00.000Z", "2026-11-22T16:01:01.000Z", 1.0, "before"), GAP),
        "boiler": ledger(GAP, ("2026-11-22T16:50:00.000Z", None, 600.0, "still")),
        "new": ledger(),
    }
    looked = Looked(document(attic=WORKS) | {"ledger": ledgers}, None, False, {})

    code, printed = ask(finds=looked)

    assert code == 0
    assert {"devices", "ledger"} <= set(ask.request["sections"])
    first, _, over, end = printed.splitlines()
    assert first == "No device is silent."
    assert over.startswith("meter was silent 16:35:13 to 16:35:25 (12s): failed: DeviceUnavailable: gone")
    assert "\x1b" not in over
    assert end.startswith("leadsman gaps has more. Times are local: UTC")
    assert ask("--json", finds=looked) == (0, "[]\n")


def test_of_many_silences_that_are_over_the_latest_are_named(ask):
    ledgers = {f"d{minute}": ledger((GAP[0], f"2026-11-22T16:{minute}:00.000Z", 1.0, "x")) for minute in range(36, 51)}

    lines = ask(finds=Looked(document(attic=WORKS) | {"ledger": ledgers}, None, False, {}))[1].splitlines()

    assert [line.split()[0] for line in lines[2:]] == [*(f"d{each}" for each in range(50, 40, -1)), "…", "leadsman"]
    assert lines[-2] == "… and 5 further devices"


@pytest.mark.parametrize("odd", [None, {"x": {}}, {"x": ledger((1, 2, 3, 4))}, {"x": ledger(GAP, at="soon")}])
def test_a_ledger_of_another_version_is_passed_over(ask, odd):
    looked = Looked(document(attic=WORKS) | {"ledger": odd}, None, False, {})
    assert ask(finds=looked) == (0, "No device is silent.\n")


def test_a_device_that_the_app_does_not_know_is_a_verdict(ask):
    code, printed = ask("boilr", finds=Looked(None, "there is no device 'boilr'; did you mean 'boiler'?", True, {}))

    assert code == 3
    assert "did you mean 'boiler'?" in printed


@pytest.mark.parametrize("device", [("boiler",), ()])
def test_an_app_that_is_busy_does_not_lack_the_device(ask, device, capsys):
    code, printed = ask(*device, finds=Looked(None, "4 answers are under way; ask again in a few seconds", True, {}))

    assert (code, printed) == (1, "")


@pytest.mark.parametrize("device", ["boiler", None])
def test_a_document_of_another_version_is_a_verdict_that_names_what_is_missing(ask, device):
    runtime = {name: value for name, value in HELD.items() if name != "held"}
    found = document(boiler=runtime)
    del found["jobs"]

    code, printed = ask(*([device] if device else []), finds=Looked(found, None, False, {}))

    assert code == 3
    assert "its app answers in a form that this version of leadsman does not know" in printed
    assert "the field 'held' is missing" in printed


def test_nothing_that_an_app_answers_can_drive_the_terminal(ask):
    evil = document(**{"x\x1b[2J": HELD | {"circuit": "open\x1b[2J"}, "y\x9b": HELD})
    evil["app"]["prefix"] = "house\x1b[2J"

    for arguments in ((), ("boiler",)):
        _, printed = ask(*arguments, finds=Looked(evil, None, False, {}))
        assert "\x1b" not in printed
        assert "\x9b" not in printed


def test_an_app_that_does_not_answer_is_a_verdict(ask):
    status = Received("house/status", b'{"state":"offline","session":1795334400000}', True)

    code, printed = ask("boiler", finds=Looked(None, "no answer", False, {"house/status": status}))

    assert code == 3
    assert printed.startswith("boiler: its app ended without a goodbye, or lost its network")


def test_a_broker_that_cannot_be_reached_is_a_verdict(ask):
    code, printed = ask(finds=BrokerError("cannot connect to mqtt://broker.lan: Connection refused"))

    assert code == 3
    assert printed.startswith("the broker cannot be reached from here\n  cannot connect")


def registry(prefix, *devices, page=""):
    topic = f"{prefix}/registry{page}"
    return {topic: Received(topic, json.dumps({"devices": {each: {} for each in devices}}).encode(), True)}


def node(prefix, name, *devices):
    document = {"node": name, "kind": "cluster", "state": "active", "devices": devices}
    return {f"{prefix}/nodes/{name}": Received(f"{prefix}/nodes/{name}", json.dumps(document).encode(), True)}


@pytest.mark.parametrize(
    ("device", "kept", "prefix"),
    [
        (None, registry("house", "boiler"), "house"),
        (None, node("house", "attic", "boiler") | node("house", "hall", "pump"), "house"),
        ("pump", registry("garden", "boiler") | node("house", "attic") | node("house", "hall", "pump"), "house"),
        ("pump", node("house", "attic", "pump") | {"x/nodes/a": Received("x/nodes/a", b"no json", True)}, "house"),
        ("pump", registry("house", "boiler") | registry("garden", "pump"), "garden"),
        ("pump", registry("house", "boiler") | registry("house", "pump", page="/2"), "house"),
        ("pump", registry("garden", "pump") | {"x/registry": Received("x/registry", b"no json", True)}, "garden"),
    ],
)
def test_the_app_is_found_by_the_registries_at_the_broker(monkeypatch, device, kept, prefix):
    monkeypatch.setattr(remote, "retained", lambda broker, filters: kept)

    assert remote.prefix_of("mqtt://broker.lan", device) == prefix


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
def test_an_app_that_cannot_be_found_by_them_must_be_named(monkeypatch, capsys, device, kept, hint):
    monkeypatch.setattr(remote, "retained", lambda broker, filters: kept)

    assert main(["why", *([device] if device else []), "--mqtt", "mqtt://broker.lan"]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "summary", "advice"),
    [
        (0x86, "the broker refuses the connection from here", "To do: correct the user name and the password: "),
        (0x88, "the broker cannot be reached from here", "To do: start the broker, or "),
    ],
)
def test_a_broker_that_refuses_the_user_need_not_be_started(ask, code, summary, advice):
    exit_code, printed = ask("boiler", finds=ConnectionRefused(code, "mqtt://broker.lan refused the connection"))

    first, *_, last = printed.splitlines()
    assert exit_code == 3
    assert first == f"boiler: {summary}"
    assert last.startswith(advice)


def test_without_a_prefix_a_broker_that_cannot_be_reached_is_the_same_verdict(monkeypatch, capsys):
    def retained(broker, filters):
        raise BrokerError("cannot connect")

    monkeypatch.setattr(remote, "retained", retained)
    code = main(["why", "boiler", "--mqtt", "mqtt://broker.lan"])

    assert code == 3
    assert capsys.readouterr().out.startswith("boiler: the broker cannot be reached from here\n  cannot connect\n")


@pytest.mark.parametrize("prefix", [(), ("--prefix", "house")])
def test_a_broker_that_refuses_a_subscription_can_be_reached(monkeypatch, capsys, prefix):
    def refused(*arguments):
        raise SubscriptionRefused("the broker refused the subscription: not authorized")

    monkeypatch.setattr(remote, "retained", refused)
    monkeypatch.setattr(why, "look", refused)
    code = main(["why", "boiler", *prefix, "--mqtt", "mqtt://broker.lan"])

    assert code == 1
    assert "refused the subscription" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("why", "boiler/x"),
        ("why", "boiler", "--prefix", "a//b"),
        ("hold", "--prefix", "house", "--device", "a/b"),
        ("inspect", "--prefix", "house", "--device", "+"),
        ("gaps", "--prefix", "#"),
        ("run", "house:app", "--prefix", "a//b"),
        ("doctor", "--prefix", ""),
    ],
)
def test_a_name_that_no_device_or_app_can_have_is_a_wrong_command_line(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*arguments])

    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("inspect",), ("gaps",), ("trace",), ("held",), ("hold", "--device", "boiler")])
def test_without_an_app_the_only_one_at_the_broker_is_asked(monkeypatch, arguments):
    asked = []

    def ask(broker, topic, *rest, **more):
        asked.append(topic)
        raise BrokerError("enough is known")

    monkeypatch.setattr(remote, "retained", lambda broker, filters: registry("house", "boiler"))
    monkeypatch.setattr(remote, "ask", ask)

    assert main([*arguments, "--mqtt", "mqtt://broker.lan"]) == 1
    assert asked == ["house/boiler/hold/set" if arguments[0] == "hold" else "house/introspect"]


FAILS = WORKS | HELD | {"held": False, "status": "error", "last_error": "DeviceUnavailable: No route to host"}


def test_the_cause_comes_first_and_lines_break_between_words_on_a_terminal(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, printed = ask("boiler", finds=Looked(document(boiler=FAILS), None, False, {}))

    assert code == 3
    first = printed.splitlines()[0]
    assert first.startswith("boiler: No route to host, 3 polls in a row.")
    assert max(map(len, printed.splitlines())) <= 80


def test_the_first_line_is_red_on_a_terminal_if_the_device_should_not_be_silent(ask, monkeypatch):
    monkeypatch.setattr("leadsman.cli.tables.wants_colour", lambda *_: True)

    _, broken = ask("boiler", finds=Looked(document(boiler=FAILS), None, False, {}))
    _, works = ask("boiler", finds=Looked(document(boiler=WORKS), None, False, {}))
    _, several = ask(finds=Looked(document(boiler=FAILS, pump=FAILS), None, False, {}))

    assert broken.startswith("\x1b[31mboiler: No route to host")
    assert "\x1b[1mTo do: " in broken
    assert works.startswith("\x1b[32mboiler: all is well")
    assert "\x1b[31mboiler" in several


def test_a_command_in_the_advice_is_a_line_of_its_own_on_a_terminal_and_never_broken(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, printed = ask("boiler", finds=Looked(document(boiler=HELD), None, False, {}))

    assert printed.splitlines()[-1] == "  leadsman release --mqtt mqtt://broker.lan --prefix house --device boiler"


def test_advice_with_names_that_have_spaces_can_be_pasted(ask):
    _, printed = ask("hot water", finds=Looked(document(**{"hot water": HELD}), None, False, {}))

    assert "--device 'hot water'" in printed


@pytest.mark.parametrize(
    ("words", "target", "device"),
    [
        (["house:app"], "house:app", None),
        (["house:app", "boiler"], "house:app", "boiler"),
        (["boiler"], None, "boiler"),
        (["aa:bb:cc"], None, "aa:bb:cc"),
        (["--prefix", "house", "a:b"], None, "a:b"),
        (["--app", "house:app", "a:b"], "house:app", "a:b"),
    ],
)
def test_an_app_is_named_as_elsewhere(monkeypatch, words, target, device):
    seen = []
    for name in ("known_brokers", "running_app"):
        found = None if name == "known_brokers" else (None, "house")
        monkeypatch.setattr(f"leadsman.cli.commands.{name}", lambda options, found=found: seen.append(options) or found)
    monkeypatch.setattr(why, "verdicts", lambda brokers, prefix, device, *more: seen.append(device) or why.Answers([]))

    assert main(["why", *words]) == 0
    assert (seen[0].target, seen[1]) == (target, device)


def test_a_word_too_many_is_named(capsys):
    assert main(["why", "house:app", "boiler", "pump"]) == 2
    assert "'pump' is one word too many" in capsys.readouterr().err
