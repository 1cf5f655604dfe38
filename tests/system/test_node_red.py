"""The page about Node-RED: its flow in a real Node-RED, with its app at a real broker."""

import json
import re
import time
from pathlib import Path

import pytest

from leadsman_rigs.node_red import PROGRAM, WHERE_FROM, NodeRed

PAGE = Path("docs/how-to/node-red.md").read_text()
(APP,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FLOWS = json.loads(Path("docs/node-red/house.json").read_text())


def test_the_page_names_the_nodes_of_the_flow():
    rows = re.findall(r"^\| (\*.*?) \|", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"\*(.+?)\*", row)]

    assert sorted(named) == sorted(each["name"] for each in FLOWS if each["type"] not in ("tab", "mqtt-broker"))


def comes(condition, said):
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)
    return found


def test_the_flow_is_whole():
    names = {each["id"] for each in FLOWS}
    wired = {target for each in FLOWS for wires in each.get("wires", []) for target in wires}

    assert len(names) == len(FLOWS)
    assert wired | {each["z"] for each in FLOWS if "z" in each} <= names
    assert {each["broker"] for each in FLOWS if each["type"].startswith("mqtt ")} == {"house-broker"}
    assert all(each["retain"] == "false" for each in FLOWS if each["type"] == "mqtt out")


@pytest.mark.skipif(not PROGRAM.exists(), reason=WHERE_FROM)
def test_the_flow_shows_readings_and_gets_the_answer_to_its_command(start_app, mosquitto):
    flows = [{**each, "port": str(mosquitto.port)} if each["type"] == "mqtt-broker" else each for each in FLOWS]
    start_app(APP.replace('App("house")', 'App("house", mqtt=os.environ["URL"])'), mosquitto.url)

    with NodeRed(flows) as node_red:
        (first, *_) = comes(lambda: node_red.said("reading"), lambda: node_red.log)
        comes(lambda: node_red.said("availability"), lambda: node_red.log)
        node_red.press("press")
        (answered, *_) = comes(lambda: node_red.said("answer"), lambda: node_red.log)
        refused = [{**each, "payload": '{"degrees": 99}'} if each["id"] == "press" else each for each in flows]
        assert node_red.said("availability")[0] == "online"

    assert (first["device"], first["fields"]) == ("boiler", {"degrees": 20})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", first["takenAt"])
    assert answered["asked"] == {"degrees": 20}
    assert (answered["answer"]["status"], answered["answer"]["data"]) == ("ok", {"degrees": 20})

    with NodeRed(refused) as node_red:
        node_red.press("press")
        (answered, *_) = comes(lambda: node_red.said("answer"), lambda: node_red.log)

    assert answered["asked"] == {"degrees": 99}
    assert answered["answer"]["status"] == "error"
    assert "30" in answered["answer"]["error"]
