"""Identities and retained topics of apps at a real broker: the printed access list, cleaning up, and two at one
prefix."""

import contextlib
import json
import os
import subprocess
import time

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.listener import Listener
from leadsman_rigs.password_file import write_password_file
from leadsman_rigs.service import LEADSMAN

HOUSE = """
from leadsman import App, Context
import os

app = App("house", mqtt=os.environ.get("URL"))

for name in os.environ["NAMES"].split():
    @app.telemetry(name, interval=0.5)
    async def read(context: Context) -> dict:
        context.publish("map", b"floor", retain=True)
        return {"t": 1}

@app.command("lamp")
async def lamp(on: bool) -> dict:
    return {"on": on}
"""


@pytest.fixture
def house(tmp_path):
    """Run ``leadsman`` with the app: ``house(broker.url, "check", "house:app", names="a b")``."""
    (tmp_path / "house.py").write_text(HOUSE)

    def run(url, *arguments, names="a b", **options):
        environment = {**os.environ, "URL": url, "NAMES": names, "XDG_STATE_HOME": str(tmp_path / "state")}
        return subprocess.run(
            [*LEADSMAN, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    return run


CODE = HOUSE.split('"))\n', 1)[1]


def started(start_app, url, names, prefix="house", **settings):
    flags = {"mqtt.topic_prefix": prefix, **settings}
    load = f"""
app = App("house", mqtt=os.environ["URL"])
os.environ["NAMES"] = {names!r}
from leadsman.core.settings.sources import Where
{CODE}
app.load(Where.here(None, {flags!r}))
"""
    return start_app(load, url)


@contextlib.contextmanager
def guarded_by(printed, directory):
    """A broker with an access list for the user house, and a listener that may do everything."""
    passwords, rules = directory / "passwords", directory / "acl"
    write_password_file(passwords, house="secret", admin="secret")
    rules.write_text(f"{printed}\nuser admin\ntopic readwrite #\n")
    with Mosquitto(f"password_file {passwords}\nacl_file {rules}\n", anonymous=False) as broker:
        listener = Listener(broker.port)
        listener.client.username_pw_set("admin", "secret")
        with listener:
            yield broker, listener


def test_an_app_works_with_the_access_list_that_is_printed_and_may_publish_nowhere_else(house, start_app, tmp_path):
    printed = house("mqtt://house:secret@localhost", "acl", "house:app")
    assert printed.returncode == 0, printed.stderr

    with guarded_by(printed.stdout, tmp_path) as (broker, listener):
        app = started(start_app, f"mqtt://house:secret@127.0.0.1:{broker.port}", "a b")
        for topic in ("a/state", "a/availability", "b/map", "registry", "status"):
            listener.wait_for(f"house/{topic}")
        listener.client.publish("house/lamp/set", b"true", 1)
        listener.wait_for("house/lamp/set/result")
        listener.client.publish("house/a/get", b'{"transaction": 1}', 1)
        listener.wait_for("house/a/get/response")
        listener.client.publish("house/a/hold/set", b"{}", 1)
        listener.wait_for("house/a/hold/set/response")
        listener.client.publish("house/introspect", b"{}", 1)
        answer = json.loads(listener.wait_for("house/introspect/response")[0].payload)
        assert answer["data"]["mqtt"]["last_error"] is None, app.log
        assert "refused" not in app.log
        assert listener.on("house/error") == []

        other = started(start_app, f"mqtt://house:secret@127.0.0.1:{broker.port}", "a", prefix="cellar")
        other.wait_for("The broker refuses messages to cellar/status")
        assert [each.topic for _, each in listener.messages if each.topic.startswith("cellar")] == []


BRIDGE = """
from leadsman import Delivery
app = App("house", mqtt=os.environ["URL"], discovery="homeassistant")

heard = []

@app.telemetry("a", interval=0.5, delivery=Delivery(history=100))
async def read() -> dict:
    return {"heard": heard[-1] if heard else None}

@app.subscribe("zigbee2mqtt/+/battery")
async def battery(level: int):
    heard.append(level)
"""


def test_discovery_a_subscription_and_a_history_work_with_the_list_that_is_printed(start_app, tmp_path):
    (tmp_path / "house.py").write_text("from leadsman import App\nimport os\n" + BRIDGE)
    environment = {**os.environ, "URL": "mqtt://house:secret@localhost", "XDG_STATE_HOME": str(tmp_path)}
    command = [*LEADSMAN, "acl", "house:app"]
    printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert printed.returncode == 0, printed.stderr
    config = "homeassistant/device/house/{}/config".format

    with guarded_by(printed.stdout, tmp_path) as (broker, listener):
        app = start_app(BRIDGE, f"mqtt://house:secret@127.0.0.1:{broker.port}")
        for topic in ("house/a/state", "house/a/history", "house/a/health", config("a"), config("leadsman_app")):
            listener.wait_for(topic)
        listener.client.publish("zigbee2mqtt/door/battery", b"77", 1)
        listener.wait_for("house/a/history", where=lambda message: b'"heard":77' in message.payload)
        listener.client.publish("homeassistant/status", b"online", 1)
        listener.wait_for(config("a"), 2)
        assert app.end()[0] == 0
        removed = start_app(BRIDGE.replace('"a"', '"b"'), f"mqtt://house:secret@127.0.0.1:{broker.port}")
        for topic in (config("a"), "house/a/health", "house/a/state"):
            listener.wait_for(topic, where=lambda message: not message.payload)
        assert "refuse" not in app.log + removed.log


def test_a_device_that_is_gone_leaves_nothing_behind(start_app, mosquitto, listen):
    first = started(start_app, mosquitto.url, "a b")
    listener = listen(mosquitto.port)
    listener.wait_for("house/registry", where=lambda message: b"house/b/map" in message.payload)
    assert first.end()[0] == 0

    second = started(start_app, mosquitto.url, "a")
    second.wait_for("removing 4 retained topics of 1 device that this app no longer has: b")
    listener.wait_for("house/registry", where=lambda message: b"house/b/" not in message.payload)

    late = listen(mosquitto.port)
    late.wait_for("house/a/availability")
    late.wait_for("house/registry")
    assert [message.topic for _, message in late.messages if message.topic.startswith("house/b/")] == []


def test_clean_removes_by_hand_what_is_left_and_refuses_while_the_app_is_online(house, start_app, mosquitto, listen):
    app = started(start_app, mosquitto.url, "a b")
    listener = listen(mosquitto.port)
    listener.wait_for("house/registry", where=lambda message: b"house/b/map" in message.payload)

    online = house(mosquitto.url, "clean", "house:app", names="a")
    assert (online.returncode, "the app is online, as house/status shows; stop it first" in online.stderr) == (1, True)
    assert app.end()[0] == 0
    planned = house(mosquitto.url, "clean", "house:app", "--dry-run", names="a")
    *topics, summary = planned.stdout.splitlines()
    assert {"house/b/state", "house/b/availability", "house/b/map"} <= set(topics), "its ledger comes after a minute"
    assert summary == f"{len(topics)} retained topics of 1 device would be removed"
    done = house(mosquitto.url, "clean", "house:app", names="a")
    removed = f"{len(topics)} retained topics of 1 device removed"
    assert (done.returncode, done.stdout.splitlines()) == (0, [*topics, removed]), done.stderr
    assert house(mosquitto.url, "clean", "house:app", names="a").stdout == "Nothing to remove.\n"

    everything = house(mosquitto.url, "clean", "--prefix", "house", "--all", "--mqtt", mosquitto.url)
    assert everything.returncode == 0, everything.stderr
    again = house(mosquitto.url, "clean", "--prefix", "house", "--all", "--mqtt", mosquitto.url)
    assert "keeps no registry at house/registry" in again.stdout
    listener.client.publish("marker", b"x", 1, retain=True).wait_for_publish(60)
    late = listen(mosquitto.port)
    late.wait_for("marker")
    assert [message.topic for _, message in late.messages] == ["marker"]


def test_with_discovery_too_nothing_of_a_device_or_of_an_app_is_left(house, start_app, mosquitto, listen):
    def kept():
        late = listen(mosquitto.port)
        late.client.publish("marker", b"x", 1, retain=True).wait_for_publish(60)
        late.wait_for("marker")  # it is subscribed
        late.client.publish("end", b"x", 1).wait_for_publish(60)
        late.wait_for("end")
        return {message.topic for _, message in late.messages if message.retain} - {"marker"}

    def life(names, *, until):
        devices = f"for name in {names!r}:\n    app.add_telemetry(name, read, interval=0.5)\n"
        code = BRIDGE.replace('@app.telemetry("a", interval=0.5, delivery=Delivery(history=100))\n', "") + devices
        app, listener = start_app(code, mosquitto.url), listen(mosquitto.port)
        listener.wait_for("house/a/health")
        listener.wait_for("homeassistant/device/house/a/config")
        listener.wait_for("house/registry", where=until)
        assert app.end()[0] == 0

    life(["a", "b"], until=lambda message: b"house/b/health" in message.payload)
    assert {"homeassistant/device/house/b/config", "house/b/health"} <= kept()
    life(["a"], until=lambda message: b'"b":' not in message.payload)
    assert [topic for topic in kept() if "/b/" in topic] == []

    everything = house(mosquitto.url, "clean", "--prefix", "house", "--all", "--mqtt", mosquitto.url)
    assert everything.returncode == 0, everything.stderr
    assert kept() == set()


def test_clean_says_which_app_is_meant(house, mosquitto):
    for arguments in (("clean",), ("clean", "--prefix", "house"), ("clean", "--all")):
        wrong = house(mosquitto.url, *arguments)
        assert (wrong.returncode, "name the app, such as house:app" in wrong.stderr) == (2, True)


def test_two_apps_at_one_prefix_both_say_so(start_app, mosquitto):
    one = started(start_app, mosquitto.url, "a")
    one.wait_for("starts with leadsman")
    two = started(start_app, mosquitto.url, "b", **{"mqtt.client_id": "second"})

    one.wait_for("another app publishes below 'house/': its client id is 'second'", "--prefix, or MQTT__TOPIC_PREFIX")
    two.wait_for("another app publishes below 'house/': its client id is 'house'")
    assert two.end()[0] == 0
    one.wait_for("no other app publishes below house/ any more")


@pytest.mark.parametrize("after", [0.0, 1.5])
def test_nothing_is_left_of_a_life_that_ended_before_its_registry(house, start_app, mosquitto, listen, after):
    first = started(start_app, mosquitto.url, "a b")
    listen(mosquitto.port).wait_for("house/registry")
    assert first.end()[0] == 0

    second = started(start_app, mosquitto.url, "c", **{"discovery.convention": "homeassistant"})
    listen(mosquitto.port).wait_for("house/c/state")
    time.sleep(after)
    assert second.end()[0] == 0
    done = house(mosquitto.url, "clean", "--prefix", "house", "--all", "--mqtt", mosquitto.url)

    assert done.returncode == 0, done.stderr
    assert {"house/c/state", "house/c/map", "house/a/state"} <= set(done.stdout.splitlines())
    late = listen(mosquitto.port)
    late.client.publish("marker", b"x", 1, retain=True).wait_for_publish(60)
    late.wait_for("marker")  # it is subscribed
    late.client.publish("end", b"x", 1).wait_for_publish(60)
    late.wait_for("end")
    assert {message.topic for _, message in late.messages if message.retain} <= {"marker"}
