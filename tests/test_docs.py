"""The code in the documentation is run as it stands there, and its links lead somewhere."""

import importlib.util
import json
import random
import re
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path
from types import FunctionType, ModuleType
from typing import get_args

import pytest
import yaml

from leadsman import App, Received
from leadsman.core.loop.clock import rfc3339
from leadsman.core.monitoring.document import StatusWord
from leadsman.core.settings.sources import Where
from leadsman.testing import Harness

PAGES = sorted(Path("docs").rglob("*.md"))
OTHERS = ("*.md", "apps/*/README.md", "benchmarks/*.md")
GUIDES = [page for page in PAGES if "adr" not in page.parts]
TOPICS = [page for page in sorted(Path("docs/adr").glob("*.md")) if page.name != "README.md"]
RECORDS = sorted(Path("docs/adr/log").glob("0*.md"))
REFERENCE = sorted(Path("docs/reference").glob("*.md"))
SHOWN = [name for page in REFERENCE for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]
PACKAGES = [
    "leadsman",
    "leadsman.testing",
    *(f"leadsman.adapters.{name}" for name in ("ble", "caldav", "http", "i2c", "modbus", "onewire", "serial")),
]
WINGS = (Path(), *map(Path, ("src/leadsman", "src/leadsman/core", "src/leadsman/extensions")))
"""Where a page leaves out the beginning of a path."""
MAX_CODE_COLUMNS = 87
"""Of code on the site at 1280 pixels; `tests/system/test_site.py` looks at the pages themselves."""
BLOCKS = [
    pytest.param(block, id=f"{page.stem} {number}")
    for page in GUIDES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1)
]


FILES = {
    name: text
    for page in GUIDES
    for text, name in re.findall(r"```toml\n(# (\S+\.toml)\n.*?)```", page.read_text(), re.DOTALL)
} | {
    f"{app}.session": text
    for page in GUIDES
    for text, app in re.findall(r'```text\n(\{"session": 1, "app": "(\w+)".*?)```', page.read_text(), re.DOTALL)
}
"""The files that pages show."""


def code_lines(text):
    """The lines of the code in a page: in fences, or behind four spaces."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or (line.startswith("    ") and not line.lstrip().startswith("* ")):
            yield line if fenced else line[4:]


def test_code_fits_the_page_of_a_laptop():
    pages = [page for page in GUIDES if page not in REFERENCE]
    wide = [
        (page.name, line) for page in pages for line in code_lines(page.read_text()) if len(line) > MAX_CODE_COLUMNS
    ]

    assert wide == []


def test_there_is_code_in_the_documentation():
    assert len(BLOCKS) >= 20


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_of_the_documentation_works(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in FILES if f'"{name}"' in block]:
        (tmp_path / name).write_text(FILES[name])
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


def test_the_devices_of_the_page_about_settings_are_changed_as_it_says(tmp_path):
    (tmp_path / "leadsman.toml").write_text(of_page("settings", "toml"))
    app = App("house")
    for name in ("boiler", "room-attic", "room-cellar"):
        app.add_telemetry(name, lambda: None, interval="1m")

    app.load(Where({"DEVICES__ROOM_CELLAR__ENABLED": "no"}, tmp_path, secrets=tmp_path))

    boiler, attic, cellar = app.telemetries.values()
    assert (boiler.interval, boiler.guards.breaker.shared, attic.stale_after) == (30, "bus", 3600)
    assert not attic.enabled
    assert not cellar.enabled


def of_page(name, kind):
    """The one block of this kind on a page."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", Path(f"docs/how-to/{name}.md").read_text(), re.DOTALL)
    return block


def test_an_event_looks_as_the_page_shows_it_and_a_test_of_the_page_can_fail():
    page = Path("docs/how-to/events.md").read_text()
    names = {"__name__": "a_page"}
    exec(compile(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], "page", "exec", dont_inherit=True), names)

    with Harness(names["app"]) as running:
        running.run(1)
        names["presses"].put("single")
        running.run(1)
        (message,) = running.broker.messages("house/bell/state")

    assert f"{message.topic}    {message.payload.decode()}" in page


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
    """The app that `leadsman init` writes, which the page about Home Assistant is for, with the topics that it
    publishes."""
    code = Path("src/leadsman/tools/cli/templates/module.py.txt").read_text().replace("$name", "house")
    names = {"__name__": "house"}
    exec(compile(code, "house", "exec", dont_inherit=True), names)
    with Harness(names["app"], settings={"disks": {"root": {}}}) as harness:
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
    code = Path("src/leadsman/tools/cli/templates/module.py.txt").read_text()

    assert f'Sensor("{sensor["unit_of_measurement"]}", device_class="{sensor["device_class"]}"' in code
    assert f"precision={sensor['suggested_display_precision']}" in code


