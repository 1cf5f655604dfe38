"""The code in the documentation is run as it stands there, and its links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

from leadsman import App

PAGES = sorted(Path("docs").rglob("*.md"))
GUIDES = [page for page in PAGES if "adr" not in page.parts and page.name != "reference.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.stem} {number}")
    for page in GUIDES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1)
]


def test_there_is_code_in_the_documentation():
    assert len(BLOCKS) == 12


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_of_the_documentation_works(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "a_page"}

    exec(compile(block, "page", "exec", dont_inherit=True), names)

    for app in [each for each in names.values() if isinstance(each, App)]:
        app.load()


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


def test_the_pictures_are_what_the_policies_say():
    for name, text in script("pictures").pictures().items():
        assert (Path("docs/pictures") / name).read_text() == text, "run: python scripts/pictures.py"
