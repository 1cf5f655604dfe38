"""``leadsman schema --check``: a change that may break consumers is told, and ends with 1."""

import sys

import pytest

from leadsman.tools.cli.main import main

APP = """
from typing import Annotated
from pydantic import BaseModel
from leadsman import App, Sensor


class Air(BaseModel):
    celsius: Annotated[float, Sensor("°C")]
    fault: str | None = None


app = App("house")


@app.telemetry("air", interval="1m")
async def air() -> Air:
    return Air(celsius=21)


@app.command("air")
async def set_air(wanted: float) -> None: ...
"""


@pytest.fixture
def schema(tmp_path, monkeypatch, capsys):
    """Run the command with an app that has this code; its exit code, what it printed, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # what was compiled would be taken for what is written next

    def run(code, *arguments):
        (tmp_path / "changing.py").write_text(code)
        sys.modules.pop("changing", None)
        try:
            return main(["schema", "changing:app", *arguments]), *capsys.readouterr()
        finally:
            sys.modules.pop("changing", None)

    (tmp_path / "schema.json").write_text(run(APP)[1])
    return run


def test_an_app_that_stays_as_it_is_passes(schema):
    assert schema(APP, "--check", "schema.json") == (0, "no change breaks consumers\n", "")


def test_what_is_new_passes_with_words(schema):
    more = APP.replace("fault: str", "humid: bool = False\n    fault: str")

    code, printed, _ = schema(more, "--check", "schema.json")

    assert (code, printed) == (0, "fine    house/air/state: humid is new\nno change breaks consumers\n")


def test_each_change_that_breaks_is_a_sentence(schema):
    other = APP.replace('Sensor("°C")', 'Sensor("K")').replace("    fault: str | None = None\n", "")
    other = other.replace("wanted: float", "wanted: int")

    code, printed, _ = schema(other, "--check", "schema.json")

    assert code == 1
    assert printed.splitlines() == [
        "breaks  house/air/set was number and is integer",
        "breaks  house/air/state: celsius was in °C and is in K",
        "breaks  house/air/state: fault is gone",
        "3 changes may break consumers; if that is meant, write schema.json anew",
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "schema.json cannot be read: No such file or directory; name another file"),
        ("{", "schema.json has no schemas; make it with: leadsman schema house:app > schema.json"),
        ('{"topics": [1]}', "has no schemas; make it with"),
        ("[" * 100_000, "has no schemas; make it with"),
        (
            '{"topics": {"house/air/set": {"anyOf": 5}}}',
            "schema.json: house/air/set has no valid schema; make it with: leadsman schema house:app > schema.json",
        ),
    ],
)
def test_a_file_that_is_no_document_of_schemas_is_named_with_what_to_do(schema, tmp_path, content, told):
    if content is None:
        (tmp_path / "schema.json").unlink()
    else:
        (tmp_path / "schema.json").write_text(content)

    code, printed, said = schema(APP, "--check", "schema.json")

    assert (code, printed) == (78, "")
    assert told in said
