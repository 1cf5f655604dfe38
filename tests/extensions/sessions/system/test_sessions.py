"""Sessions recorded with real parts in real time, and played in virtual time, byte for byte."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from leadsman import App
from leadsman.adapters.ble import BleRadio
from leadsman.adapters.caldav import CalDav
from leadsman.adapters.http import HttpClient
from leadsman.adapters.i2c import I2c
from leadsman.adapters.modbus import Modbus, Register, Table
from leadsman.adapters.onewire import OneWire
from leadsman.adapters.program import Programs
from leadsman.adapters.serial import SerialPort
from leadsman.extensions.sessions.session import read_session, session_of
from leadsman.testing import Harness, I2cRegisters, I2cTwin, PtyDevice, Recorded
from leadsman.testing.twins import content_of
from leadsman_rigs.bluez import Air, Scripted
from leadsman_rigs.dav import Radicale
from leadsman_rigs.i2c import I2C, SMBUS, Kernel
from leadsman_rigs.modbus_server import WAYS, ModbusServer
from leadsman_rigs.sessions import contents, published, recorded, recorded_live, written
from leadsman_rigs.web import Web

ADDRESS = "F0:11:22:33:44:55"
TABLE = Table({"volts": Register(0, "float32", kind="input"), "mode": Register(1)})


class Scale:
    """A scale at a pseudo-terminal. It answers in two pieces, once with garbage, and once it is unplugged instead."""

    def __enter__(self):
        self._stack = ExitStack()
        self.device = self._stack.enter_context(PtyDevice())
        self.url = self.device.path
        self._open = True
        self._stack.callback(setattr, self, "_open", False)
        threading.Thread(target=self._answer, daemon=True).start()
        return self

    def __exit__(self, *exc_info):
        self._stack.close()

    def _answer(self):
        asked = 0
        while self._open:
            if self.device.receive():
                asked += 1
                if asked == 2:
                    self.device.send(b"\xff\x00no\r\n")
                elif asked == 4:
                    self.device.unplug()
                    self.device.plug()
                else:
                    self.device.send(b"%d" % asked)
                    time.sleep(0.03)
                    self.device.send(b".5\r\n")
            time.sleep(0.002)


def scale_app(port):
    app = App("house", adapters=(port,))

    @app.telemetry("scale", interval="600ms")
    async def scale(port: SerialPort) -> dict[str, float]:
        return {"kg": float(await port.request(b"P?\r\n"))}

    return app


def meter_app(bus):
    app = App("house", adapters=(bus,))

    @app.telemetry("meter", interval="200ms")
    async def meter(bus: Modbus) -> dict[str, float]:
        return dict(await bus.read(1, TABLE))

    return app


def inverter_app(http):
    app = App("house", adapters=(http,))

    @app.telemetry("inverter", interval="200ms")
    async def inverter(http: HttpClient) -> dict[str, float]:
        answer = await http.request("GET", "/status?token=geheim-42", headers={"If-None-Match": '"1"'})
        return {"watts": 412.5} if answer.status == 304 else answer.json()

    return app


def air_app(radio):
    app = App("house", adapters=(radio,))

    @app.telemetry("air", interval="1s")
    async def air(radio: BleRadio) -> dict[str, int]:
        async with radio.session(ADDRESS) as device:
            assert device.has("2a6e")
            return {"t": (await device.read("2a6e"))[0], "h": (await device.read("2a6f"))[0]}

    return app


def bins_app(calendars):
    app = App("house", adapters=(calendars,))

    @app.telemetry("bins", interval="5s")  # a busy machine takes seconds for a call, and misses no poll
    async def bins(calendars: CalDav) -> dict[str, str]:
        found = await calendars.events("Waste", days=3000)
        return {"next": found[0].summary, "at": str(found[0].start)}

    return app


def chip_app(bus):
    app = App("house", adapters=(bus,))

    @app.telemetry("chip", interval="200ms")
    async def chip(bus: I2c) -> dict[str, int]:
        await bus.write_register(0x40, 1, b"\x02")
        return {"t": (await bus.read_register(0x40, 0))[0]}

    return app


def flow_app(bus):
    app = App("house", adapters=(bus,))

    @app.telemetry("flow", interval="200ms")
    async def flow(bus: OneWire) -> dict[str, float]:
        (name,) = await bus.thermometers()
        return {"t": await bus.temperature(name)}

    return app


def host_app(programs, script):
    app = App("house", adapters=(programs,))

    @app.telemetry("host", interval="1s", timeout="10s")
    async def host(programs: Programs) -> dict[str, float]:
        return {"t": float(await programs.run("sh", "-c", script, "it's"))}

    return app


def played_as_recorded(tmp_path, app, text, before):
    """Play a session to an app whose device does not exist."""
    session = session_of(text, "a.session")

    with Harness(app, sessions=written(tmp_path, text)) as harness:
        harness.run(session.length)
        assert published(harness.broker) == before

    again, _ = recorded(app, session.length, sessions=written(tmp_path, text))
    whole = contents(session_of(again, ""))
    assert whole[: len(contents(session))] == contents(session)[: len(whole)]
    assert len(whole) >= len(contents(session)) - 3  # the last poll of the recording was cut off


def states(device, count):
    return lambda broker: len(broker.messages(f"house/{device}/state")) >= count


def test_a_serial_device_is_recorded_and_played(tmp_path):
    with Scale() as scale:
        text, before = recorded_live(scale_app(SerialPort(scale.url, timeout="1s")), tmp_path, states("scale", 5))

    assert "ff 00 6e 6f 0d 0a" in text
    assert '"event": "lost"' in text
    played_as_recorded(tmp_path, scale_app(SerialPort("/dev/ttyS9", timeout="1s")), text, before)


@pytest.mark.parametrize("way", WAYS)
def test_modbus_is_recorded_and_played(tmp_path, way):
    memory = {"input": [0x4366, 0x199A], "holding": [0, 3]}
    with ModbusServer(way, {1: memory}) as server:
        text, before = recorded_live(meter_app(Modbus(server.url)), tmp_path, states("meter", 4))
    elsewhere = {"rtu": "/dev/ttyS9", "tcp": "tcp://192.0.2.1", "rtu over tcp": "socket://192.0.2.1:1"}[way]

    played_as_recorded(tmp_path, meter_app(Modbus(elsewhere)), text, before)


def test_a_server_is_recorded_and_played(tmp_path):
    with Web({"/status": Recorded({"watts": 412.5}, headers={"ETag": '"1"'})}) as web:
        web.play("/status", {"watts": 1.5}, Recorded("busy", 503), "<html>log in</html>", {"watts": "garbage"})
        client = HttpClient(web.url, "me", "geheim-43")
        text, before = recorded_live(inverter_app(client), tmp_path, states("inverter", 4))
        assert any("Authorization" in each.headers for each in web.recordings.requests)

    assert '"status": 304' in text
    assert '"Authorization": "***"' in text
    assert "geheim" not in text
    played_as_recorded(tmp_path, inverter_app(HttpClient("http://elsewhere.invalid", "me", "another")), text, before)


def test_a_server_that_breaks_off_is_recorded_and_played(tmp_path):
    def broken(handler):
        handler.send_response_only(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"watts"')
        handler.close_connection = True

    with Web() as web:
        web.fault = broken

        def failed(broker):
            return broker.messages("house/inverter/error")

        text, _ = recorded_live(inverter_app(HttpClient(web.url)), tmp_path, failed)

    assert '"text": "{\\"watts\\""' in text
    with Harness(inverter_app(HttpClient("http://elsewhere.invalid")), sessions=written(tmp_path, text)) as harness:
        harness.run("10ms")
        harness.run(session_of(text, "").length)

        assert "the answer broke off" in harness.errors("inverter")[0]["message"]


def test_a_bluetooth_device_is_recorded_and_played(tmp_path):
    with Air() as air:
        air.place(Scripted(ADDRESS, "sensor", {"181a": {"2a6e": b"\x66\x08", "2a6f": b"\x94\x11"}}))
        radio = BleRadio(find="60s", connect="60s", timeout="30s")
        text, before = recorded_live(air_app(radio), tmp_path, states("air", 2), addresses=True)

    assert ADDRESS not in text
    app = App("house", adapters=(BleRadio(),))

    @app.telemetry("air", interval="1s")
    async def air_of_the_mask(radio: BleRadio) -> dict[str, int]:
        async with radio.session("02:00:00:00:00:01") as device:
            assert device.has("2a6e")
            return {"t": (await device.read("2a6e"))[0], "h": (await device.read("2a6f"))[0]}

    played_as_recorded(tmp_path, app, text, before)


def test_a_calendar_is_recorded_and_played(tmp_path):
    with Radicale() as server:
        server.calendar("waste", "Waste")
        server.add("waste", "paper", "SUMMARY:Paper", "DTSTART;VALUE=DATE:20300101")
        adapter = CalDav(f"http://127.0.0.1:{server.port}/", "ann", "secret", zone="UTC")
        text, before = recorded_live(bins_app(adapter), tmp_path, states("bins", 2))

    assert "secret" not in text
    elsewhere = CalDav("https://elsewhere.invalid/", "ann", "another", zone="UTC")
    with Harness(bins_app(elsewhere), sessions=written(tmp_path, text)) as harness:
        harness.run(session_of(text, "").length)
        assert published(harness.broker) == before


@pytest.mark.parametrize("functions", [I2C, SMBUS])
def test_a_chip_is_recorded_at_smbus2_and_played(tmp_path, monkeypatch, functions):
    chip = I2cRegisters({0: b"\x07"})
    kernel = Kernel(tmp_path / "i2c-1", I2cTwin({0x40: chip}), functions)
    kernel.path.touch()
    kernel.install(monkeypatch)

    def fail_once(broker):
        found = len(broker.messages("house/chip/state"))
        chip.fault = OSError(errno.EREMOTEIO, "x") if found == 2 and not broker.messages("house/chip/error") else None
        return found >= 4

    text, before = recorded_live(chip_app(I2c(kernel.path)), tmp_path, fail_once)

    assert '"errno": 121' in text
    played_as_recorded(tmp_path, chip_app(I2c("/dev/i2c-9")), text, before)


def test_a_thermometer_is_recorded_at_its_files_and_played(tmp_path):
    root = tmp_path / "devices"
    file = root / "28-000005e2fdc3" / "w1_slave"
    file.parent.mkdir(parents=True)

    def change(broker):
        found = len(broker.messages("house/flow/state")), len(broker.messages("house/flow/error"))
        if found[0] >= 2 and not found[1]:
            file.unlink(missing_ok=True)
        else:
            other = tmp_path / "other"
            other.write_text(content_of(found[0] * 0.5))
            other.replace(file)  # never half of it
        return found[0] >= 4

    text, before = recorded_live(flow_app(OneWire(root)), tmp_path, change)

    assert '"errno": 2' in text
    assert "t=500" in text
    played_as_recorded(tmp_path, flow_app(OneWire("/nowhere")), text, before)


def test_a_program_is_recorded_and_played_without_a_process(tmp_path):
    log = tmp_path / "log"
    script = f"echo x >> {log}; case $(wc -l < {log}) in 2) echo broken >&2; exit 3;; 3) sleep 9;; *) echo 1.5;; esac"
    app = host_app(Programs(timeout="1500ms"), script)
    text, before = recorded_live(app, tmp_path, states("host", 3))
    runs = log.read_text()

    assert '"code": 3, "errors": "broken\\n"' in text
    assert '"error": "DeviceTimeout"' in text
    played_as_recorded(tmp_path, host_app(Programs(timeout="1500ms"), script), text, before)
    assert log.read_text() == runs


APP = """
from leadsman import App
from leadsman.adapters.serial import SerialPort
from pydantic import BaseModel