@pytest.mark.parametrize("page", [*PAGES, *(page for each in OTHERS for page in sorted(Path().glob(each)))], ids=str)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


WRITTEN = [*GUIDES, *(page for each in OTHERS for page in sorted(Path().glob(each)))]


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.name != "install.md"], ids=str)
def test_only_the_page_about_the_installation_knows_that_there_is_no_release_yet(page):
    assert re.findall(r"pip install [^\n`]*\"?\.\[(?!test\])|package index yet|no release yet", page.read_text()) == []


@pytest.mark.parametrize("page", RECORDS, ids=str)
def test_each_record_of_a_decision_is_in_the_list_of_records_with_its_title(page):
    number, _, title = page.read_text().splitlines()[0].removeprefix("# ").partition(" ")

    assert f"| [{number}]({page.name}) | {title} |" in Path("docs/adr/log/README.md").read_text()


@pytest.mark.parametrize("page", RECORDS, ids=str)
def test_each_record_of_a_decision_belongs_to_a_topic_which_has_its_title(page):
    number, _, title = page.read_text().splitlines()[0].removeprefix("# ").partition(" ")

    assert [each for each in TOPICS if f"* [{number}](log/{page.name}) {title}\n" in each.read_text()]


@pytest.mark.parametrize("page", TOPICS, ids=str)
def test_each_topic_of_the_decisions_is_in_their_list(page):
    assert f"]({page.name})" in Path("docs/adr/README.md").read_text()


@pytest.mark.parametrize("page", TOPICS, ids=str)
def test_each_topic_of_the_decisions_says_what_holds_what_was_weighed_and_what_it_costs(page):
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)

    assert headings == ["What holds", "What was weighed", "What it costs", "Where", "Records"]


@pytest.mark.parametrize("page", TOPICS, ids=str)
def test_each_place_in_the_code_that_a_decision_names_exists(page):
    _, _, where = page.read_text().partition("\n## Where\n")
    places = re.findall(r"`((?:[\w.-]+/)+|(?:[\w-]+/)*\w+\.(?:py|toml))`", where.partition("\n## ")[0])

    assert places
    for place in places:
        assert any((wing / place).exists() for wing in WINGS), place


@pytest.mark.parametrize("page", [Path("CONTRIBUTING.md"), *sorted(Path("docs/explanation").glob("*.md"))], ids=str)
def test_each_module_that_a_page_names_exists(page):
    for name in re.findall(r"`([a-z0-9_/]+\.py)`", page.read_text()):
        assert [path for path in (Path(name), *Path("src/leadsman").rglob(name)) if path.exists()], name


def test_the_reading_list_has_twelve_files_and_each_name_is_in_its_file():
    _, _, text = Path("CONTRIBUTING.md").read_text().partition("### Read the core in an hour")
    items = re.findall(r"^\d+\. `([\w/]+\.py)`(.*(?:\n   .*)*)", text.partition("\n### ")[0], re.MULTILINE)

    assert len(items) == 12
    for file, line in items:
        code = (Path("src/leadsman/core") / file).read_text()
        for name in re.findall(r"`(\w+(?:\.\w+)?)`", line):
            assert all(re.search(rf"(?:class|def) {each}\b", code) for each in name.split(".")), (file, name)


def test_each_claim_of_the_threat_model_names_tests_that_exist():
    page = Path("docs/explanation/threat-model.md").read_text()
    claims = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| it can")]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)

    assert len(claims) > 20
    assert [claim for claim in claims if "`tests/" not in claim.split("|")[3]] == []
    assert [
        pair
        for pair in named
        if not re.search(rf"def {pair[1]}\b" if pair[1] else "def test", Path(pair[0]).read_text())
    ] == []


