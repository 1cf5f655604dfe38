"""Sessions of apps with twins: recorded in virtual time, and played in it."""

import asyncio
import errno
import functools
import io
import itertools
import json
import re
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, get_args

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from typing_extensions import TypedDict

from leadsman import App, Sensor
from leadsman.adapters.ble import BleRadio
from leadsman.adapters.caldav import CalDav
from leadsman.adapters.http import HttpClient
from leadsman.adapters.i2c import I2c
from leadsman.adapters.modbus import Modbus, Register, Table
from leadsman.adapters.onewire import OneWire
from leadsman.adapters.program import Finished, Programs
from leadsman.adapters.serial import SerialPort
from leadsman.core.adapters.resource import ResourceKind
from leadsman.core.adapters.wires import WIRES
from leadsman.errors import DeviceTimeout, PermanentError, SessionDiffers, SessionError
from leadsman.extensions.sessions.mask import Mask
from leadsman.extensions.sessions.recorder import MODULES
from leadsman.extensions.sessions.session import read_session, session_of
from leadsman.testing import (
    BleTwin,
    CalDavTwin,
    Harness,
    HttpTwin,
    I2cRegisters,
    I2cTwin,
    ModbusTwin,
    ModbusUnit,
    OneWireTwin,
    Recorded,
    SerialTwin,
    TwinDevice,
)
from leadsman_rigs.examples import examples
from leadsman_rigs.sessions import Recording, published, recorded, written

ADDRESS = "F0:11:22:33:44:55"
FLOW = "28-000005e2fdc3"
TABLE = Table({"volts": Register(0, "float32", kind="input"), "mode": Register(1)})


class Kg(TypedDict):
    kg: Annotated[float, Sensor("kg", device_class="weight")]


def serial_app(adapter, ask=b"P?\r\n"):
    app = App("house", adapters=(adapter,))

    @app.telemetry("scale", interval="10s")
    async def scale(port: SerialPort) -> Kg:
        return {"kg": float(await port.request(ask))}

    return app


def weights():
    """A scale that once says nothing, and once garbage."""
    answers = iter([b"1.5\r\n", b"", b"no\r\n", *(b"%d.0\r\n" % n for n in range(10_000))])
    return SerialTwin(lambda data: next(answers))


def talking():
    count = iter(range(10_000))
    return SerialTwin(says=lambda: (7.0, b"%d\r\n" % next(count)))


def talking_app(adapter):
    app = App("house", adapters=(adapter,))

    @app.source("scale")
    async def scale(port: SerialPort):
        async for message in port.messages("1m"):
            yield {"kg": float(message)}

    return app


def modbus_app(adapter):
    app = App("house", adapters=(adapter,))

    @app.telemetry("meter", interval="10s")
    async def meter(bus: Modbus) -> dict[str, float]:
        return dict(await bus.read(1, TABLE))

    return app


def modbus_twin():
    return ModbusTwin({1: ModbusUnit.of(TABLE, {"volts": 230.5, "mode": 3})})


def http_app(adapter, devices=("a",)):
    app = App("house", adapters=(adapter,))

    def add(name):
        async def read(http: HttpClient) -> dict[str, float]:
            await http.request("POST", "/log", json={"from": name})
            return await http.get_json(f"/{name}?key=secret")

        app.add_telemetry(name, read, interval="10s")

    for each in devices:
        add(each)
    return app


def http_twin():
    twin = HttpTwin({"/a": {"t": 1.0}, "/b": Recorded({"t": 2.0}, headers={"ETag": '"x"'}), "/log": ""})
    twin.play("/a", {"t": 0.5}, Recorded("", 503), Recorded("", 503, {"Retry-After": "3"}), "no json")
    return twin


def ble_app(adapter):
    app = App("house", adapters=(adapter,))

    @app.telemetry("air", interval="10s")
    async def air(radio: BleRadio) -> dict[str, int]:
        async with radio.session(ADDRESS) as device:
            await device.write("2a6f", b"\x01")
            more = await device.next("2a6e") if device.has("2a6e") else b""
            return {"t": (await device.read("2a6f"))[0], "n": more[0]}

    return app


