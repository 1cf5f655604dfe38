"""An app describes its devices by Homie 5 at a real broker."""

import json
import time

from leadsman.testing import Mosquitto
from leadsman.tools.cli.main import main
from leadsman_rigs.homie import violations

APP = """
app = App("sys", mqtt=os.environ["URL"], discovery="homie")

from typing import Literal

from pydantic import BaseModel

class Air(BaseModel):
    co2: int
    temperature: float
    note: str
"""
DEVICES = """
async def read() -> Air:
    return {{"co2": 400, "temperature": 21.5, "note": ""}}

app.add_telemetry({names}, read, interval=1)
"""
HEATER = """
class Heater(BaseModel):
    target: float = 20.0
    mode: Literal["eco", "boost"] = "eco"

heater = Heater()

@app.telemetry("heater", interval=30)
async def look() -> Heater:
    return heater

@app.command("heater")
async def change(wanted: Heater) -> Heater:
    for name in wanted.model_fields_set:
        setattr(heater, name, getattr(wanted, name))
    return heater

@app.command("bell")
async def ring() -> None:
    pass
"""
FAILING = """
@app.telemetry("meter", interval=1)
async def fail() -> Air:
    raise OSError("no answer")
"""
CHILD = "homie/5/sys-kitchen"
ROOT = "homie/5/sys"


BELL = """
@app.command("bell")
async def ring() -> None:
    pass
"""


async def read():
    return {}


async def ring(): ...


def devices(*names):
    return APP + DEVICES.format(names=list(names))


