"""An app as systemd runs it, and the tools that people ask it with."""

import json
import os
import subprocess
import sys
import time

from leadsman_rigs.notify_socket import NotifySocket

LEADSMAN = [sys.executable, "-m", "leadsman"]
APP = """\
from pydantic import BaseModel
from leadsman import App, Context, Device

class Room(BaseModel):
    address: int
    every: str = "200ms"

class Settings(BaseModel):
    rooms: dict[str, Room]
    api_key: str = ""

class Target(BaseModel):
    degrees: float

app = App("house", settings=Settings)

@app.telemetry(lambda s: {name: Device(room, interval=room.every) for name, room in s.rooms.items()}, retry=2)
async def climate(room: Room):
    return {"t": 20 + room.address}

@app.command("heating")
async def heating(target: Target, context: Context):
    context.store["target"] = target.degrees
    return {"target": target.degrees}

if __name__ == "__main__":
    app.run()
"""
SETTINGS = """\
[mqtt]
url = "mqtt://localhost:{port}"
username = "house"
[rooms.kitchen]
address = 1
[rooms.attic]
address = 2
"""


class Service:
    """The app above, as systemd would run it."""

    def __init__(self, directory, broker):
        self.directory, self.broker = directory, broker
        (directory / "house.py").write_text(APP)
        (directory / "leadsman.toml").write_text(SETTINGS.format(port=broker.port))
        credentials = directory / "credentials"
        credentials.mkdir()
        (credentials / "mqtt__password").write_text("house-secret\n")
        self.manager = NotifySocket(directory / "notify")
        self.log = directory / "log"
        self.environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(self.manager.path),
            "WATCHDOG_USEC": "1000000",
            "CREDENTIALS_DIRECTORY": str(credentials),
            "STATE_DIRECTORY": str(directory / "state"),
            "RUNTIME_DIRECTORY": str(directory),
            "PYTHONWARNINGS": "error",
            "HOUSE_API_KEY": "hunter2",
        }
        self.process = None

    def start(self, command=(*LEADSMAN, "run", "house:app")):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.directory, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return self

    def leadsman(self, *arguments, **options):
        return subprocess.run(
            [*LEADSMAN, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    def tool(self, program, *arguments):
        credentials = ["-p", str(self.broker.port), "-u", "guest", "-P", "guest-secret"]
        return subprocess.run([program, *credentials, *arguments], capture_output=True, text=True, timeout=90)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.manager.socket.close()
        assert "Traceback (most" not in self.log.read_text(), self.log.read_text()

    def wait_until_online(self):
        """From then on a command arrives. The manager hears of the connection before that."""
        deadline = time.monotonic() + 60
        while '"online"' not in (
            heard := self.tool("mosquitto_sub", "-t", "house/status", "-C", "1", "-W", "5").stdout
        ):
            assert time.monotonic() < deadline, f"it is not online: {heard}\n{self.log.read_text()}"

    def rr(self, version, topic, payload, answer="house/answers/me"):
        result = self.tool("mosquitto_rr", "-V", version, "-t", topic, "-e", answer, "-m", payload, "-W", "60")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def pub_and_sub(self, topic, payload, answer):
        """As MQTT 3.1.1 has it: a transaction, and whoever listens to the topic of answers."""
        credentials = ["-p", str(self.broker.port), "-u", "guest", "-P", "guest-secret", "-V", "311"]
        listener = subprocess.Popen(
            ["stdbuf", "-oL", "mosquitto_sub", *credentials, "-t", answer, "-C", "1", "-W", "60", "-d"],
            stdout=subprocess.PIPE,
            text=True,
        )
        while "SUBACK" not in listener.stdout.readline():
            pass
        self.tool("mosquitto_pub", "-V", "311", "-t", topic, "-m", payload)
        lines = list(listener.stdout)
        listener.stdout.close()
        listener.wait(60)
        return json.loads(next(line for line in lines if line.startswith("{")))
