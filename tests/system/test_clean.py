"""`leadsman clean` at a real broker whose access list denies some of what an app left."""

import json
import subprocess
import sys

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.password_file import write_password_file

DEVICES = ("d1", "d2", "d3")
BOSS, APP = ("boss", "boss-secret"), ("app", "app-secret")
REGISTRY = {
    "app": "oth",
    "client_id": "oth",
    "devices": {
        name: {"topics": {each: f"oth/{name}/{each}" for each in ("state", "ledger")}, "retained": ["state", "ledger"]}
        for name in DEVICES
    },
}
LEDGERS = {f"oth/{name}/ledger": {} for name in DEVICES}
KEPT = {"oth/status": {"state": "offline", "at": "2026-01-01T00:00:00Z"}, "oth/registry": REGISTRY, **LEDGERS}
STATES = {f"oth/{name}/state": {"t": 21} for name in DEVICES}
ALL, DENIED = "topic readwrite #\n", "topic readwrite #\ntopic deny oth/d2/state\n"
READ_ONLY = "topic read #\n" + "".join(
    f"topic write oth/{each}\n" for each in ("d1/#", "d2/ledger", "d3/#", "status", "registry")
)
OF_THE_APP = "topic write oth/#\ntopic read oth/registry/#\ntopic read oth/registry\ntopic read oth/status\n"
"""What an app needs: it reads nothing of its devices."""


class Place:
    """A broker with an access list for the app."""

    def __init__(self, broker):
        self.broker = broker

    def keep(self, documents):
        for topic, document in documents.items():
            self._run("mosquitto_pub", "-q", "1", "-r", "-t", topic, "-m", json.dumps(document))

    @property
    def kept(self):
        """The retained topics that a user sees who may see all. An answer of the broker to a message ends the wait."""
        self._run("mosquitto_pub", "-q", "1", "-r", "-t", "z", "-m", "1")
        command = ("mosquitto_sub", "-t", "oth/#", "-t", "z", "-F", "%t", "-W", "60", "--retained-only")
        with subprocess.Popen(self._words(*command), stdout=subprocess.PIPE, text=True) as process:
            found = set()
            for line in process.stdout:
                if line.strip() == "z":
                    break
                found.add(line.strip())
            process.kill()
        return found

    def clean(self, query, *more):
        url = f"mqtt://{':'.join(APP)}@127.0.0.1:{self.broker.port}{query}"
        command = [sys.executable, "-m", "leadsman", "clean", "--prefix", "oth", "--all", "--mqtt", url, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def _words(self, program, *words):
        return [program, "-p", str(self.broker.port), "-u", BOSS[0], "-P", BOSS[1], *words]

    def _run(self, *words):
        subprocess.run(self._words(*words), check=True, timeout=60)


@pytest.fixture
def place(tmp_path):
    """Start a broker where the access list of the app has these lines."""
    started = []

    def start(lines):
        write_password_file(tmp_path / "passwords", **dict([BOSS, APP]))
        (tmp_path / "access").write_text(f"user boss\n{ALL}user app\n{lines}")
        conf = f"password_file {tmp_path}/passwords\nacl_file {tmp_path}/access\n"
        started.append(Mosquitto(conf, anonymous=False))
        started[-1].start()
        return Place(started[-1])

    yield start
    for each in started:
        each.__exit__()


VERSIONS = pytest.mark.parametrize("query", ["", "?protocol=3.1.1"], ids=["MQTT 5", "MQTT 3.1.1"])


@VERSIONS
def test_a_topic_that_is_denied_and_not_there_is_not_asked_to_go(place, query):
    here = place(DENIED)
    here.keep(KEPT)

    planned = here.clean(query, "--dry-run")
    assert (planned[0], planned[1][-1]) == (0, "5 retained topics of 3 devices would be removed")
    code, lines, err = here.clean(query)

    assert (code, err) == (0, "")
    assert lines == [*LEDGERS, "oth/status", "oth/registry", "5 retained topics of 3 devices removed"]
    assert here.kept == set()


@VERSIONS
def test_a_topic_that_is_denied_stays_and_is_named_and_all_others_go_but_for_the_registry(place, query):
    here = place(READ_ONLY)
    here.keep(KEPT | STATES)

    code, lines, err = here.clean(query)

    assert code == 1
    assert here.kept == {"oth/d2/state", "oth/registry"}
    stays = [line for line in lines if " stays" in line or " is still" in line]
    assert [line.split()[0] for line in stays] == ["oth/d2/state", "oth/registry"]
    assert "topic write oth/d2/state" in f"{' '.join(lines)} {err}"
    assert {*(KEPT | STATES)} - {"oth/d2/state", "oth/registry"} <= set(lines)
    assert lines[-1] == "6 retained topics of 3 devices removed"


@VERSIONS
def test_the_access_list_of_an_app_hides_what_it_left_and_all_of_it_goes(place, query):
    here = place(OF_THE_APP)
    here.keep(KEPT | STATES)

    code, lines, err = here.clean(query)

    assert (code, err) == (0, "")
    assert here.kept == set()
    assert lines[-2:] == [
        "2 retained topics of 3 devices removed",
        "6 topics of 3 devices emptied, in case the broker hides what it keeps",
    ]


def test_what_the_access_list_hides_goes_though_it_shows_the_descriptions(place):
    """An app with discovery may read these, and nothing else of its devices."""
    config = "homeassistant/device/oth/d1/config"
    here = place(f"{OF_THE_APP}topic readwrite homeassistant/device/oth/+/config\n")
    described = {**REGISTRY["devices"]["d1"], "others": [config]}
    registry = REGISTRY | {"devices": REGISTRY["devices"] | {"d1": described}}
    here.keep(KEPT | STATES | {"oth/registry": registry, config: {"o": {"name": "leadsman oth"}}})

    code, lines, err = here.clean("")

    assert (code, err) == (0, "")
    assert lines[0] == config
    assert here.kept == set()


@VERSIONS
def test_what_is_denied_and_hidden_is_named_too(place, query):
    here = place(f"{OF_THE_APP}topic deny oth/d2/state\n")
    here.keep(KEPT | STATES)

    code, lines, err = here.clean(query)

    assert code == 1
    assert here.kept == {"oth/d2/state", "oth/registry"}
    assert any(line.startswith("oth/d2/state stays: the broker ") for line in lines), (lines, err)
