"""What leadsman and the apps say about themselves to an installer: their pyproject.toml."""

import importlib.util
import itertools
import re
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


def bounded(pyproject):
    """The requirements with an upper bound and no reason beside it: no comment on the line, nor on the one before."""
    lines = ["", *pyproject.splitlines()]
    return [
        requirement
        for before, line in itertools.pairwise(lines)
        for requirement in re.findall(r'"([A-Za-z][\w.-]*(?:\[[^]"]*\])?[^"]*(?:<|==|~=)\s*\d[^"]*)"', line)
        if any(each.operator in ("<", "<=", "==", "~=") for each in Requirement(requirement).specifier)
        and not (re.search(r"[\],] *# \w", line) or before.strip().startswith("# "))
    ]


def test_an_upper_bound_has_its_reason_beside_it():
    """A bound without one keeps an app from what others need, and nobody knows when it may go."""
    assert bounded((ROOT / "pyproject.toml").read_text().partition("[tool.")[0]) == []


def test_an_upper_bound_without_a_reason_is_found():
    pyproject = """
    "capped>=1,<2",
    "explained>=1,<2", # 2 has no paho
    # 3 is another library.
    "below>=2,<3; python_version < '3.15'"
    "free>=1; python_version < '3.15'", "extra[x]~=1.0"
    """

    assert bounded(pyproject) == ["capped>=1,<2", "extra[x]~=1.0"]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_an_app_has_the_licence_of_leadsman(app):
    assert (app / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_a_distribution_with_a_file_too_many_or_too_few_is_refused(dist):
    complaints = [*dist.differences("a.whl", {"a/b.py", "a/c.png"}, {"a/b.py", "a/py.typed"})]

    assert complaints == ["a.whl has a/c.png, which does not belong there", "a.whl has no a/py.typed"]
