"""The code in the documentation is run as it stands there, and its links lead somewhere."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from leadsman import App
from leadsman.cli.commands import SOME_HELD
from leadsman.cli.main import EXIT_CODES
from leadsman.settings.sources import Where
from leadsman.testing import Harness

PAGES = sorted(Path("docs").rglob("*.md"))
GUIDES = [page for page in PAGES if "adr" not in page.parts and page.name != "reference.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.stem} {number}")
    for page in GUIDES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1)
]


def test_there_is_code_in_the_documentation():
    assert len(BLOCKS) >= 20


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_of_the_documentation_works(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "a_page"}

    exec(compile(block, "page", "exec", dont_inherit=True), names)

    for app in [each for each in names.values() if isinstance(each, App)]:
        app.load()
    for test in [thing for name, thing in names.items() if name.startswith("test_")]:
        test(*[tmp_path] * test.__code__.co_argcount)  # the one fixture that pages use


def test_the_settings_of_the_documentation_work(tmp_path):
    pages = "".join(page.read_text() for page in GUIDES)
    (block,) = re.findall(r"```toml\n(# leadsman.toml\n.*?)```", pages, re.DOTALL)
    (tmp_path / "leadsman.toml").write_text(block)
    app = App("house")
    app.add_telemetry("a", lambda: None, interval=1, policy="radio")
    app.add_telemetry("b", lambda: None, interval=1, policy="serial")

    app.load(Where({"LEADSMAN_ENV": "lab"}, tmp_path, secrets=tmp_path))


def of_page(name, kind):
    """The one block of this kind on a page."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", Path(f"docs/how-to/{name}.md").read_text(), re.DOTALL)
    return block


def test_a_reading_looks_as_the_page_shows_it():
    names = {}
    exec(of_page("readings", "python"), names)
    (topic, payload) = re.search(
        r"^    (\S+) (\{.*)$", Path("docs/how-to/readings.md").read_text(), re.MULTILINE
    ).groups()

    with Harness(names["app"]) as harness:
        harness.run("1s")

        assert [message.payload.decode() for message in harness.broker.messages(topic)] == [payload]


@pytest.fixture
def house(monkeypatch):
    """The app that `leadsman init` writes, which the page about Home Assistant is for, with the topics that it publishes."""
    code = Path("src/leadsman/cli/templates/module.py.txt").read_text().replace("$name", "house")
    names = {"__name__": "house"}
    exec(compile(code, "house", "exec", dont_inherit=True), names)
    with Harness(names["app"], settings={"rooms": {"kitchen": {}}}) as harness:
        harness.run("1s")
        yield harness


def entities(kind):
    return [
        pytest.param(entity, id=entity["name"])
        for entity in yaml.safe_load(of_page("home-assistant", "yaml"))["mqtt"][kind]
    ]


@pytest.mark.parametrize("entity", [*entities("sensor"), *entities("number"), *entities("binary_sensor")])
def test_home_assistant_reads_what_the_app_publishes(house, entity):
    if "command_topic" in entity:
        house.broker.send(entity["command_topic"], json.loads(entity["command_template"].replace("{{ value }}", "21")))
        house.run("1s")
    told = json.loads(house.broker.retained[entity["state_topic"]].payload)

    for field in re.findall(r"value_json\.(\w+)", entity["value_template"]):
        assert field in told


def test_home_assistant_sees_whether_a_device_and_the_app_are_there(house):
    (sensor,) = [parameter.values[0] for parameter in entities("sensor")]
    device, app = sensor["availability"]

    assert house.broker.retained[device["topic"]].payload == b"online"
    assert app["value_template"] == "{{ value_json.state }}"
    assert json.loads(house.broker.retained[app["topic"]].payload)["state"] == "online"


def test_home_assistant_is_given_the_words_of_the_sensor(house):
    (sensor,) = [parameter.values[0] for parameter in entities("sensor")]
    code = Path("src/leadsman/cli/templates/module.py.txt").read_text()

    assert f'Sensor("{sensor["unit_of_measurement"]}", device_class="{sensor["device_class"]}"' in code
    assert f"precision={sensor['suggested_display_precision']}" in code


@pytest.mark.parametrize("page", [Path("README.md"), Path("CONTRIBUTING.md"), *PAGES], ids=str)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_every_exit_code_of_an_app_is_in_the_table_of_the_deployment():
    rows = re.findall(r"^\| (\d+) \|", Path("docs/how-to/deployment.md").read_text(), re.MULTILINE)

    assert [int(code) for code in rows] == [code for code in EXIT_CODES if code != SOME_HELD]


def script(name):
    spec = importlib.util.spec_from_file_location(name, f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_code_says():
    assert Path("docs/reference.md").read_text() == script("reference").reference(), "run: python scripts/reference.py"


def test_every_import_of_the_reference_works():
    lines = re.findall(r"^from leadsman\S* import \w+$", Path("docs/reference.md").read_text(), re.MULTILINE)

    assert len(lines) > 70
    for line in lines:
        exec(line, {})


@pytest.mark.parametrize("name", ["DeviceTimeout", "PollRefused", "bthome import SERVICE", "rssi: int", "command_line"])
def test_the_reference_has(name):
    assert name in Path("docs/reference.md").read_text()


def test_each_entry_of_the_reference_is_in_its_list_of_contents():
    contents, *entries = Path("docs/reference.md").read_text().split("\n### ")

    for entry in entries:
        assert f"[{entry.splitlines()[0]}](#" in contents


def test_the_pictures_are_what_the_policies_say():
    for name, text in script("pictures").pictures().items():
        assert (Path("docs/pictures") / name).read_text() == text, "run: python scripts/pictures.py"


def test_the_diagrams_are_what_the_code_does():
    for name, text in script("diagrams").diagrams().items():
        assert (Path("docs/pictures") / name).read_text() == text, "run: python scripts/diagrams.py"


def test_the_circuit_is_drawn_with_all_its_moves():
    moves = set(script("diagrams").moves())

    assert ("closed", "cycle failed", "open") in moves
    assert ("half_open", "probe succeeded", "closed") in moves
    assert {after for before, what, after in moves if what == "a person isolates it"} == {"isolated"}
