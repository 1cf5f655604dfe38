"""An app as systemd runs it, asked by the tools that people have, and attacked."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time

import paho.mqtt.client as paho
import pytest

from leadsman.testing import Mosquitto

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


class Manager:
    """The notify socket of a service manager, and all that was said there."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.said = []

    def listen(self, timeout):
        deadline = time.monotonic() + timeout
        while (rest := deadline - time.monotonic()) > 0:
            self.socket.settimeout(rest)
            try:
                self.said += [(time.monotonic(), line) for line in self.socket.recv(65536).decode().splitlines()]
            except TimeoutError:
                return

    def wait_for(self, word, timeout=10.0):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if any(word in line for _, line in self.said):
                return
            self.listen(0.1)
        pytest.fail(f"{word} was not said within {timeout} s; {self.said}")


@pytest.fixture
def guarded(tmp_path):
    """A broker with passwords: house may do everything, as may guest."""
    passwords = tmp_path / "passwords"
    for number, user in enumerate(("house", "guest")):
        options = ["-b", "-c"] if number == 0 else ["-b"]
        program = next(
            each for each in ("/usr/bin/mosquitto_passwd", "mosquitto_passwd") if os.path.exists(each) or number
        )
        subprocess.run([program, *options, str(passwords), user, f"{user}-secret"], check=True)
    with Mosquitto(f"password_file {passwords}\n", anonymous=False) as broker:
        yield broker


class Service:
    """The app above, as systemd would run it."""

    def __init__(self, directory, broker):
        self.directory, self.broker = directory, broker
        (directory / "house.py").write_text(APP)
        (directory / "leadsman.toml").write_text(SETTINGS.format(port=broker.port))
        credentials = directory / "credentials"
        credentials.mkdir()
        (credentials / "mqtt__password").write_text("house-secret\n")
        self.manager = Manager(directory / "notify")
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
            timeout=30,
            **options,
        )

    def tool(self, program, *arguments):
        credentials = ["-p", str(self.broker.port), "-u", "guest", "-P", "guest-secret"]
        return subprocess.run([program, *credentials, *arguments], capture_output=True, text=True, timeout=20)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.manager.socket.close()
        assert "Traceback" not in self.log.read_text(), self.log.read_text()


@pytest.fixture
def service(tmp_path, guarded):
    service = Service(tmp_path, guarded).start()
    try:
        service.manager.wait_for("READY=1")
        service.manager.wait_for("; connected")
        yield service
    finally:
        service.end()


def rr(service, version, topic, payload, answer="house/answers/me"):
    result = service.tool("mosquitto_rr", "-V", version, "-t", topic, "-e", answer, "-m", payload, "-W", "5")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def pub_and_sub(service, topic, payload, answer):
    """As MQTT 3.1.1 has it: a transaction, and whoever listens to the topic of answers."""
    credentials = ["-p", str(service.broker.port), "-u", "guest", "-P", "guest-secret", "-V", "311"]
    listener = subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", *credentials, "-t", answer, "-C", "1", "-W", "5", "-d"],
        stdout=subprocess.PIPE,
        text=True,
    )
    while "SUBACK" not in listener.stdout.readline():
        pass
    service.tool("mosquitto_pub", "-V", "311", "-t", topic, "-m", payload)
    lines = list(listener.stdout)
    listener.stdout.close()
    listener.wait(10)
    return json.loads(next(line for line in lines if line.startswith("{")))