def help_of_all():
    command = [sys.executable, "-m", "leadsman", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_exit_code_of_an_app_is_in_the_table_of_the_deployment():
    rows = re.findall(r"^\| (\d+) \|", Path("docs/how-to/deployment.md").read_text(), re.MULTILINE)

    told = re.findall(r"^  (\d+) +(\S+)", help_of_all().partition("\nexit codes:\n")[2], re.MULTILINE)
    of_other_commands = [code for code, first in told if first == "leadsman"]
    assert of_other_commands == ["3", "4"]
    assert rows == [code for code, _ in told if code not in of_other_commands]


def script(name):
    spec = importlib.util.spec_from_file_location(name, f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("page", "made_by"), [("command-line", "command_line"), ("documents", "documents")])
def test_a_generated_page_of_the_reference_is_what_the_code_says(page, made_by):
    made = getattr(script("reference"), made_by)()

    assert Path(f"docs/reference/{page}.md").read_text() == made, "run: python scripts/reference.py"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package):
    names = {f"{package}.{name}" for name in importlib.import_module(package).__all__}

    assert names - set(SHOWN) == set()


@pytest.mark.parametrize("path", SHOWN)
def test_each_name_of_the_reference_can_be_imported_and_has_a_docstring(path):
    module, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(module), name, None) or importlib.import_module(path)

    assert documented(value) or constant_is_documented(path), path


def documented(value):
    """Whether this is a module, a class or a function, with a docstring of its own."""
    return isinstance(value, ModuleType | FunctionType | type) and bool(value.__doc__)


def constant_is_documented(path):
    """Whether a string stands below a constant, in the module that defines it."""
    name = path.rpartition(".")[2]
    pattern = rf'^{name}\b[^\n]* = .*?\n"""'
    return any(re.search(pattern, source.read_text(), re.MULTILINE) for source in Path("src/leadsman").rglob("*.py"))


@pytest.mark.parametrize("page", REFERENCE, ids=str)
def test_each_page_of_the_reference_is_in_its_list_of_contents(page):
    assert page.name == "README.md" or f"({page.name})" in Path("docs/reference/README.md").read_text()


