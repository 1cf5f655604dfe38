"""Twins in the place of adapters, for a dry run."""

import pytest
from pydantic import BaseModel

from leadsman import App, command_line
from leadsman.adapters.serial import SerialPort
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Harness, SerialTwin


class Settings(BaseModel):
    port: str = "/dev/nowhere"
    answer: str


def meter_app(**words):
    app = App(
        "meter",
        settings=Settings,
        adapters=lambda settings: (SerialPort(settings.port),),
        twins=lambda settings: (SerialTwin(lambda asked: settings.answer.encode() + b"\n"),),
        **words,
    )

    @app.telemetry("power", interval="10s")
    async def power(port: SerialPort) -> dict[str, float]:
        return {"watts": float(await port.request(b"?"))}

    return app


def test_twins_take_the_place_of_the_adapters():
    with Harness(meter_app(), settings={"answer": "412.5"}, twins=True) as harness:
        harness.run("30s")

        assert harness.states("power") == [{"watts": 412.5}] * 4


def test_twins_are_found_by_their_name_where_there_are_names():
    first, second = SerialTwin(), SerialTwin()
    app = App(
        "meters",
        adapters={"a": SerialPort("/dev/a"), "b": SerialPort("/dev/b")},
        twins=lambda _: {"b": second, "a": first},
    )
    app.rehearse()

    assert [app.adapter(SerialTwin, name) for name in ("a", "b")] == [first, second]


@pytest.mark.parametrize(
    ("twins", "message"),
    [
        (None, "the app has no twins"),
        (lambda _: (), "twins contains no twin for SerialPort"),
        (lambda _: {"x": SerialTwin()}, "twins contains no twin for SerialPort"),
    ],
)
def test_an_adapter_without_a_twin_is_a_named_error(twins, message):
    app = App("meter", adapters=(SerialPort("/dev/a"),), twins=twins)

    with pytest.raises(InvalidValue, match=message):
        app.rehearse()


def test_twins_are_made_by_a_function():
    with pytest.raises(InvalidType, match="twins is"):
        App("meter", twins=(SerialTwin(),))


def test_an_app_of_its_own_has_a_command_line(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    app = meter_app(mqtt="mqtt://nowhere.invalid")
    main = command_line(app, demo={"answer": "1"})

    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--demo" in capsys.readouterr().out
    assert main(["--demo", "--mqtt", "mqtt://broker.lan"]) == 78
    assert "a broker of its own" in capsys.readouterr().err
    assert main(["--check"]) == 78
    assert "answer" in capsys.readouterr().err
    assert command_line(meter_app(mqtt="mqtt://x"))(["--check", "--set", "answer=1"]) == 0
    assert "ok" in capsys.readouterr().out
