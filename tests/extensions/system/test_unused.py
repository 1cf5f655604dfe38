"""What an app does not use, it does not load, whichever extension is on: at a real broker, until all of it has run."""

import json
import subprocess
import sys

import pytest
from benchmarks.extensions import SETTINGS

from leadsman.testing.mosquitto import free_port

PROGRAM = """
import asyncio, os, sys
from leadsman import App, Sensor
from typing import Annotated

app, awaited = App("sys", mqtt=os.environ["URL"]), {"air", "tap", "any", "door"}  # a node takes over first

@app.telemetry("air", interval=0.1)
async def air() -> dict[str, float]:
    awaited.discard("air")
    return {"co2": 400}

@app.telemetry("tap", interval=0.1)
async def tap() -> Annotated[float, Sensor("°C")]:
    awaited.discard("tap")
    return 21.5

@app.telemetry("any", interval=0.1)
async def whatever():
    awaited.discard("any")
    return {"any": {"t": 1, "texts": ["a"]}}

@app.source("door")
async def door():
    while True:
        awaited.discard("door")
        yield {"open": True}
        await asyncio.sleep(0.1)

async def ask():
    bind = os.environ.get("HTTP__BIND")
    for path in ("introspect", "metrics", "why/air") if bind else ():
        reader, writer = await asyncio.open_connection(*bind.split(":"))
        writer.write(f"GET /{path} HTTP/1.1\\r\\nHost: {bind}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        assert b" 200 " in await reader.readline(), path
        writer.close()

async def main():
    serving = asyncio.create_task(app.serve())
    while awaited:
        await asyncio.sleep(0.05)
    await asyncio.sleep(3)  # descriptions follow a second after the connection
    await ask()
    print(*sys.modules, flush=True)
    os._exit(0)

asyncio.run(main())
"""
RETAINED = {
    "sys/status": {"state": "offline"},
    "sys/lease": {"owner": "pi-2", "token": 1, "ttl_s": 1.0, "sent": 1.0},
    "sys/nodes/pi-2": {"node": "pi-2", "kind": "standby", "state": "standby", "devices": [], "labels": ["ble"]},
}
"""What another node has left, which a node reads before it takes over."""


@pytest.mark.parametrize("name", SETTINGS)
def test_an_app_of_plain_values_does_not_load_pydantic_for_an_extension(name, mosquitto, listen, tmp_path):
    heard = listen(mosquitto.port)
    for topic, document in RETAINED.items():
        heard.client.publish(topic, json.dumps(document), qos=1, retain=True).wait_for_publish(10)
    given = {each: value.format(port=free_port(), state=tmp_path) for each, value in SETTINGS[name].items()}
    environment = {**given, "URL": mosquitto.url, "STATE_DIRECTORY": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )

    found = done.stdout.split()
    assert f"leadsman.extensions.{name}.part" in found
    assert {"sys/air/state", "sys/tap/state", "sys/any/state", "sys/door/state"} <= {m.topic for _, m in heard.messages}
    assert [each for each in found if each.startswith("pydantic")] == []