def test_an_app_under_a_service_manager_is_inspected_commanded_and_stopped(service):
    assert len([line for line in APP.splitlines() if line.strip()]) <= 30

    document = rr(service, "5", "house/introspect", "")
    data = document["data"]
    assert document["status"] == "ok"
    assert set(data["devices"]) == {"kitchen", "attic", "heating"}
    assert data["devices"]["attic"]["runtime"]["status"] == "ok"
    assert data["mqtt"]["connected"] is True
    assert "secret" not in json.dumps(document)
    assert "hunter2" not in json.dumps(document)

    old = pub_and_sub(
        service, "house/introspect", '{"sections": ["app"], "transaction": 7}', "house/introspect/response"
    )
    assert (old["status"], old["transaction"], old["data"]["app"]["name"]) == ("ok", 7, "house")

    assert rr(service, "5", "house/heating/set", '{"degrees": 21}')["data"] == {"target": 21.0}
    assert rr(service, "5", "house/kitchen/get", "")["data"] == {"t": 21}
    refused = pub_and_sub(
        service, "house/heating/set", '{"degrees": "warm", "transaction": "x"}', "house/heating/set/result"
    )
    assert (refused["status"], refused["transaction"]) == ("error", "x")
    assert "degrees: Input should be a valid number" in refused["error"]

    service.manager.listen(1.5)
    fed = [at for at, line in service.manager.said if line == "WATCHDOG=1"]
    assert len(fed) >= 2
    assert max(after - before for before, after in itertools.pairwise(fed)) < 1
    well = service.leadsman("health")
    assert (well.returncode, well.stdout) == (0, "2 of 2 devices ok; connected\n")

    before = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(5) == 0
    assert time.monotonic() - before < 2
    service.manager.wait_for("STOPPING=1")
    assert json.loads((service.directory / "state" / "heating.json").read_text()) == {"target": 21.0}
    assert service.leadsman("health").returncode == 1


def test_running_the_module_is_the_same_as_leadsman_run(service):
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(5)
    service.manager.said.clear()
    service.start([sys.executable, "house.py"])

    service.manager.wait_for("READY=1")
    service.manager.wait_for("; connected")

    assert rr(service, "5", "house/introspect", '{"sections": ["app"]}')["data"]["app"]["name"] == "house"


def test_the_command_line_asks_a_running_app(service):
    table = service.leadsman("inspect", "house:app", "--live")
    assert table.returncode == 0
    assert "kitchen  ok" in table.stdout
    assert "\x1b" not in table.stdout
    document = service.leadsman("inspect", "--prefix", "house", "--device", "attic", "--section", "devices", "--json")
    assert list(json.loads(document.stdout)["devices"]) == ["attic"]
    nobody = service.leadsman("inspect", "--prefix", "nobody", "--timeout", "500ms")
    assert nobody.returncode == 1
    assert "is the app running there, with this prefix?" in nobody.stderr
    wrong = service.leadsman("inspect", "--prefix", "house", "--device", "atic")
    assert "did you mean 'attic'" in wrong.stderr
    refused = service.leadsman(
        "inspect", "--prefix", "house", "--mqtt", f"mqtt://eve:x@localhost:{service.broker.port}"
    )
    assert refused.returncode == 1
    assert "MQTT__PASSWORD" in refused.stderr


def test_check_shows_every_setting_with_its_origin_and_no_secret(service):
    checked = service.leadsman("check", "house:app")

    assert checked.returncode == 0
    assert checked.stdout.rstrip().endswith("ok")
    rows = {line.split()[0]: line for line in checked.stdout.splitlines() if line.strip()}
    assert rows["rooms.kitchen.address"].endswith("leadsman.toml")
    assert rows["rooms.kitchen.every"].endswith("default")
    assert rows["api_key"].split()[1:] == ["********", "environment", "HOUSE_API_KEY"]
    assert rows["mqtt.password"].split()[1] == "********"
    assert "secret " not in checked.stdout.replace("secret /", "")
    assert "hunter2" not in checked.stdout


def test_a_wrong_password_is_told_once_with_what_to_do_and_the_process_lives(service):
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(5)
    (service.directory / "credentials" / "mqtt__password").write_text("gu3ssed")
    service.log.write_text("")
    service.manager.said.clear()

    service.start()
    service.manager.wait_for("READY=1")  # the boot of a machine does not wait for a broker
    service.manager.wait_for("no connection to the broker")
    time.sleep(1)

    assert service.process.poll() is None
    log = service.log.read_text()
    assert log.count("bad user name or password") + log.count("not authorized") == 1
    assert "MQTT__PASSWORD" in log
    assert "gu3ssed" not in log


