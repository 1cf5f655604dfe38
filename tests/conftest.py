import os
import random

import pytest
from hypothesis import settings

pytest_plugins = ["leadsman.testing.fixtures"]

settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def same_dice():
    """The jitter of every test is that of its last run."""
    random.seed(0)
