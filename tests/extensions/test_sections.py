"""The sections of the settings of what is shipped, and the list that names them."""

import re
import subprocess
import sys
from importlib import import_module

import pytest

from leadsman import App, Extension
from leadsman.core.question import Question
from leadsman.core.settings.sections import Section, Sections, keys_of, section_of
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError
from leadsman.extensions import SHIPPED

NAMES = [name for each in SHIPPED for name in each.sections]
JOINING = [each for each in SHIPPED if each.extension]


async def read_nothing() -> dict[str, float]:
    return {}


@pytest.fixture
def load(tmp_path):
    """Loads an app with a settings file, and returns it."""

    def load(text, **declared):
        app = App("house", **declared)
        app.add_telemetry("attic", read_nothing, interval="1m")
        (tmp_path / "leadsman.toml").write_text(text)
        app.load(Where({}, tmp_path, None, {}, tmp_path))
        return app

    return load


def extension_of(each):
    module, _, name = each.extension.partition(":")
    return getattr(import_module(f"{each.package}.{module}"), name)()


@pytest.mark.parametrize("each", JOINING, ids=lambda each: each.package)
def test_each_extension_is_where_the_list_says_and_joins_as_one_of_a_user(each):
    extension = extension_of(each)

    assert isinstance(extension, Extension)
    assert [phase for phase, _ in extension.joins(None)] == sorted(phase for phase, _ in extension.joins(None))
    assert all(import_module(f"{each.package}.{module}") for module in each.loads)


def test_each_extension_has_a_name():
    names = [extension_of(each).name for each in JOINING]

    assert len({*names}) == len(names)


@pytest.mark.parametrize("name", NAMES)
def test_each_section_of_the_list_is_where_the_list_says(name):
    section = section_of(name)

    assert isinstance(section, Section)
    assert keys_of(name) == section.values._fields


def test_each_answer_of_the_list_is_where_the_list_says():
    for each in SHIPPED:
        for name, place in each.answers.items():
            module, _, function = place.partition(":")
            assert Question(name).answer() is getattr(import_module(f"{each.package}.{module}"), function)


@pytest.mark.parametrize("name", NAMES)
def test_a_section_that_nobody_writes_is_not_imported(name):
    module = section_of(name).settle.__module__
    code = "import sys; from leadsman import App; from leadsman.core.settings.sources import Where\n"
    code += f"App('house').load(Where.nowhere({{}})); assert {module!r} not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("word", ["off", "Off", "no", "false"])
def test_off_is_off_in_each_setting_that_takes_it(load, word):
    app = load(f"[http]\nbind = '{word}'\n[discovery]\nconvention = '{word}'", discovery="homeassistant")

    assert app.setup.sections == Sections()


def test_discovery_may_be_off_in_code_too():
    assert App("house", discovery="off").setup.sections == Sections()


def test_what_the_code_declares_holds_where_the_file_sets_something_else(load):
    app = load("[discovery]\nprefix = 'ha'", discovery="homeassistant")

    (found,) = app.setup.sections.shipped.values()
    assert (found.convention, found.prefix) == ("homeassistant", "ha")


def test_a_section_that_this_leadsman_is_without_is_an_error_in_code_and_in_a_file(load, monkeypatch):
    monkeypatch.delitem(import_module("leadsman.core.settings.sections")._SHIPPED, "discovery")

    with pytest.raises(ConfigurationError, match="discovery: this leadsman is without it; leave it out"):
        App("house", discovery="homeassistant")


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        ("[discovery]\nids.attic = 'a'\nids.cellar = 3", "write the former names", 3),
        ("[discovery]\nconvention = 'homeassistant'\nids.attic = 'a'\nids.celler = 'b'", "ids names 'celler'", 4),
        ("[http]\nprt = 1", "write one of bind", 2),
    ],
)
def test_a_fault_is_named_with_its_line(load, text, told, line):
    with pytest.raises(ConfigurationError) as caught:
        load(text)

    assert told in str(caught.value)
    assert re.search(rf"\(from [^()]*leadsman.toml line {line}\)", str(caught.value))


def test_none_needs_pydantic():
    flags = {
        "http.bind": "8080",
        "discovery.convention": "homeassistant",
        "cluster.engine": "nats://localhost",
    }
    code = "import sys; from leadsman import App; from leadsman.core.settings.sources import Where\n"
    code += f"App('house').load(Where.nowhere({flags!r})); assert not any('pydantic' in each for each in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
