"""Mistakes that a newcomer makes: each has a sentence that says what to write."""

import pytest

from leadsman.tools.cli.main import main

HEAD = "from leadsman import App, Sensor\napp = App('house')\n"
VALUE = "from typing import Annotated\nfrom pydantic import BaseModel\nclass V(BaseModel):\n    v"
USE = "@app.telemetry('a', interval='1s')\nasync def a() -> V: ...\n"


@pytest.mark.parametrize(
    ("code", "code_of_exit", "sentence"),
    [
        (
            "from leadsman.adapters.bluetooth import BleRadio\n",
            1,
            "leadsman has no module 'leadsman.adapters.bluetooth'; did you mean leadsman.adapters.ble?",
        ),
        ("import leadsman.adapters.modbuss\n", 1, "did you mean 'modbus'?"),
        ("import leadsman.adapterz.ble\n", 1, "leadsman has no module 'leadsman.adapterz'; did you mean 'adapters'?"),
        ("import leadsmann\n", 1, "it needs 'leadsmann', which is not installed; install it"),
        (
            "@app.telemetry(interval='1s')\nasync def a() -> dict[str, int]: ...\n",
            78,
            "a telemetry needs the name of its device; write @app.telemetry('kitchen', …)",
        ),
        ("@app.command()\nasync def a(): ...\n", 78, "a command needs the name of its device"),
        ("Sensor(decimals=1)\n", 78, "unexpected keyword argument 'decimals'; write one of"),
        ("App(adaptors=())\n", 78, "App"),
        ("App(5)\n", 78, "the name of the app is 5; write text"),
        (
            "Sensor('°C', 'temperature')\n",
            78,
            "given; write the others with their names: device_class=…, state_class=…",
        ),
        ("from leadsman import Appp\n", 1, "leadsman has no 'Appp'; did you mean 'App'?"),
        ("from leadsman.adapters.ble import Radio\n", 1, "leadsman.adapters.ble has no 'Radio'; "),
        ("def app(): ...\n", 1, ":app has the type function and is not an App; write app = App("),
        ("if 1:\npass\n", 1, "line 4: expected an indented block after 'if' statement on line 3; correct the file"),
        ("\0\n", 1, "; correct the file"),
        (f"{VALUE}: float = Sensor('W')\n{USE}", 78, "write v: Annotated[…, Sensor(…)]"),
        (f"{VALUE}: Annotated[float, Sensor]\n{USE}", 78, "write Sensor(…) with brackets"),
        ("def own(a): ...\nown(b=1)\n", 1, "unexpected keyword argument 'b'"),
        (
            "@app.command('c')\nasync def c(x: int, y: int): ...\n",
            78,
            "only one parameter takes the payload: write a pydantic model with the fields, and one parameter of it",
        ),
    ],
)
def test_a_mistake_in_the_code_has_its_sentence(tmp_path, monkeypatch, capsys, code, code_of_exit, sentence):
    monkeypatch.chdir(tmp_path)
    name = f"mistake_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(HEAD + code)

    assert main(["check", f"{name}:app"]) == code_of_exit
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mqtt://localhost:99999", "the port of the broker's URL is 99999; write one such as 'mqtt://localhost:1883'"),
        ("mqtt://[::1]:65536", "the port of the broker's URL is 65536; write one such as"),
        ("mqtt://localhost:0", "the port of the broker's URL is 0; write one such as"),
        ("mqtts://localhost:-1", "the port of the broker's URL is -1; write one such as"),
        ("ws://localhost:mqtt", "the port of the broker's URL is no number; write one such as"),
        ("mqtt://user:secret", "the port of the broker's URL is no number; write one such as"),  # no host: not shown
        ("mqtt://user:sec/ret@localhost:1883", "percent-encode its password"),
        ("mqtt://user:secret@localhost:99999", "the port of the broker's URL is 99999"),
        ("mqtt://local host", "the host of the broker's URL has a space"),
        ("mqtt://[::1", "the broker's URL cannot be read"),
        ("mqtt://", "the broker's URL names no host"),
    ],
)
def test_a_wrong_url_of_the_broker_is_named_without_its_password(tmp_path, monkeypatch, capsys, url, sentence):
    monkeypatch.chdir(tmp_path)
    name = f"url_{abs(hash(url))}"
    (tmp_path / f"{name}.py").write_text(HEAD)
    monkeypatch.setenv("MQTT__URL", url)

    code, told = main(["check", f"{name}:app"]), capsys.readouterr().err

    assert code == 78
    assert sentence in " ".join(told.split())
    assert "(from environment MQTT__URL)" in told
    assert "secret" not in told


def test_text_without_quotes_in_toml_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unquoted_house.py").write_text(HEAD)
    (tmp_path / "leadsman.toml").write_text("[mqtt]\nurl = mqtt://localhost\n")

    assert main(["check", "unquoted_house:app"]) == 78
    assert "(at line 2, column 7); write text in quotes" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "instead"), [("help", "--help"), ("version", "--version"), ("start", "run")])
def test_a_command_of_another_program_is_told_by_our_word(capsys, word, instead):
    with pytest.raises(SystemExit):
        main([word])

    assert f"there is no command {word!r}; write leadsman {instead}" in capsys.readouterr().err