class Settings(BaseModel):
    port: str = "/dev/ttyS9"
    ask: str = "P?"


class Own:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info): ...


app = App("house", settings=Settings, adapters=lambda settings: (SerialPort(settings.port), Own()))


@app.telemetry("scale", interval="200ms")
async def scale(port: SerialPort, settings: Settings) -> dict[str, float]:
    print("printed")
    return {"kg": float(await port.request(settings.ask.encode()))}


@app.telemetry("own", interval="1h")
async def own(own: Own) -> dict[str, float]:
    return {}
"""


class TestCommands:
    @pytest.fixture
    def leadsman(self, tmp_path):
        """Runs a command in a directory with the app."""
        (tmp_path / "house.py").write_text(APP)

        def leadsman(*arguments, after=None, **options):
            process = subprocess.Popen(
                [sys.executable, "-m", "leadsman", *arguments],
                cwd=tmp_path,
                env={**os.environ, "STATE_DIRECTORY": str(tmp_path)},
                stdout=options.get("stdout", subprocess.PIPE),
                stderr=subprocess.PIPE,
                text=True,
            )
            if after is not None:
                after(process)
            return *process.communicate(timeout=60), process.returncode

        return leadsman

    def record(self, leadsman, *arguments, **options):
        with Scale() as scale:
            where = ("--set", f"port={scale.url}", "--mqtt", "mqtt://127.0.0.1:1")
            return leadsman("record", "house:app", *where, *arguments, **options)

    def test_a_session_is_recorded_for_a_time_and_replayed(self, leadsman, tmp_path):
        text, log, code = self.record(leadsman, "--for", "5s")

        assert code == 0, log
        assert "Own is recorded as far as it uses SerialPort" in log
        session = session_of(text, "k.session")
        assert 4.9 < session.length < 15
        assert ("printed" in text, "printed" in log) == (False, True)

        written(tmp_path, text, "k.session")
        shown, log, code = leadsman("replay", "house:app", "k.session")

        assert code == 0, log
        assert '  house/scale/state  {"kg":1.5}\n' in shown
        assert "house/scale/error" in shown
        assert "printed" not in shown

    def test_a_session_ends_with_a_signal(self, leadsman, tmp_path):
        def end_once_it_reads(process):
            assert any("first reading" in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)

        text, log, code = self.record(leadsman, after=end_once_it_reads)

        assert code == 0, log
        assert session_of(text, "k.session").events

    def test_an_app_that_asks_something_else_is_told_the_line(self, leadsman, tmp_path):
        written(tmp_path, self.record(leadsman, "--for", "4s")[0], "k.session")

        shown, log, code = leadsman("replay", "house:app", "k.session", "--set", "ask=Q?")

        assert code == 1
        assert "leadsman: k.session line 4: " in log
        assert '"text": "Q?"}, and the session has {"event": "send", "text": "P?"} next' in log
        assert '"type":"SessionDiffers"' in shown

    def test_a_replay_touches_nothing_real(self, leadsman, tmp_path):
        written(tmp_path, self.record(leadsman, "--for", "4s")[0], "k.session")
        (tmp_path / "house.py").write_text(APP.replace("return {}", "return {'n': len(open('/dev/ttyS9').read())}"))

        _, log, code = leadsman("replay", "house:app", "k.session")

        assert code == 1
        assert "house.py:30: it opens /dev/ttyS9, which is not in the session" in log

    def test_a_disk_that_is_full_is_named(self, leadsman):
        with open("/dev/full", "w") as full:
            _, log, code = self.record(leadsman, "--for", "4s", stdout=full)

        assert code == 1
        assert "the session cannot be written: [Errno 28] No space left on device" in log
        assert "Traceback (most" not in log

    @pytest.mark.parametrize(
        ("arguments", "message", "code"),
        [
            (("record", "house:app", "--hide", "short"), "--hide has 5 characters; write at least 6", 2),
            (("replay", "house:app", "none.session"), "none.session cannot be read: ", 1),
            (("replay", "house:app", "house.py"), "house.py line 1: this is no session; leadsman record APP", 1),
            (("replay", "house:ap", "none.session"), "did you mean 'app'?", 1),
        ],
    )
    def test_what_is_wrong_is_named(self, leadsman, arguments, message, code):
        _, log, ended = leadsman(*arguments)

        assert message in log
        assert ended == code
        assert "Traceback (most" not in log

    def test_a_hidden_text_is_in_no_session(self, leadsman, tmp_path):
        text, _, _ = self.record(leadsman, "--for", "4s", "--hide", "ttyDevice", "--mask")

        assert json.loads(text.splitlines()[0])["session"] == 1
        assert "ttyDevice" not in text
        assert read_session(written(tmp_path, text)).events
