"""The page about Grafana: its Prometheus in front of an app with each query of the dashboard, and its queries at a real
InfluxDB. Grafana itself only draws what they answer."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from leadsman.testing.mosquitto import free_port
from leadsman_rigs.influxdb import InfluxDb
from leadsman_rigs.processes import Process

PAGE = Path("docs/how-to/grafana.md").read_text()
CONFIGURATIONS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
PROMETHEUS = next(each for each in CONFIGURATIONS if "scrape_configs" in each)
SOURCES = [source for each in CONFIGURATIONS for source in each.get("datasources", [])]
QUERIES = [*re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL), *re.findall(r"`(SELECT [^`]*FROM[^`]*)`", PAGE)]
DASHBOARD = json.loads(Path("docs/grafana/leadsman.json").read_text())
EMPTY = {"Circuits that are not closed", "Failed polls a minute"}
"""The panels that show nothing while all is well."""
VARIABLES = {"$instance": ".*", "$handler": ".*", "$__rate_interval": "1m", "$__range": "1h", "$__interval": "15s"}
APP = """
@app.telemetry("boiler", interval=0.2)
async def boiler():
    return {"t": 21.5}
"""


def expressions():
    """The queries of the dashboard, each with the title of its panel."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def ask(port, query):
    with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


@pytest.fixture
def prometheus(start_app, mosquitto, tmp_path):
    """The port of a Prometheus that is configured as the page says, and asks an app each second."""
    app, port = free_port(), free_port()
    start_app(f'os.environ["HTTP__BIND"] = "127.0.0.1:{app}"\n{APP}', mosquitto.url)
    config = json.loads(json.dumps(PROMETHEUS).replace("127.0.0.1:8080", f"127.0.0.1:{app}"))
    config["global"]["scrape_interval"] = "1s"
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy("docs/grafana/alerts.yml", tmp_path)
    checked = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True)
    assert checked.returncode == 0, checked.stderr
    options = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    server = Process(
        ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", *options], tmp_path / "prometheus.log"
    )
    server.wait_for("Server is ready to receive web requests")
    yield port
    server.kill()


def test_each_panel_of_the_dashboard_has_data_from_the_prometheus_of_the_page(prometheus):
    waiting = {title for title, _ in expressions()} - EMPTY
    deadline = time.monotonic() + 120
    while waiting:
        assert time.monotonic() < deadline, waiting
        time.sleep(0.5)
        waiting -= {title for title, expression in expressions() if title in waiting and ask(prometheus, expression)}

    assert {each["metric"]["job"] for each in ask(prometheus, "leadsman_device_ok")} == {"leadsman"}
    with urlopen(f"http://127.0.0.1:{prometheus}/api/v1/rules", timeout=30) as answer:
        (group,) = json.load(answer)["data"]["groups"]
    assert len(group["rules"]) == 7


def test_the_queries_of_the_page_are_answered_by_influxdb():
    now = time.time_ns()
    lines = [
        f"readings,app=house,device={device} temperature={20 + n},energy={n} {now - n * 60_000_000_000}"
        for device in ("boiler", "attic")
        for n in range(1, 6)
    ]
    with InfluxDb() as influxdb:
        urlopen(f"{influxdb.url}/query", b"q=CREATE%20DATABASE%20house").close()
        urlopen(f"{influxdb.url}/write?db=house", "\n".join(lines).encode()).close()
        for query in QUERIES:
            filled = query.replace("$timeFilter", "time > now() - 1h").replace("$__interval", "1m")
            with urlopen(f"{influxdb.url}/query?db=house&q={quote(filled)}", timeout=30) as answer:
                (result,) = json.load(answer)["results"]
            assert {each["tags"]["device"] for each in result["series"]} == {"boiler", "attic"}, query
            assert all(None not in row for each in result["series"] for row in each["values"]), query

    assert len(QUERIES) == 2


def test_the_data_sources_are_where_the_pages_say_and_the_dashboard_asks_for_one_of_them():
    assert {each["type"] for each in SOURCES} == {"prometheus", "influxdb"}
    (influxdb,) = [each for each in SOURCES if each["type"] == "influxdb"]
    assert (influxdb["url"], influxdb["jsonData"]["dbName"]) == ("http://127.0.0.1:8086", "house")
    assert {each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"} == {"prometheus"}
