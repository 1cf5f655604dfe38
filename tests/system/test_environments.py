"""Environments that are legal and unusual: an app is right in them, or ends with 78 and names what is wrong."""

import os
import subprocess
import sys

import pytest

APP = """\
from leadsman import App, CircuitBreaker

app = App("shed", keep_state=True, discovery="homeassistant")


@app.telemetry("bins", schedule="0 6 * * *")
async def bins() -> dict[str, int]:
    return {"days": 3}


@app.telemetry("tank", interval="1m", circuit_breaker=CircuitBreaker(3))
async def tank() -> dict[str, float]:
    return {"litres": 7.0}
"""
EMPTY = (
    *("STATE_DIRECTORY", "XDG_STATE_HOME", "RUNTIME_DIRECTORY", "CONFIGURATION_DIRECTORY", "CREDENTIALS_DIRECTORY"),
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "LEADSMAN_HEALTH_FILE", "LEADSMAN_CONFIG"),
    *("LEADSMAN_ENV", "LOG_LEVEL", "LOG_FORMAT", "COLUMNS", "TERM", "LANG", "USER", "LOGNAME", "TMPDIR", "NO_COLOR"),
    *("HOME", "TZ", "MQTT__HOST", "MQTT__PORT", "MQTT__USERNAME", "MQTT__PASSWORD", "MQTT__PASSWORD_FILE", "MQTT__TLS"),
    *("MQTT__CA", "MQTT__TOPIC_PREFIX", "MQTT__INSTANCE", "MQTT__CLIENT_ID", "HTTP__BIND", "HTTP__TOKEN_FILE"),
    *("OUTBOX__MAX_AGE", "DISCOVERY__CONVENTION", "DEVICES__TANK__ENABLED", "DEVICES__TANK__INTERVAL", "LOG__PATH"),
)


@pytest.fixture
def check(tmp_path):
    """Run ``leadsman check`` in an environment; a variable that is None is not there."""
    (tmp_path / "shed.py").write_text(APP)

    def run(variables, *before):
        given = {**os.environ, "MQTT__URL": "mqtt://127.0.0.1:9", "PYTHONPATH": str(tmp_path), **variables}
        environment = {name: value for name, value in given.items() if value is not None}
        command = [*before, sys.executable, "-m", "leadsman", "check", "shed:app"]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Traceback (most" not in done.stderr
        return done

    return run


@pytest.mark.parametrize(
    "variables",
    [
        dict.fromkeys(EMPTY, ""),
        dict.fromkeys((*EMPTY, "PATH"), None),
        {"TZ": "UTC0"},
        {"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"},
        {"TZ": "<+07>-7"},
        {"TZ": ":Europe/Berlin"},
        {"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "soon", "WATCHDOG_PID": "x", "JOURNAL_STREAM": "8"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
        {"COLUMNS": "wide", "TERM": "none"},
    ],
    ids=str,
)
def test_an_unusual_environment_is_as_good_as_any(check, variables):
    done = check(variables)

    assert (done.returncode, done.stderr) == (0, "")
    assert "tank" in done.stdout


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"TZ": "Mars/Olympus"}, "TZ is 'Mars/Olympus', which is no time zone"),
        ({"TZ": "CET-1CEST"}, "TZ is 'CET-1CEST', which is no time zone"),
        ({"LEADSMAN_CONFIG": "/nowhere.toml"}, "/nowhere.toml cannot be read"),
        ({"LEADSMAN_ENV": "lab"}, "LEADSMAN_ENV is 'lab'"),
        ({"DEVICES__TANK__ENABLED": "perhaps"}, "devices.tank.enabled"),
        ({"MQTT__URL": " "}, "the broker's URL has no mqtt://"),
    ],
    ids=str,
)
def test_a_variable_that_makes_no_sense_ends_the_app_with_78_and_is_named(check, variables, words):
    done = check(variables)

    assert done.returncode == 78
    assert words in done.stderr


def test_a_user_without_a_home_and_without_a_name_is_told_where_state_is(check):
    """docker run --user 54321 (psf/black#2813)."""
    nobody = ("unshare", "--user", "--map-user=54321")
    done = check(dict.fromkeys(("HOME", "XDG_STATE_HOME", "STATE_DIRECTORY", "USER", "LOGNAME"), None), *nobody)

    assert done.returncode == 0, done.stderr
    assert "kept in memory only" in done.stdout
    assert "set STATE_DIRECTORY" in " ".join(done.stdout.split())


LIMITED = """\
import resource, runpy, sys

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)),) * 2)
sys.argv[0] = "leadsman"
runpy.run_module("leadsman", run_name="__main__")
"""


@pytest.mark.parametrize("most", range(4, 19))
def test_an_app_that_may_open_too_few_files_says_so(check, tmp_path, most):
    environment = {**os.environ, "MQTT__URL": "mqtt://127.0.0.1:9", "PYTHONPATH": str(tmp_path)}
    environment["STATE_DIRECTORY"] = str(tmp_path / "state")
    command = [sys.executable, "-c", LIMITED, str(most), "run", "shed:app"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert (done.returncode, "Traceback (most" in done.stderr) == (78, False)
    assert "more files, and an app needs 16 at least; allow more, by LimitNOFILE=" in done.stderr