def ble_twin():
    count = itertools.count()
    return BleTwin(
        TwinDevice(
            ADDRESS,
            {"2a6f": lambda: bytes((next(count) % 256,)), "2a6e": b""},
            name="sensor",
            manufacturer={76: b"\x02\x15"},
            notifies={"2a6e": b"\x07"},
        )
    )


def calendar_app(adapter, name="Waste"):
    app = App("house", adapters=(adapter,))

    @app.telemetry("bins", interval="1h")
    async def bins(calendars: CalDav) -> dict[str, str]:
        return {"next": (await calendars.events(name, days=3000))[0].summary}

    return app


def calendar_twin():
    event = ["UID:1", "DTSTAMP:20260101T000000Z", "DTSTART;VALUE=DATE:20300101", "SUMMARY:Paper"]
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", *event, "END:VEVENT", "END:VCALENDAR", ""]
    return CalDavTwin({"Waste": ["\r\n".join(lines)]}, zone="UTC")


AIR = ["F0:11:22:33:44:66", "F0:11:22:33:44:77", "F0:11:22:33:44:88"]


def air_app(adapter):
    """Three devices that are due at the same moment: the second is known from the scan for the first."""
    app = App("house", adapters=(adapter,))

    def add(number, address):
        async def air(radio: BleRadio) -> dict[str, int]:
            return {"t": (await radio.read(address, "2a6f"))[0][0]}

        app.add_telemetry(f"air-{number}", air, interval="10s")

    for number, address in enumerate(AIR):
        add(number, address)
    return app


def air_twin():
    return BleTwin(*(TwinDevice(address, {"2a6f": b"\x01"}) for address in AIR))


def i2c_app(adapter, command=b"\x02"):
    app = App("house", adapters=(adapter,))

    def add(name, address):
        async def read(bus: I2c) -> dict[str, int]:
            await bus.write_register(address, 1, command)
            return {"t": (await bus.read_register(address, 0))[0]}

        app.add_telemetry(name, read, interval="10s")

    add("inside", 0x40)
    add("outside", 0x41)
    return app


def i2c_twin():
    """A chip that counts, fails, is missing, and has a driver of the kernel; and one that always answers."""
    chip, count = I2cRegisters(), itertools.count()

    def failing(data, count_):
        now = next(count)
        chip.put(0, bytes((now % 256, 0)))
        if now in (4, 9, 12):
            raise OSError(*{4: (errno.EADDRINUSE, "x"), 9: (errno.EREMOTEIO, "x"), 12: (errno.EBUSY, "x")}[now])
        return chip(data, count_)

    return I2cTwin({0x40: failing, 0x41: I2cRegisters({0: b"\x07"})})


def onewire_app(adapter):
    app = App("house", adapters=(adapter,))

    @app.telemetry("flow", interval="10s")
    async def flow(bus: OneWire) -> dict[str, float]:
        return {"t": await bus.temperature(FLOW)}

    @app.telemetry("there", interval="15s")
    async def there(bus: OneWire) -> dict[str, int]:
        return {"n": len(await bus.thermometers())}

    return app


def onewire_twin():
    """A thermometer that fails in each way, and one that comes and goes."""
    count = itertools.count(20)
    fails = {
        23: OSError(errno.EIO, "x"),
        25: FileNotFoundError(errno.ENOENT, "x"),
        26: "",
        27: "a3 01",
        28: PermissionError(errno.EACCES, "x"),
    }

    class Values(dict):
        def __getitem__(self, name):
            now = next(count)
            return fails.get(now, float(now))

    twin = OneWireTwin()
    twin.measures = Values({FLOW: 0, "10-000005e2fdc4": 0})
    return twin


def program_app(adapter, what="measure temp"):
    app = App("house", adapters=(adapter,))

    @app.telemetry("chip", interval="10s")
    async def chip(programs: Programs) -> dict[str, float]:
        return {"t": float(await programs.run("vcgencmd", what))}

    @app.telemetry("disk", interval="10s")
    async def disk(programs: Programs) -> dict[str, str]:
        return {"text": await programs.run("df", "/")}

    return app


