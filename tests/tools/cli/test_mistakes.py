"""Mistakes that a newcomer makes: each has a sentence that says what to write."""

import pytest

from leadsman.tools.cli.main import main

HEAD = "from leadsman import App, Sensor\napp = App('house')\n"


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


def test_text_without_quotes_in_toml_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unquoted_house.py").write_text(HEAD)
    (tmp_path / "leadsman.toml").write_text("[mqtt]\nurl = mqtt://localhost\n")

    assert main(["check", "unquoted_house:app"]) == 78
    assert "(at line 2, column 7); write text in quotes" in capsys.readouterr().err
