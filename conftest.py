"""For all tests, those of the apps included."""

import itertools
import os
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakSet, WeakValueDictionary

import pytest
from hypothesis import settings

pytest_plugins = ["leadsman_rigs.fixtures", "leadsman_rigs.system"]

KEPT = ("HOME", "PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "LD_LIBRARY_PATH", "CI")
KEPT_PREFIXES = ("PYTEST_", "HYPOTHESIS_", "COVERAGE_")
LONGEST_FIRST = ("home_assistant", "system", "slow")
"""The marks of tests whose files begin first."""
BY_DAY = 25
"""Examples of a property; at night there are 2,000."""
HOMES = TemporaryDirectory(prefix="leadsman-tests-", ignore_cleanup_errors=True)
NUMBERS = itertools.count()

settings.register_profile("ci", deadline=None, max_examples=BY_DAY, derandomize=True)
settings.register_profile("dev", deadline=None, max_examples=BY_DAY, derandomize=False, print_blob=True)
settings.register_profile("night", deadline=None, max_examples=2000, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_configure():
    """Tests, and what they start, see the environment of a newcomer.

    A developer's variables make differences that nobody else has: with PYTHONUNBUFFERED nothing is left for the last
    flush, and LOG_LEVEL or MQTT__HOST change what an app does.
    """
    for name in [each for each in os.environ if each not in KEPT and not each.startswith(KEPT_PREFIXES)]:
        del os.environ[name]
    os.environ["XDG_STATE_HOME"] = HOMES.name


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The files that take longest begin first: that with Home Assistant keeps a worker for minutes, and those with real
    parts mostly wait, so that others compute meanwhile.

    A test with a real part that fails runs a second time, and the report names it; see docs/adr/tests.md.
    """
    places = {}
    for place, mark in reversed([*enumerate(LONGEST_FIRST)]):
        places |= {item.path: place for item in items if item.get_closest_marker(mark)}
    for item in items:
        if item.get_closest_marker("system"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: places.get(item.path, len(LONGEST_FIRST)))


def pytest_runtest_logreport(report):
    """The name of a test that fails is printed when it fails: a run takes half an hour."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nfailed: {report.nodeid}", file=sys.__stderr__, flush=True)


@pytest.fixture(autouse=True)
def same_dice():
    """The jitter of every test is that of its last run."""
    random.seed(0)


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch):
    """No text is hidden because an app of another test had it as its password."""
    monkeypatch.setattr("leadsman.core.text.redaction._ACTIVE", WeakSet())
    monkeypatch.setattr("leadsman.core.text.redaction._SECRETS", WeakValueDictionary())
    monkeypatch.setattr("leadsman.core.text.redaction._PUBLIC", WeakValueDictionary())


@pytest.fixture(autouse=True)
def own_state(monkeypatch):
    """No test finds what another one left on disk, nor writes where an app of the user does."""
    monkeypatch.setenv("XDG_STATE_HOME", str(Path(HOMES.name, str(next(NUMBERS)))))
