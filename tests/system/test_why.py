"""`leadsman why`, asked about a running app on a real broker."""

import json
import subprocess
import sys
import time

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.listener import Listener

LEADSMAN = [sys.executable, "-m", "leadsman"]
HOUSE = """
from leadsman.adapters.serial import SerialPort
app = App("sys", mqtt=os.environ["URL"], adapters=(SerialPort("/dev/nowhere"),))

@app.telemetry("boiler", interval=0.2, circuit_breaker=CircuitBreaker(2, recovery=60))
async def boiler(port: SerialPort):
    return {"t": float(await port.read())}

@app.telemetry("kitchen", interval=0.2, publish=OnChange(0.5))
async def kitchen():
    return {"t": 21.0}

@app.telemetry(["attic", "secret"], interval=0.2)
async def attic():
    return {"t": 21.0}
"""


def why(broker, *arguments):
    command = [*LEADSMAN, "why", *arguments, "--mqtt", broker.url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def denying(tmp_path_factory):
    """A broker that takes nothing for one device."""
    access = tmp_path_factory.mktemp("acl") / "acl"
    access.write_text("topic readwrite #\ntopic deny sys/secret/state\n")
    with Mosquitto(f"acl_file {access}\n") as broker:
        yield broker


def test_each_link_is_found_on_a_real_broker_and_a_dead_app_by_what_it_left(denying, start_app_for_all):
    app = start_app_for_all(HOUSE, denying.url)
    with Listener(denying.port) as listener:
        listener.wait_for("sys/registry")
        listener.wait_for("sys/attic/state", 5)
        listener.wait_for("sys/status", where=lambda message: b"circuit_open" in message.payload)

        # The broker closes the connection on what it denies, and the app may be about to connect again.
        eventually(lambda: why(denying, "boiler")[1], "adapter")
        kitchen = eventually(lambda: why(denying, "kitchen")[1], "none")  # it was published a moment ago
        assert "OnChange(0.5) suppressed" in " ".join(kitchen["evidence"])
        eventually(lambda: why(denying, "boilr", "--prefix", "sys")[1], "registration")
        attic = eventually(lambda: why(denying, "attic")[1], "none")
        assert "the broker retains t 21.0 at sys/attic/state" in attic["evidence"]
        secret = eventually(lambda: why(denying, "secret")[1], "broker's answer")
        assert "sys/secret/state" in secret["evidence"][0]
        deadline = time.monotonic() + 60  # the others are in trouble, too, while the app has no connection
        while {each["device"] for each in why(denying)[1]} != {"boiler", "secret"}:
            assert time.monotonic() < deadline

        app.end()
        # An app that stops while it has no connection cannot say goodbye, and this broker cuts it off again and again.
        eventually(lambda: why(denying, "attic")[1], "app", "its app ")


def test_an_app_that_was_stopped_says_so(mosquitto, start_app):
    with Listener(mosquitto.port) as listener:
        app = start_app(HOUSE, mosquitto.url)
        listener.wait_for("sys/attic/state")
        app.end()

    eventually(lambda: why(mosquitto, "attic")[1], "app", "its app was stopped")


def eventually(ask, link, summary=""):
    """The verdict, once it names a link, and begins with a summary."""
    deadline = time.monotonic() + 60
    while True:
        verdict = ask()
        if verdict["link"] == link and verdict["summary"].startswith(summary):
            return verdict
        assert time.monotonic() < deadline, verdict
        time.sleep(0.2)


def test_an_anonymous_client_where_the_broker_wants_a_password_is_a_verdict_that_leads_with_it(tmp_path):
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    with Mosquitto(f"password_file {passwords}\n", anonymous=False) as broker:
        code, verdict = why(broker, "boiler", "--prefix", "sys")

    assert code == 3
    assert verdict["summary"] == "the broker refused the user name or the password (0x87)"


@pytest.mark.parametrize("of", [("--prefix", "sys"), (), ("boiler",)])
def test_a_broker_that_is_not_there_is_a_verdict(tmp_path, of):
    command = [*LEADSMAN, "why", *of, "--mqtt", "mqtt://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    assert done.returncode == 3
    assert "nothing listens at 127.0.0.1:1" in done.stdout.splitlines()[0]


def test_an_answer_on_which_the_broker_closes_the_connection_is_told_as_too_large(start_app):
    """ejabberd's max_payload_size is such a limit: 3.1.1 cannot announce one."""
    with Mosquitto("message_size_limit 2000\n") as broker:
        start_app(HOUSE, f"{broker.url}?protocol=3.1.1")
        with Listener(broker.port) as listener:
            listener.wait_for("sys/attic/state", 5)

            code, verdicts = why(broker, "--prefix", "sys")
            asked = subprocess.run(
                [*LEADSMAN, "inspect", "--prefix", "sys", "--mqtt", broker.url],
                capture_output=True,
                text=True,
                timeout=120,
            )

    assert (code, asked.returncode) == (3, 1)
    assert "as it answers: the answer may be too large for the broker" in verdicts[0]["summary"]
    assert "raise the broker's limit" in verdicts[0]["advice"]
    assert "as it answered: the answer may be too large" in asked.stderr
