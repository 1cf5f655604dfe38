import os
import random

import pytest
from hypothesis import settings

pytest_plugins = ["leadsman.testing.fixtures"]

settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_modifyitems(items):
    """Two groups for two workers: those that wait for real parts, one after another, and those that only compute."""
    for item in items:
        system = "system" in item.path.parts
        item.add_marker(pytest.mark.xdist_group("system" if system else "virtual"))


@pytest.fixture(autouse=True)
def same_dice():
    """The jitter of every test is that of its last run."""
    random.seed(0)