class Machine(Programs):
    """Programs that say numbers, garbage, what is no UTF-8, and that fail in each way."""

    def __init__(self):
        super().__init__()
        self.count = itertools.count()

    async def _run(self, program, arguments):
        await asyncio.sleep(0.02 if program == "df" else 0.01)  # what ends at one moment has no order
        if program == "df":
            return Finished(0, b"9%\n", b"")
        fails = {2: PermanentError("vcgencmd cannot be started"), 3: DeviceTimeout("vcgencmd did not end")}
        ends = {4: Finished(0, b"\xff\x00", b""), 5: Finished(1, b"", b"no \xff chip\n"), 6: Finished(-9, b"", b"")}
        now = next(self.count)
        if now in fails:
            await asyncio.sleep(2)
            raise fails[now]
        return ends.get(now, Finished(0, b"%d.5\n" % now, b"a warning"))


WAYS = {
    "serial": (serial_app, weights, lambda: SerialPort("/dev/ttyS9"), "305s"),
    "talking": (talking_app, talking, lambda: SerialPort("/dev/ttyS9"), "305s"),
    "modbus": (modbus_app, modbus_twin, lambda: Modbus("/dev/ttyS9"), "125s"),
    "http": (http_app, http_twin, lambda: HttpClient("http://inverter.invalid"), "125s"),
    "bluetooth": (ble_app, ble_twin, BleRadio, "125s"),
    "calendars": (calendar_app, calendar_twin, lambda: CalDav("https://dav.invalid/", zone="UTC"), "250m"),
    "radios": (air_app, air_twin, BleRadio, "125s"),
    "i2c": (i2c_app, i2c_twin, I2c, "125s"),
    "onewire": (onewire_app, onewire_twin, OneWire, "125s"),
    "program": (program_app, Machine, Programs, "125s"),
}


@functools.cache
def session(way):
    """The lines of a session of a minute."""
    app_with, twin, _, _ = WAYS[way]
    return recorded(app_with(twin()), "1m")[0].splitlines()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("plays", ["the adapter", "its twin"])
def test_what_was_recorded_is_played_byte_for_byte(tmp_path, way, plays):
    app_with, twin, adapter, duration = WAYS[way]
    text, before = recorded(app_with(twin()), duration)
    played = adapter() if plays == "the adapter" else twin()

    again, after = recorded(app_with(played), duration, sessions=written(tmp_path, text))

    assert len(before) > 4
    assert after == before
    name = session_of(text, "").events[0].wire
    assert again.replace(session_of(again, "").events[0].wire, name) == text


@pytest.mark.parametrize("way", WAYS)
def test_a_harness_plays_a_file_and_needs_no_device(tmp_path, way):
    app_with, twin, adapter, duration = WAYS[way]
    text, before = recorded(app_with(twin()), duration)

    with Harness(app_with(adapter()), sessions=written(tmp_path, text)) as harness:
        harness.run(duration)

        assert published(harness.broker) == before


def test_two_sessions_begin_together(tmp_path):
    one, _ = recorded(serial_app(weights()), "1m")
    other, _ = recorded(http_app(http_twin()), "1m")
    app = http_app(HttpClient("http://inverter.invalid"))
    app.add_telemetry("more", lambda: None, interval="1m")
    files = [written(tmp_path, one, "one.session"), written(tmp_path, other, "other.session")]

    with Harness(app, sessions=files) as harness:
        harness.run("30s")

        assert len(harness.states("a")) > 1


def test_devices_that_are_due_at_the_same_moment_may_swap_places(tmp_path):
    text, before = recorded(http_app(http_twin(), ("a", "b")), "2m")
    app = http_app(HttpClient("http://inverter.invalid"), ("b", "a"))

    with Harness(app, sessions=written(tmp_path, text)) as harness:
        harness.run("2m")

        assert sorted(published(harness.broker)) == sorted(before)


def difference(tmp_path, text, app):
    """What is raised where an app differs from a session."""
    with Harness(app, sessions=written(tmp_path, text)) as harness:
        with pytest.raises(SessionDiffers) as found:
            harness.run("1m")
        return str(found.value)