def wait_until(true, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def tree(listener):
    """What the broker keeps below ``homie``, as the messages that a subscriber got leave it."""
    found = {}
    for _, message in list(listener.messages):
        if message.topic.startswith("homie/"):
            if message.payload:
                found[message.topic] = message.payload
            else:
                found.pop(message.topic, None)
    return found


def kept(listen, port):
    """What the broker keeps below ``homie``."""
    listener = listen(port)
    listener.wait_for("sys/status")
    wait_until(lambda: time.monotonic() - listener.messages[-1][0] > 0.5)
    return {each.topic: each.payload for _, each in list(listener.messages) if each.retain and "homie/" in each.topic}


def wait_for(listener, topic, payload):
    listener.wait_for(topic, where=lambda message: message.payload == payload)


def test_the_tree_of_an_app_follows_the_convention(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    start_app(devices("kitchen", "attic") + HEATER + FAILING, mosquitto.url)
    for name in ("kitchen", "attic", "heater", "bell"):
        wait_for(watching, f"homie/5/sys-{name}/$state", b"ready")
    wait_for(watching, f"{ROOT}/$state", b"ready")
    watching.wait_for("homie/5/sys-meter/$alert/failing")

    found = kept(listen, mosquitto.port)

    assert violations(found) == []
    assert found[f"{CHILD}/values/co2"] == b"400"
    assert found[f"{CHILD}/values/temperature"] == b"21.5"
    assert found[f"{CHILD}/values/note"] == b"\x00"
    assert b"OSError: no answer" in found["homie/5/sys-meter/$alert/failing"]
    assert json.loads(found[f"{ROOT}/$description"])["children"] == [
        *("sys-kitchen", "sys-attic", "sys-heater", "sys-meter", "sys-bell")
    ]


def test_a_property_that_is_set_reaches_the_device_and_comes_back(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    start_app(APP + HEATER, mosquitto.url)
    wait_for(watching, "homie/5/sys-heater/$state", b"ready")
    wait_for(watching, "homie/5/sys-bell/$state", b"ready")

    watching.client.publish("homie/5/sys-heater/values/target/set", "23.5", 1)
    wait_for(watching, "homie/5/sys-heater/values/target", b"23.5")
    watching.client.publish("homie/5/sys-heater/values/mode/set", "boost", 1)
    wait_for(watching, "homie/5/sys-heater/values/mode", b"boost")
    watching.client.publish("homie/5/sys-heater/values/mode/set", "turbo", 1)
    watching.wait_for("sys/heater/set/result", where=lambda each: b"turbo" in each.payload)
    refused = watching.on("sys/heater/set/result")[-1]
    watching.client.publish("homie/5/sys-bell/command/run/set", "run", 1)
    wait_for(watching, "homie/5/sys-bell/command/run/$target", b"run")

    assert json.loads(refused.payload)["error"] == ("the payload 'turbo' does not fit; send one of: eco, boost")
    assert tree(watching)["homie/5/sys-heater/values/mode"] == b"boost"


def test_with_the_printed_access_list_an_app_that_is_killed_is_lost(listen, start_app, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "homie_acl.py").write_text(
        "from leadsman import App\napp = App('sys', discovery='homie')\n"
        "@app.telemetry('kitchen', interval=1)\nasync def read() -> dict[str, float]: return {}\n"
        "@app.command('bell')\nasync def ring() -> None: ...\n"
    )
    assert main(["acl", "homie_acl:app"]) == 0
    (tmp_path / "acl").write_text(f"{capsys.readouterr().out}\ntopic read #\n")
    with Mosquitto(f"acl_file {tmp_path / 'acl'}\n") as broker:
        watching = listen(broker.port)
        app = start_app(devices("kitchen") + BELL, f"{broker.url}?protocol=3.1.1")  # which has no delay of a will
        wait_for(watching, f"{CHILD}/$state", b"ready")
        wait_for(watching, f"{ROOT}/$state", b"ready")
        app.wait_for("starts")

        app.kill()

        wait_for(watching, f"{ROOT}/$state", b"lost")
        assert "refuse" not in app.log


def test_an_app_that_ends_is_disconnected_and_comes_back(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    app = start_app(devices("kitchen"), mosquitto.url)
    wait_for(watching, f"{CHILD}/$state", b"ready")
    wait_for(watching, f"{ROOT}/$state", b"ready")
    assert app.end()[0] == 0

    found = kept(listen, mosquitto.port)
    assert found[f"{ROOT}/$state"] == found[f"{CHILD}/$state"] == b"disconnected"

    start_app(devices("kitchen"), mosquitto.url)
    wait_until(lambda: tree(watching)[f"{ROOT}/$state"] == tree(watching)[f"{CHILD}/$state"] == b"ready")


def test_a_device_that_is_removed_leaves_nothing(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    app = start_app(devices("kitchen", "attic"), mosquitto.url)
    for each in ("sys-kitchen", "sys-attic", "sys"):
        wait_for(watching, f"homie/5/{each}/$state", b"ready")
    assert app.end()[0] == 0

    app = start_app(devices("kitchen"), mosquitto.url)
    wait_until(lambda: not any("sys-attic" in topic for topic in tree(watching)))
    wait_until(lambda: tree(watching)[f"{ROOT}/$state"] == b"ready")

    found = kept(listen, mosquitto.port)
    assert not any("sys-attic" in topic for topic in found)
    assert json.loads(found[f"{ROOT}/$description"])["children"] == ["sys-kitchen"]
    assert violations(found) == []


def test_a_broker_that_forgot_everything_gets_it_again(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    start_app(devices("kitchen"), mosquitto.url)
    wait_for(watching, f"{CHILD}/$state", b"ready")
    wait_for(watching, f"{ROOT}/$state", b"ready")
    before = tree(watching)

    mosquitto.kill()
    mosquitto.start()
    for each in (CHILD, ROOT):
        watching.wait_for(f"{each}/$description", 2)
        watching.wait_for(f"{each}/$state", 2, where=lambda message: message.payload == b"ready")

    found = kept(listen, mosquitto.port)
    assert found.keys() == before.keys() - {each for each in before if "/$alert/" in each}
    assert violations(found) == []


def test_clean_removes_the_tree(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    app = start_app(devices("kitchen"), mosquitto.url)
    wait_for(watching, f"{CHILD}/$state", b"ready")
    watching.wait_for("sys/registry", where=lambda each: b"homie/5" in each.payload)
    assert app.end()[0] == 0

    assert main(["clean", "--prefix", "sys", "--all", "--mqtt", mosquitto.url]) == 0

    wait_until(lambda: not tree(watching))
