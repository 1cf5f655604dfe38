"""For all tests, those of the apps included."""

import os

KEPT = ("HOME", "PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "LD_LIBRARY_PATH", "CI")


def pytest_configure():
    """Tests, and what they start, see the environment of a newcomer.

    A developer's variables make differences that nobody else has: with PYTHONUNBUFFERED nothing is left for the last
    flush, and LOG_LEVEL or MQTT__HOST change what an app does.
    """
    for name in [each for each in os.environ if each not in KEPT and not each.startswith(("PYTEST_", "HYPOTHESIS_"))]:
        del os.environ[name]