def test_the_first_difference_is_named_with_its_line_and_both_requests(tmp_path):
    text, _ = recorded(serial_app(weights()), "2m")

    found = difference(tmp_path, text, serial_app(SerialPort("/dev/ttyS9"), ask=b"Q?\r\n"))

    assert "house.session line 4: 0s after the start, the app asks " in found
    assert r'{"event": "send", "text": "Q?\r\n"}, and the session has {"event": "send", "text": "P?\r\n"} next' in found


def test_a_long_value_of_a_request_is_shortened_inside_its_quotes(tmp_path):
    text, _ = recorded(calendar_app(calendar_twin()), "1m")
    elsewhere = CalDav("https://elsewhere.invalid/", "ann", "secret", zone="UTC")

    found = difference(tmp_path, text, calendar_app(elsewhere, "x" * 300))

    assert '{"event": "changes", "calendar": "' + "x" * 60 + '…", ' in found
    assert 'and the session has {"event": "changes", "calendar": "Waste", ' in found


def test_the_difference_of_a_chip_is_named_with_its_address(tmp_path):
    text, _ = recorded(i2c_app(i2c_twin()), "1m")

    found = difference(tmp_path, text, i2c_app(I2c(), command=b"\x03"))

    asked = [f'{{"event": "transfer", "address": "0x40", "count": 0, "hex": "01 0{n}"}}' for n in (3, 2)]
    assert f"0s after the start, the app asks {asked[0]}, and the session has {asked[1]} next" in found


def test_a_session_with_masked_thermometers_is_played_with_the_masks(tmp_path):
    text, before = recorded(onewire_app(onewire_twin()), "2m", mask=Mask(addresses=True))
    assert "5e2fdc" not in text

    app = App("house", adapters=(OneWire(),))

    @app.telemetry("flow", interval="10s")
    async def flow(bus: OneWire) -> dict[str, float]:
        return {"t": await bus.temperature("28-000000000001")}

    with Harness(app, sessions=written(tmp_path, text)) as harness:
        harness.run("2m")

        assert harness.states("flow") == [json.loads(each) for topic, each in before if topic == "house/flow/state"]
    assert "'event': 'read', 'thermometer': '28-000005e2fdc3'".replace("'", '"') in difference(
        tmp_path, text, onewire_app(OneWire())
    )


def test_a_command_that_the_session_does_not_have_is_named(tmp_path):
    text, _ = recorded(program_app(Machine()), "1m")

    found = difference(tmp_path, text, program_app(Programs(), what="measure volts"))

    asked, there = ({"event": "run", "command": f"vcgencmd 'measure {what}'"} for what in ("volts", "temp"))
    assert f"asks {json.dumps(asked)}, and the session has this nowhere, and {json.dumps(there)} next" in found


@pytest.mark.parametrize(
    ("path", "interval", "message"),
    [
        ("/c", "10s", 'asks .*"url": "/c".*, and the session has this nowhere, and .*"url": "/log".* next; let it ask'),
        ("/a?key=another", "1s", "asks .*, and the session has this not once more; "),
    ],
)
def test_a_request_that_the_session_does_not_have_is_named(tmp_path, path, interval, message):
    text, _ = recorded(http_app(http_twin()), "2m")
    app = App("house", adapters=(HttpClient("http://inverter.invalid"),))

    async def read(http: HttpClient) -> dict[str, float]:
        return await http.get_json(path)

    app.add_telemetry("c", read, interval=interval)

    assert re.search(message, difference(tmp_path, text, app))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_session_that_was_edited_is_refused_or_played_and_never_a_bug(way, data):
    app_with, _, adapter, _ = WAYS[way]
    lines = [*session(way)]
    for _ in range(data.draw(st.integers(1, 3))):
        at, other = (data.draw(st.integers(1, len(lines) - 2)) for _ in range(2))
        match data.draw(st.sampled_from(["remove", "copy", "mix"])):
            case "remove":
                del lines[at : at + data.draw(st.integers(1, 3))]
            case "copy":
                lines.insert(at, lines[other])
            case "mix":
                lines[at] = json.dumps(json.loads(lines[at]) | {"event": json.loads(lines[other])["event"]})
        assume(len(lines) > 3)
    with TemporaryDirectory() as directory:
        file = written(Path(directory), "\n".join(lines))
        try:
            read_session(file)
        except SessionError:
            reject()

        with Harness(app_with(adapter()), sessions=file) as harness:
            with suppress(SessionDiffers):
                harness.run("1m")
            kinds = {json.loads(each.payload).get("type") for each in harness.broker.log if "/error" in each.topic}
            assert not kinds & {"KeyError", "AttributeError", "TypeError", "IndexError", "AssertionError"}