def test_two_apps_with_one_client_id_are_told_and_slow_down(service, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    twin = Service(other, service.broker).start()
    try:
        deadline = time.monotonic() + 20
        while "another client uses" not in (both := service.log.read_text() + twin.log.read_text()):
            assert time.monotonic() < deadline, both
            time.sleep(0.1)
        time.sleep(3)
        both = service.log.read_text() + twin.log.read_text()
        assert "another client uses the client id 'house'" in both
        assert both.count("another client uses") <= 2
        assert both.count("connected to the broker") <= 10
        twin.process.send_signal(signal.SIGTERM)
        twin.process.wait(5)
        service.manager.listen(0.1)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            status = service.tool("mosquitto_sub", "-t", "house/status", "-C", "1", "-W", "2").stdout
            if '"online"' in status and '"last_error":null' in status:
                break
            time.sleep(0.5)
        else:
            pytest.fail(f"it did not recover: {status}\n{service.log.read_text()}")
    finally:
        twin.end()


def test_commands_arrive_again_after_the_broker_was_killed(service):
    service.broker.kill()
    time.sleep(0.5)
    service.broker.start()

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        result = service.tool(
            "mosquitto_rr",
            "-V",
            "5",
            "-t",
            "house/heating/set",
            "-e",
            "house/answers/x",
            "-m",
            '{"degrees": 22}',
            "-W",
            "1",
        )
        if result.returncode == 0:
            break
    assert json.loads(result.stdout)["data"] == {"target": 22.0}


def test_a_flood_of_garbage_leaves_the_app_alive_and_small(service):
    import psutil

    process = psutil.Process(service.process.pid)
    rr(service, "5", "house/introspect", "")
    before = process.memory_info().rss
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest-secret")
    client.max_inflight_messages_set(0)
    client.connect("127.0.0.1", service.broker.port)
    client.loop_start()
    garbage = [
        b"{",
        b"\xff" * 1000,
        b"[" * 30_000,
        b'{"degrees": NaN}',
        b"x" * 100_000,
        b'{"degrees": 1e999}',
        b'"\\ud800"',
    ]
    last = [client.publish("house/heating/set", garbage[number % len(garbage)], 1) for number in range(2000)]
    last += [
        client.publish(topic, b"\x00" * 100, 1) for topic in ("house/introspect", "house/x/set", "house/kitchen/get")
    ]
    last[-1].wait_for_publish(20)
    client.disconnect()
    client.loop_stop()

    assert rr(service, "5", "house/heating/set", '{"degrees": 23}')["data"] == {"target": 23.0}
    assert process.memory_info().rss - before < 30 * 2**20
    assert service.log.read_text().count("commands failed so far") <= 2


def test_what_is_older_than_the_process_comes_from_the_store_also_after_a_kill(service):
    rr(service, "5", "house/heating/set", '{"degrees": 24}')
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(5)
    service.start()
    service.manager.said.clear()
    service.manager.wait_for("; connected")
    service.process.kill()
    service.process.wait(5)

    assert json.loads((service.directory / "state" / "heating.json").read_text()) == {"target": 24.0}


STALE = """
@app.telemetry("dead", interval=0.2, stale_after="1s")
async def dead():
    raise OSError("away")
"""
BLOCKING = """
@app.telemetry("slow", interval=60)
async def read_the_bus_without_await():
    time.sleep(2.5)
    return {"t": 1}
"""


def test_the_watchdog_is_not_fed_while_no_data_is_fresh(mosquitto, start_app, tmp_path, monkeypatch):
    manager = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.setenv("LEADSMAN_HEALTH_FILE", str(tmp_path / "health.json"))
    start_app(STALE, mosquitto.url)

    manager.wait_for("0 of 1 devices ok (not dead)")
    manager.listen(3)
    last_fed = max(at for at, line in manager.said if line == "WATCHDOG=1")

    assert time.monotonic() - last_fed > 1
    unwell = subprocess.run([*LEADSMAN, "health"], capture_output=True, text=True)
    assert unwell.returncode == 1
    assert "0 of 1 devices ok" in unwell.stderr
    manager.socket.close()


def test_an_abstract_notify_socket_and_one_that_is_gone_are_fine(mosquitto, start_app, listen, monkeypatch):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(f"\0leadsman-{os.getpid()}")
    receiver.settimeout(10)
    monkeypatch.setenv("NOTIFY_SOCKET", f"@leadsman-{os.getpid()}")
    app = start_app('@app.telemetry("d", interval=0.2)\nasync def d():\n    return {}\n', mosquitto.url)
    assert receiver.recv(100) == b"READY=1"
    receiver.close()
    listen(mosquitto.port).wait_for("sys/d/state", 3)

    assert app.end()[0] == 0


def test_who_blocks_the_loop_is_named_with_the_stack(mosquitto, listen, start_app):
    app = start_app(BLOCKING, mosquitto.url)
    listen(mosquitto.port).wait_for("sys/slow/state")

    assert "The event loop has been blocked for 1." in app.log
    assert "by read_the_bus_without_await (<string>:" in app.log
    assert app.log.count("has been blocked") == 1
    assert 'File "<string>"' in app.log


def test_a_process_that_was_stopped_blames_nobody(mosquitto, listen, start_app):
    app = start_app('@app.telemetry("d", interval=0.2)\nasync def d():\n    return {}\n', mosquitto.url)
    listener = listen(mosquitto.port)
    listener.wait_for("sys/d/state", 3)

    app.process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    app.process.send_signal(signal.SIGCONT)
    listener.wait_for("sys/d/state", len(listener.on("sys/d/state")) + 3)

    assert "blocked" not in app.log


@pytest.mark.parametrize(("kind", "begins"), [("json", '{"at": "'), ("journal", "<6>sys: connected"), ("text", "20")])
def test_logs_come_as_they_are_asked_for(mosquitto, listen, start_app, monkeypatch, kind, begins):
    monkeypatch.setenv("LOG_FORMAT", kind)
    app = start_app(
        '@app.telemetry("d", interval=0.2)\nasync def d():\n    raise OSError("a\\nb\\x1b[31m")\n', mosquitto.url
    )
    listen(mosquitto.port).wait_for("sys/d/error")
    app.end()

    lines = app.log.splitlines()
    assert any(line.startswith(begins) for line in lines)
    assert "\x1b" not in app.log
    if kind == "json":
        assert all(json.loads(line)["level"] in ("info", "warning") for line in lines)


LAMP = """
@app.telemetry("d", interval=0.2)
async def d():
    return {}

@app.command("lamp")
async def lamp(on: bool):
    return {"on": on}
"""


def test_a_broker_that_speaks_3_1_1_only_carries_commands_and_introspection(old_broker, listen, start_app):
    url = f"mqtt://127.0.0.1:{old_broker}"
    start_app(LAMP, f"{url}?protocol=3.1.1")
    listener = listen(old_broker, version=paho.MQTTv311)
    listener.wait_for("sys/d/state", 2)

    listener.client.publish("sys/lamp/set", b"on", 1)
    (result,) = listener.wait_for("sys/lamp/set/result")
    asked = subprocess.run(
        [*LEADSMAN, "inspect", "--prefix", "sys", "--mqtt", f"{url}?protocol=3.1.1", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert json.loads(result.payload)["data"] == {"on": True}
    assert json.loads(asked.stdout)["mqtt"]["protocol"] == "3.1.1", asked.stderr


MANY = """
@app.telemetry([f"d{number}" for number in range(700)], interval="1h")
async def d():
    return {}
"""


def test_a_large_app_is_inspected_in_one_answer(mosquitto, listen, start_app):
    start_app(MANY, mosquitto.url)
    listen(mosquitto.port).wait_for("sys/registry", timeout=20)

    asked = subprocess.run(
        [*LEADSMAN, "inspect", "--prefix", "sys", "--mqtt", mosquitto.url, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert len(asked.stdout) > 256 * 1024, asked.stderr
    assert len(json.loads(asked.stdout)["devices"]) == 700