def paths_of(entries):
    """The paths in the navigation of the site."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else paths_of(value)


def test_every_page_but_single_records_of_decisions_is_in_the_navigation_of_the_site():
    listed = sorted(Path(path) for path in paths_of(tomllib.loads(Path("zensical.toml").read_text())["project"]["nav"]))

    assert [page for page in listed if not page.exists()] == []
    assert [page for page in PAGES if page not in listed and not page.name[0].isdigit()] == []
    assert [app for app in Path("apps").glob("*/README.md") if app not in listed] == []


def test_the_site_has_everything_that_its_pages_link_to(tmp_path, monkeypatch):
    site = script("site")
    monkeypatch.setattr(site, "PAGES", tmp_path)

    site.gather()

    links = [
        page.parent / target
        for page in tmp_path.rglob("*.md")
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if "://" not in target
    ]
    assert [link for link in links if not link.exists()] == []


def test_a_complaint_of_the_builder_of_the_site_is_found():
    written = "Build started\ngriffe: app.py:3: No type for parameter 'a, b'\nNo issues found\nBuild finished in 5.2s\n"

    assert script("site").complaints(written) == ["griffe: app.py:3: No type for parameter 'a, b'"]


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("* a\n  * b\n", "<ul><li>a</li><li>b</li></ul>"),
        ("1. a\n\n   ```\n   b\n   ```\n\n2. c\n", "<ol><li>a</li></ol><pre>b</pre><ol><li>c</li></ol>"),
        ("1. a\n\n       b\n", "<ol><li><p>a</p><p>b</p></li></ol>"),
        ("| a |\n|---|\n| b |\n", "<p>| a | |---| | b |</p>"),
    ],
)
def test_a_page_that_the_site_shows_differently_is_found(tmp_path, monkeypatch, markdown, html):
    site = script("site")
    monkeypatch.setattr(site, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(site, "SITE", tmp_path / "site")
    for folder, name, text in (
        ("pages", "same.md", "* a\n"),
        ("site", "same.html", "<nav><ul><li>x</li></ul></nav><article><ul><li>a</li></ul></article>"),
        ("pages", "page.md", markdown),
        ("site", "page.html", f"<article>{html}</article>"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)

    assert [each.partition(":")[0] for each in site.differences()] == ["page.md"]


def test_the_smallest_app_is_that_of_the_quickstart():
    written = Path("src/leadsman/tools/cli/templates/minimal.py.txt").read_text().replace("$name", "sound")

    assert f"```python\n{written}```" in Path("docs/quickstart.md").read_text()
    assert len([line for line in written.splitlines() if line]) == 12


def test_the_glossary_is_sorted_and_has_every_status():
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", Path("docs/glossary.md").read_text(), re.MULTILINE)

    assert terms == sorted(terms, key=str.lower)
    assert [word for word in get_args(StatusWord) if word.replace("_", " ") not in terms] == []


def test_the_pictures_are_what_the_policies_say():
    for name, text in script("pictures").pictures().items():
        assert (Path("docs/pictures") / name).read_text() == text, "run: python scripts/pictures.py"


def test_the_diagrams_are_what_the_code_does():
    for name, text in script("diagrams").diagrams().items():
        assert (Path("docs/pictures") / name).read_text() == text, "run: python scripts/diagrams.py"


def test_the_versions_of_mqtt_are_drawn_with_all_their_moves():
    moves = set(script("diagrams").version_moves())

    assert ("tries 5.0", "version refused", "tries 3.1.1") in moves
    assert ("uses 3.1.1", "cut", "tries 3.1.1") in moves
    assert ("uses 3.1.1", "cut after a day", "tries 5.0") in moves


def test_the_circuit_is_drawn_with_all_its_moves():
    moves = set(script("diagrams").moves())

    assert ("closed", "cycle failed", "open") in moves
    assert ("half_open", "probe succeeded", "closed") in moves
    assert {after for before, what, after in moves if what == "a person isolates it"} == {"isolated"}


@pytest.fixture(scope="module")
def silent_house():
    """The app of the page about silent devices, after ten minutes: its answer, and what the broker retains."""
    random.seed(0)  # the jitter of the page
    names = {}
    exec(of_page("silent", "python"), names)
    with Harness(names["app"]) as harness:
        harness.run("10m")
        harness.broker.send("house/introspect", {})
        harness.run(0.1)
        answer = harness.broker.messages("house/introspect/response")[-1]
        retained = [*harness.broker.retained.items()]
        wall = harness.loop.wall_time()
    seen = {
        topic: Received(topic, each.payload, True, taken_at=None if each.taken_at is None else rfc3339(each.taken_at))
        for topic, each in retained
    }
    return answer, seen, wall


def shown_on_the_page_about_silent_devices():
    page = Path("docs/how-to/silent.md").read_text()
    blocks = re.findall(r"^    \$ leadsman ((?:why|watch) .*)\n((?:    .*\n|\n(?=    ))+)", page, re.MULTILINE)
    return [pytest.param(command, textwrap.dedent(text), id=command) for command, text in blocks]


@pytest.mark.parametrize(("command", "shown"), shown_on_the_page_about_silent_devices())
def test_the_answers_about_silent_devices_are_those_on_the_page(command, shown, silent_house, monkeypatch, stage):
    answer, seen, wall = silent_house
    monkeypatch.setenv("COLUMNS", "80")  # what fits on a page
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    monkeypatch.setenv("MQTT__HOST", "broker.lan")
    monkeypatch.setattr("time.time", lambda: wall)
    stage.keep(seen)
    stage.answers("house/introspect", answer.json["data"])
    printed = stage.run(*command.split()).out

    # The reading of the last moment is on its way, or waits a turn of the loop before Python 3.12.
    monkeypatch.delenv("TZ")
    time.tzset()
    printed, shown = (text.strip("\n").replace("outbox 1", "outbox 0") for text in (printed, shown))
    assert printed == shown


def test_the_page_about_a_raspberry_pi_has_the_commands_of_the_unit():
    unit = Path("src/leadsman/tools/cli/templates/unit.service").read_text()
    page = Path("docs/how-to/raspberry-pi.md").read_text().replace("sudo ", "")
    commands = [
        command
        for line in re.findall(r"^#     ((?:python3|install|cp) .*)$", unit, re.MULTILINE)
        for command in line.split(" && ")
    ]

    assert len(commands) == 5
    assert [command for command in commands if command not in page] == []