@pytest.mark.parametrize("recorded_with", ["", "reopening"])
def test_a_port_may_be_opened_at_other_moments_than_it_was(tmp_path, recorded_with):
    def app_with(adapter, reopening):
        app = serial_app(adapter)

        async def reopen(port: SerialPort) -> None:
            if reopening:
                await port.close()

        app.add_telemetry("reopen", reopen, interval="25s")
        return app

    text, before = recorded(app_with(weights(), recorded_with), "2m")

    with Harness(app_with(SerialPort("/dev/ttyS9"), not recorded_with), sessions=written(tmp_path, text)) as harness:
        harness.run("2m")

        assert published(harness.broker) == before


def test_a_bus_is_played_without_its_openings(tmp_path):
    text, before = recorded(i2c_app(i2c_twin()), "2m")
    opens = {each.n for each in session_of(text, "").events if each.what == "open"}
    lines = [each for each in text.splitlines() if json.loads(each).get("n") not in opens]
    assert len(opens) > 3

    with Harness(i2c_app(I2c()), sessions=written(tmp_path, "\n".join(lines))) as harness:
        harness.run("2m")

        assert published(harness.broker) == before


CHIP = """\
{"session": 1, "app": "house", "began": "2026-11-27T20:40:00.000Z"}
{"at": 0, "wire": "i2c /dev/i2c-1", "n": 1, "event": "transfer", "text": "", "address": "0x40", "count": 1}
{"at": 1.5, "n": 1, "event": "received", "hex": "01"}
{"at": 10, "wire": "i2c /dev/i2c-1", "n": 2, "event": "transfer", "text": "", "address": "0x40", "count": 1}
{"at": 12.5, "n": 2, "event": "received", "hex": "02"}
{"at": 20, "wire": "i2c /dev/i2c-1", "n": 3, "event": "transfer", "text": "", "address": "0x40", "count": 1}
{"at": 20.5, "n": 3, "event": "received", "hex": "03"}
{"at": 25, "event": "end"}
"""


def test_what_blocked_a_thread_then_takes_as_long_in_virtual_time(tmp_path):
    app = App("house", adapters=(I2c(timeout="2s"),))

    @app.telemetry("chip", interval="10s", retry=0)
    async def chip(bus: I2c) -> dict[str, int]:
        return {"t": (await bus.transfer(0x40, count=1))[0]}

    with Harness(app, sessions=written(tmp_path, CHIP)) as harness:
        harness.run("25s")

        found = [(each.at, json.loads(each.payload)) for each in harness.broker.log if each.topic == "house/chip/state"]
        assert found == [(1.5, {"t": 1}), (20.5, {"t": 3})]
        assert "/dev/i2c-1 took longer than 2s" in harness.errors("chip")[0]["message"]


def test_a_wire_that_was_not_recorded_is_named_with_those_that_were(tmp_path):
    text, _ = recorded(serial_app(weights()), "1m")

    found = difference(tmp_path, text, http_app(HttpClient("http://inverter.invalid")))

    assert "nothing of 'http http://inverter.invalid', but of 'serial twin'" in found


def test_a_client_that_asks_nothing_needs_no_session(tmp_path):
    text, _ = recorded(serial_app(weights()), "1m")
    app = App("house", adapters=(SerialPort("/dev/ttyS9"), HttpClient("http://inverter.invalid")))

    @app.telemetry("scale", interval="10s")
    async def scale(port: SerialPort) -> Kg:
        return {"kg": float(await port.request(b"P?\r\n"))}

    with Harness(app, sessions=written(tmp_path, text)) as harness:
        harness.run("5s")

        assert harness.states("scale") == [{"kg": 1.5}]


