import os
import random

import pytest
from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_modifyitems(items):
    """Three groups for three workers: those that wait for real parts, in two lines one after another, and those that only
    compute."""
    for item in items:
        parts = item.path.parts
        devices = "apps" in parts or item.path.name in ("test_ble.py", "test_caldav.py")
        group = "devices" if devices else "system" if "system" in parts else "virtual"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def same_dice():
    """The jitter of every test is that of its last run."""
    random.seed(0)
