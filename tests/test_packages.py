"""What leadsman and the apps say about themselves to an installer: their pyproject.toml."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from leadsman import __version__

ROOT = Path(__file__).parents[1]
APPS = sorted(each.parent for each in ROOT.glob("apps/*/pyproject.toml"))


@pytest.fixture(scope="module")
def dist():
    """`scripts/dist.py`, imported."""
    spec = importlib.util.spec_from_file_location("dist", ROOT / "scripts" / "dist.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_an_app_goes_with_this_leadsman_and_with_no_later_minor_version(app):
    project = tomllib.loads((app / "pyproject.toml").read_text())["project"]
    (needed,) = (each for each in map(Requirement, project["dependencies"]) if each.name == "leadsman")
    major, minor = Version(__version__).release[:2]

    assert project["version"] == __version__
    assert str(needed.specifier) == f"<{major}.{minor + 1},>={major}.{minor}"


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_an_app_has_the_licence_of_leadsman(app):
    assert (app / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_a_distribution_with_a_file_too_many_or_too_few_is_refused(dist):
    complaints = [*dist.differences("a.whl", {"a/b.py", "a/c.png"}, {"a/b.py", "a/py.typed"})]

    assert complaints == ["a.whl has a/c.png, which does not belong there", "a.whl has no a/py.typed"]