def test_behind_its_end_a_session_says_that_it_has_ended_and_nothing_differs(tmp_path):
    text, before = recorded(serial_app(weights()), "1m")

    with Harness(serial_app(SerialPort("/dev/ttyS9")), sessions=written(tmp_path, text)) as harness:
        harness.run("1m")
        assert published(harness.broker) == before
        harness.run("1m")

        assert "ends after 1m; record a longer one" in harness.errors("scale")[-1]["message"]


def test_the_time_of_the_app_is_that_of_the_recording(tmp_path):
    text, _ = recorded(serial_app(weights()), "1m")
    text = text.replace("2026-01-01T00:00:00.000Z", "2024-02-29T12:00:00.000Z")

    with Harness(serial_app(SerialPort("/dev/ttyS9")), sessions=written(tmp_path, text)) as harness:
        assert harness.loop.wall_time() == 1709208000


def test_a_file_that_is_cut_ends_a_test_before_it_begins(tmp_path):
    text, _ = recorded(serial_app(weights()), "1m")

    with pytest.raises(SessionError, match="the end is missing"):
        Harness(serial_app(SerialPort("/dev/ttyS9")), sessions=written(tmp_path, text[: text.rindex("{")]))


def test_no_secret_of_a_request_is_in_a_session():
    answer = Recorded({"access_token": "given"}, headers={"Set-Cookie": "id=1", "Location": "/b?code=1&token=later"})
    app = App("house", adapters=(HttpTwin({"/a": answer}, token="geheim-token"),))

    @app.telemetry("a", interval="10s")
    async def read(http: HttpClient) -> dict[str, float]:
        await http.request(
            "POST", "/a?key=abc&x=1", json={"t": "geheim-token", "password": "pw"}, headers={"X-Pass": "ab"}
        )
        return {"t": 1.0}

    text, _ = recorded(app, "5s")

    assert "/a?key=***&x=1" in text
    assert text.count('"***"') + text.count('\\"***\\"') >= 4
    for secret in ("geheim", "abc", '"ab"', "id=1", "given", "later", '"pw'):
        assert secret not in text


def test_a_day_of_a_sensor_every_25_minutes_has_at_most_100_kb():
    app = App("house", adapters=(ble_twin(),))

    @app.telemetry("air", interval="25m")
    async def air(radio: BleRadio) -> dict[str, int]:
        values = await radio.read(ADDRESS, *["2a6f"] * 5)
        return {"t": values[0][0]}

    text, before = recorded(app, "24h")

    assert len(before) == 59
    assert len(text) <= 100_000


def test_an_app_that_is_not_recorded_imports_nothing_of_it():
    code = (
        "import sys, leadsman.testing, leadsman.adapters.ble, leadsman.adapters.http, leadsman.adapters.modbus\n"
        "sys.exit(any(each.startswith('leadsman.extensions.sessions') for each in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_session_that_grows_too_large_ends_and_can_be_played(tmp_path):
    recording = Recording(largest=3000)

    token = WIRES.set(recording)
    try:
        with Harness(serial_app(weights())) as harness:
            recording.harness = harness
            harness.run("5m")
    finally:
        WIRES.reset(token)

    text = recording.file.getvalue()
    assert len(text) <= 3000
    assert recording.recorder.fault == "the session has reached its largest size"
    assert session_of(text, "").length > 0
    assert len(harness.states("scale")) > 20


def test_a_disk_that_is_full_ends_the_recording_and_not_the_app():
    class Full(io.StringIO):
        def write(self, text):
            if self.tell() > 500:
                raise OSError(28, "No space left on device")
            return super().write(text)

    recording = Recording(file=Full())
    token = WIRES.set(recording)
    try:
        with Harness(serial_app(weights())) as harness:
            recording.harness = harness
            harness.run("5m")
    finally:
        WIRES.reset(token)

    assert "No space left" in recording.recorder.fault
    assert len(harness.states("scale")) > 20


def test_each_kind_of_wire_that_an_adapter_asks_for_is_recorded_and_played():
    kinds = {*get_args(ResourceKind), "program"}

    assert {*MODULES} == kinds == {way for way in WAYS if way in kinds}
    for kind, module in MODULES.items():
        assert callable(import_module(module).RECORDED[kind])
        assert callable(import_module(module).PLAYED[kind])
