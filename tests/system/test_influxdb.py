"""The page about InfluxDB: its app, its program, and its configuration of Telegraf, at a real InfluxDB.

Telegraf is `leadsman_rigs.telegraf`, which does what the documentation of Telegraf says.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from leadsman_rigs.influxdb import InfluxDb
from leadsman_rigs.processes import Process
from leadsman_rigs.telegraf import Telegraf, TelegrafError

PAGE = Path("docs/how-to/influxdb.md").read_text()
APP, PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(CONFIGURATION,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(CREATE,) = re.findall(r"^    (curl -X POST .*)$", PAGE, re.MULTILINE)
BOILER, ROOT = "house/boiler/state", "house/state"
DEADLINE = 90.0


@pytest.fixture
def influxdb():
    with InfluxDb() as influxdb:
        command = shlex.split(CREATE.replace("http://127.0.0.1:8086", influxdb.url))
        subprocess.run(command, check=True, capture_output=True)
        yield influxdb


@pytest.fixture
def app(start_app, mosquitto):
    """The app of the page."""
    return start_app(APP.replace('App("house")', 'App("house", mqtt=os.environ["URL"])'), mosquitto.url)


@pytest.fixture
def heard(listen, mosquitto, app):
    return listen(mosquitto.port)


def points_of(heard):
    """What Telegraf would make of all that was heard, each point once."""
    telegraf = Telegraf(CONFIGURATION)
    states = [each for _, each in list(heard.messages) if each.topic in (BOILER, ROOT)]
    return {point.line: point for each in states for point in telegraf.points(each.topic, each.payload)}.values()


def rows(points):
    """The points as InfluxDB answers, without fields that a row has not."""
    return sorted(({"time": each.milliseconds, **each.tags, **each.fields} for each in points), key=json.dumps)


def stored(influxdb):
    found = influxdb.ask("SELECT * FROM readings")
    return sorted(({key: value for key, value in row.items() if value is not None} for row in found), key=json.dumps)


def passes(condition, said=lambda: ""):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(0.1)


def outage(server, taken_until):
    """A server is away until the readings of some seconds were taken. Returns its beginning and its end."""
    server.kill()
    begin = time.time()
    passes(taken_until(begin))
    server.start()
    return begin, time.time()


def test_the_configuration_of_telegraf_writes_each_reading_once_with_its_time(influxdb, mosquitto, app, heard):
    heard.wait_for(BOILER, 2)
    begin, end = outage(mosquitto, lambda begin: lambda: time.time() > begin + 3)
    last = heard.wait_for(BOILER, where=lambda each: json.loads(each.payload)["taken_at"] > rfc_3339(end))[0]

    points = points_of(heard)
    telegraf = Telegraf(CONFIGURATION)
    url = telegraf.output["urls"][0].replace("http://127.0.0.1:8086", influxdb.url)
    lines = "\n".join(each.line for each in points).encode()
    urlopen(f"{url}/write?db={telegraf.output['database']}&precision=ms", lines).close()

    assert stored(influxdb) == rows(points)
    assert [each for each in points if begin * 1000 < each.milliseconds < end * 1000], "those of the outage"
    of_boiler = [each for each in stored(influxdb) if each.get("device") == "boiler"]
    assert {key: of_boiler[-1][key] for key in of_boiler[-1] if key != "time"} == {
        "app": "house",
        "device": "boiler",
        "temperature": 54.5,
        "burning": True,
        "position_valve": 30.0,
    }
    assert {"app": "house", "watts": 412.0} in [
        {key: each[key] for key in each if key != "time"} for each in stored(influxdb)
    ]
    assert json.loads(last.payload)["fault"] is None


def rfc_3339(wall):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall))


def test_the_program_writes_the_points_of_telegraf_and_loses_none_while_influxdb_or_itself_is_away(
    influxdb, mosquitto, app, heard, tmp_path
):
    (tmp_path / "to_influxdb.py").write_text(PROGRAM)

    def start():
        return Process(
            [sys.executable, "-u", str(tmp_path / "to_influxdb.py")],
            tmp_path / "to_influxdb.log",
            BROKER=f"127.0.0.1:{mosquitto.port}",
            INFLUXDB=f"{influxdb.url}/write?db=house",
            PYTHONWARNINGS="error",
        )

    def count():
        return len(heard.on(BOILER))

    def complete():
        return stored(influxdb) == rows(points_of(heard))

    program = start()
    try:
        passes(lambda: len(stored(influxdb)) >= 4 and complete(), lambda: program.log)
        enough = count() + 3
        outage(influxdb, lambda begin: lambda: count() >= enough and "InfluxDB: " in program.log)
        passes(complete, lambda: program.log)
        program.end()
        enough = count() + 3
        passes(lambda: count() >= enough)
        program = start()
        passes(complete, lambda: program.log)
    finally:
        program.kill()
    assert "Traceback (most" not in program.log


@pytest.mark.parametrize(
    ("topic", "payload", "tags"),
    [
        (BOILER, {"t": 1}, {"app": "house", "device": "boiler"}),
        (ROOT, {"t": 1}, {"app": "house"}),
        ("home/cellar/boiler/state", {"t": 1}, {}),
    ],
)
def test_the_tags_are_those_of_the_topics(topic, payload, tags):
    (point,) = Telegraf(CONFIGURATION).points(topic, json.dumps(payload | {"taken_at": "2026-11-27T10:30:45.349Z"}))

    assert (point.tags, point.milliseconds) == (tags, 1795775445349)


def test_a_prefix_of_two_levels_has_the_tags_that_the_page_says():
    topic, tags = re.search(r'`topic = "(home/cellar/[^"]*)"` and\s+`tags = "([^"]*)"`', PAGE).groups()
    telegraf = Telegraf(CONFIGURATION.replace("house/+/state", topic).replace("app/device/_", tags))

    (point,) = telegraf.points("home/cellar/boiler/state", b'{"t": 1, "taken_at": "2026-11-27T10:30:45Z"}')

    assert point.tags == {"app": "cellar", "device": "boiler"}


def test_a_reading_without_its_time_is_lost_as_the_page_says():
    with pytest.raises(TelegrafError, match="NULL"):
        Telegraf(CONFIGURATION).points(BOILER, b'{"t": 1}')
