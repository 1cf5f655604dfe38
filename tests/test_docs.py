"""The code in the documentation is run as it stands there, and its links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

from leadsman import App
from leadsman.settings.sources import Where

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


def test_the_settings_of_the_documentation_work(tmp_path):
    pages = "".join(page.read_text() for page in GUIDES)
    (block,) = re.findall(r"```toml\n(# leadsman.toml\n.*?)```", pages, re.DOTALL)
    (tmp_path / "leadsman.toml").write_text(block)
    app = App("house")
    app.add_telemetry("a", lambda: None, interval=1, policy="radio")
    app.add_telemetry("b", lambda: None, interval=1, policy="serial")

    app.load(Where({"LEADSMAN_ENV": "lab"}, tmp_path, secrets=tmp_path))


@pytest.mark.parametrize("page", [Path("README.md"), Path("CONTRIBUTING.md"), *PAGES], ids=str)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


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
