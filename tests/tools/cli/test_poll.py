"""What `leadsman poll` asks, and what it prints."""

import pytest

from leadsman.tools.cli.main import main

READS = {"kind": "telemetry", "handler": "read", "needs": [], "enabled": True}
TERMS = {"celsius": {"unit": "°C", "precision": 1}, "air.co2": {"unit": "ppm"}}


@pytest.fixture
def asked(stage):
    """Polls a device of an app that gives this answer. Returns the exit code, what was asked, and what was printed."""

    def run(answer, *arguments, registered=(READS,), root=None):
        about = {"app": {"root": root}, "fields": {"boiler": TERMS}, "devices": {}}
        if registered:
            about["devices"]["boiler"] = {"registrations": list(registered)}
        stage.answers("house/introspect", about)
        for topic in ("house/boiler/get", "house/get"):
            stage.answers(topic, [{"data": None}] if answer is None else answer)
        printed = stage.run("poll", "boiler", "--prefix", "house", "--mqtt", "mqtt://broker.lan", *arguments)
        return printed.code, [topic for topic, _ in stage.requests], printed

    return run


def test_a_reading_is_printed_in_one_line_with_units_and_the_decimals_of_its_type(asked):
    code, topics, printed = asked({"celsius": 21.5483, "air": {"co2": 812, "fan": None}, "door": "open", "ok": True})

    assert code == 0
    assert topics == ["house/introspect", "house/boiler/get"]
    assert printed.out == "boiler: celsius 21.5 °C, air.co2 812 ppm, air.fan null, door open, ok true\n"


def test_a_program_gets_the_fields(asked):
    assert asked({"celsius": 21.5483}, "--json")[2].out == '{"celsius": 21.5483}\n'
    assert asked(None, "--json")[2].out == "null\n"


def test_a_poll_that_gives_nothing_to_publish_says_so(asked):
    code, _, printed = asked(None)

    assert (code, printed.out) == (0, "boiler: polled; its handler returned no reading, so nothing was published\n")


def test_the_topics_of_the_root_device_have_no_level_for_it(asked):
    assert asked({"celsius": 1.0}, root="boiler")[1][1] == "house/get"


@pytest.mark.parametrize("error", ["DeviceTimeout: no answer", "no answer at 'house/boiler/get': nobody listens there"])
def test_why_there_is_no_reading_is_said_and_exits_with_1(asked, error):
    code, _, printed = asked(error)

    assert (code, printed.out, printed.err) == (1, "", f"leadsman: {error}\n")


@pytest.mark.parametrize(
    ("registered", "told"),
    [
        ((READS | {"kind": "source"},), "is a source"),
        ((READS | {"kind": "event"},), "sends events when they happen"),
        ((READS | {"kind": "command"},), "accepts commands only"),
        ((), "is a side job"),
    ],
)
def test_what_nobody_can_poll_is_not_asked(asked, registered, told):
    code, topics, printed = asked({}, registered=registered)

    assert (code, topics) == (1, ["house/introspect"])
    assert told in printed.err


def test_words_of_a_device_cannot_drive_the_terminal(asked):
    assert "\x1b" not in asked({"a\x1b[2J": "\x1b]0;x\x07"})[2].out


@pytest.mark.parametrize("arguments", [(), ("house:app",), ("boiler", "attic", "hall")])
def test_one_device_must_be_named(arguments, capsys):
    assert main(["poll", *arguments]) == 2
    assert "device" in capsys.readouterr().err


def test_the_app_is_found_by_the_device(stage):
    found = stage.run("poll", "boiler", "--mqtt", "mqtt://broker.lan")

    assert found.code == 2
    assert "no app has published a registry" in found.err


def test_an_app_that_does_not_answer_is_waited_for_as_long_as_is_said(stage):
    found = stage.run("poll", "boiler", "--prefix", "house", "--mqtt", "mqtt://broker.lan", "--timeout", "20ms")

    assert (found.code, "no answer at 'house/introspect' on mqtt://broker.lan:1883 within 0.02 s" in found.err) == (
        1,
        True,
    )
