"""Real serial libraries on real pseudo-terminals."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import serial
from serial.rfc2217 import PortManager

from leadsman import App, CircuitBreaker, FixedBackoff
from leadsman.adapters.modbus import Modbus
from leadsman.adapters.modbus.framing import ModbusRtuFramer
from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.framing import FixedFramer, LengthPrefixedFramer
from leadsman.adapters.serial.metering import MBusFramer
from leadsman.adapters.serial.optolink import Optolink
from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, InvalidType, InvalidValue
from leadsman.testing import Boiler, ModbusUnit, PtyDevice, SerialTwin, garbage
from leadsman_rigs.watched import on


def on_port(url, scenario, **options):
    """Run `scenario(port)` with the port, and see that the loop was never blocked."""
    return on(SerialPort(url, 115_200, **{"timeout": 30.0, **options}), scenario, longest_block=0.25)


def echo(device, reply=lambda request: request):
    """Answer requests in a thread until the device is unplugged."""

    def run():
        while device._master is not None:
            if request := device.receive():
                try:
                    device.send(reply(request))
                except OSError:
                    return
            time.sleep(0.002)

    threading.Thread(target=run, daemon=True).start()


async def arrived(port, messages):
    """Wait until so many messages are unread."""
    async with asyncio.timeout(60):
        while len(port._connection.unread) < messages:
            await asyncio.sleep(0.005)


def test_lines_are_read_in_order(pty_device):
    async def scenario(port):
        await port.probe()
        pty_device.send(b"1\n2\n3\n")
        return [await port.read() for _ in range(3)]

    assert on_port(pty_device.path, scenario) == [b"1", b"2", b"3"]


def test_latest_leaves_the_older_ones_out(pty_device):
    async def scenario(port):
        await port.probe()
        pty_device.send(b"1\n2\n3\n")
        await arrived(port, 3)
        return await port.latest()

    assert on_port(pty_device.path, scenario) == b"3"


def test_a_request_gets_its_reply_and_not_what_came_before(pty_device):
    async def scenario(port):
        await port.probe()
        pty_device.send(b"stale line\nstale beginning")
        await arrived(port, 1)
        echo(pty_device)
        return await port.request(b"fresh\n")

    assert on_port(pty_device.path, scenario) == b"fresh"


def test_requests_of_several_handlers_take_turns(pty_device):
    async def scenario(port):
        echo(pty_device)
        return await asyncio.gather(*(port.request(b"%d\n" % number) for number in range(20)))

    assert on_port(pty_device.path, scenario) == [b"%d" % number for number in range(20)]


def test_binary_messages_are_framed(pty_device):
    async def scenario(port):
        echo(pty_device, lambda request: b"\x06\x41\x02ab\xc7")
        return await port.request(b"\x41\x00\x00")

    framer = LengthPrefixedFramer(b"\x41", extra=1)
    assert on_port(pty_device.path, scenario, framer=framer) == b"\x41\x02ab\xc7"


def test_what_waits_in_the_kernel_before_a_request_is_no_answer(pty_device):
    async def scenario(port):
        await port.probe()
        device = port._connection._transport.serial
        for number in range(20):
            pty_device.send(b"stale line\n")
            while device.in_waiting < 11:  # without a turn of the loop, which would take them
                time.sleep(0.001)
            if number == 0:
                echo(pty_device)
            assert await port.request(b"%d\n" % number) == b"%d" % number

    on_port(pty_device.path, scenario)


def test_an_answer_behind_noise_that_looks_like_a_longer_one_is_found_when_the_line_is_quiet(pty_device):
    answer = bytes.fromhex("010404436680006fdf")

    async def scenario(port):
        await port.probe()
        pty_device.send(b"\x01\x03\x50" + answer)
        return await port.read()

    assert on_port(pty_device.path, scenario, framer=ModbusRtuFramer()) == answer[:-2]


@pytest.mark.parametrize("noise", [b"", b"\0", b"\xff\0"])
def test_a_modbus_device_behind_a_converter_that_hears_itself_is_read_and_written(pty_device, noise):
    unit = ModbusUnit({"input": {0: 230}, "holding": {7: 0}})
    framer = ModbusRtuFramer()

    def answered(request):
        return noise + request + noise + framer.wrap(unit.answer(request[1:-2]), 1)

    async def read():
        async with Modbus(pty_device.path, 115_200, timeout="30s", echo=True) as line:
            assert await line.input_registers(1, 0) == b"\x00\xe6"
            await line.write_registers(1, 7, b"\x00\x05")
            return await line.holding_registers(1, 7)

    echo(pty_device, answered)
    assert asyncio.run(read()) == b"\x00\x05"


def test_a_request_on_the_m_bus_that_comes_back_is_no_answer(pty_device):
    content = bytes.fromhex("0805727856341224400107550000000413e5100000")
    frame = bytes((0x68, len(content), len(content), 0x68)) + content + bytes((sum(content) & 0xFF, 0x16))

    async def scenario(port):
        echo(pty_device, lambda request: request + (b"\xe5" if request[1] == 0x40 else frame))
        return await port.request(bytes.fromhex("1040054516")), await port.request(bytes.fromhex("107b058016"))

    assert on_port(pty_device.path, scenario, framer=MBusFramer()) == (b"\xe5", content)


def test_silence_is_a_timeout(pty_device):
    async def scenario(port):
        before = time.monotonic()
        with pytest.raises(DeviceTimeout, match="no message from .* within 200ms$"):
            await port.read("200ms")
        return time.monotonic() - before

    assert 0.15 < on_port(pty_device.path, scenario) < 5


def test_noise_without_a_message_is_a_timeout_that_hints_at_the_baud_rate(pty_device):
    async def scenario(port):
        await port.probe()
        pty_device.send(b"\xff" * 3000)
        with pytest.raises(
            DeviceTimeout, match="3000 bytes arrived, but no complete message; check the baud rate and the framer"
        ):
            await port.read("1s")

    on_port(pty_device.path, scenario)


def test_a_megabyte_of_garbage_is_survived_and_the_next_line_read(pty_device):
    async def scenario(port):
        await port.probe()

        def noise():
            pty_device.send(garbage(1_000_000).replace(b"\n", b"x") + b"\n21.5\n", timeout=30)

        threading.Thread(target=noise, daemon=True).start()
        line = await port.read(30)
        assert port.discarded >= 1_000_000
        return line

    assert on_port(pty_device.path, scenario) == b"21.5"


def test_an_unplugged_port_is_noticed_at_once_and_read_again_after_it_is_back(pty_device):
    async def scenario(port):
        await port.probe()
        asyncio.get_running_loop().call_later(0.1, pty_device.unplug)
        before = time.monotonic()
        with pytest.raises(DeviceUnavailable, match="went away"):
            await port.read(60)
        noticed = time.monotonic() - before
        with pytest.raises(DeviceUnavailable, match="the port does not exist; is the device plugged in"):
            await port.read(5)
        pty_device.plug()
        await port.probe()
        pty_device.send(b"back\n")
        return noticed, await port.read()

    noticed, line = on_port(pty_device.path, scenario)
    assert line == b"back"
    assert noticed < 10


@pytest.mark.parametrize("unsent", [b"", b"x" * 200_000], ids=["nothing unsent", "bytes unsent"])
def test_closing_at_the_moment_of_an_unplug_is_quiet_and_closes_the_port(pty_device, caplog, unsent):
    """However many turns of the loop lie between the two, each of which may have noticed it or not."""

    async def scenario(port):
        faults = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        opened = len(os.listdir("/proc/self/fd"))
        for turns in [0, 1, 2, 3, 4] * 10:
            pty_device.plug()
            await port.probe()
            connection = port._connection
            if unsent:
                await port.write(unsent)
            await asyncio.sleep(0)
            pty_device.unplug()
            for _ in range(turns):
                await asyncio.sleep(0)
            await port.close()
            assert connection.lost is not None
        return len(os.listdir("/proc/self/fd")) - opened, faults

    leaked, faults = on_port(pty_device.path, scenario)

    assert leaked <= 0  # that of the pty is closed at the end
    assert not faults
    assert not caplog.records


def test_a_port_has_one_user_at_a_time(pty_device):
    async def scenario(port):
        await port.probe()
        async with SerialPort(pty_device.path) as second:
            with pytest.raises(DeviceUnavailable, match="another program has it open"):
                await second.probe()
        await port.close()
        async with SerialPort(pty_device.path) as third:
            await third.probe()

    on_port(pty_device.path, scenario)


def test_a_device_that_takes_no_bytes_blocks_neither_the_loop_nor_the_close(pty_device):
    async def scenario(port):
        with pytest.raises(DeviceTimeout):
            await port.request(b"x" * 200_000, "300ms")
        before = time.monotonic()
        await port.close()
        return time.monotonic() - before

    assert on_port(pty_device.path, scenario) < 10


def test_opening_that_hangs_times_out_off_the_loop(monkeypatch, tmp_path):
    from leadsman.adapters.serial import port as module

    closed = []

    class Late:
        def close(self):
            closed.append(True)

    def slow(url, options, lines):
        time.sleep(0.5)
        return Late()

    monkeypatch.setattr(module, "open_device", slow)
    monkeypatch.setattr(module, "OPEN_TIMEOUT", 0.1)

    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="did not open within"):
            await port.probe()
        async with asyncio.timeout(60):
            while not closed:
                await asyncio.sleep(0.01)

    on_port(str(tmp_path / "tty"), scenario)
    assert closed == [True]


def test_an_attempt_to_open_that_never_ends_does_not_stand_in_the_way_of_the_next(monkeypatch, pty_device):
    from leadsman.adapters.serial import port as module

    release, attempts, really_open = threading.Event(), [], module.open_device

    def wedged_once(url, options, lines):
        attempts.append(url)
        if len(attempts) == 1:
            release.wait()
        return really_open(url, options, lines)

    monkeypatch.setattr(module, "open_device", wedged_once)
    monkeypatch.setattr(module, "OPEN_TIMEOUT", 0.2)

    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="did not open within"):
            await port.probe()
        monkeypatch.setattr(module, "OPEN_TIMEOUT", 30.0)
        await port.probe()
        pty_device.send(b"21.5\n")
        return await port.read()

    assert on_port(pty_device.path, scenario) == b"21.5"
    release.set()


def test_a_network_gateway_is_a_port_too():
    async def scenario():
        async def serve(reader, writer):
            try:
                while data := await reader.read(100):
                    writer.write(data.upper())
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        number = server.sockets[0].getsockname()[1]
        async with server, SerialPort(f"socket://127.0.0.1:{number}") as port:
            return await port.request(b"hello\n")

    assert asyncio.run(scenario()) == b"HELLO"


def test_a_gateway_that_does_not_answer_times_out_without_blocking_the_loop(monkeypatch):
    from leadsman.adapters.serial import port as module

    monkeypatch.setattr(module, "OPEN_TIMEOUT", 0.5)
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())

        async def scenario(port):
            with pytest.raises(DeviceUnavailable, match="did not open within"):
                await port.probe()

        on_port(f"socket://127.0.0.1:{hole.getsockname()[1]}", scenario)
        for filler in fillers:
            filler.close()


class Gateway:
    """A gateway that speaks RFC 2217, over pyserial's own server side; the device behind it echoes."""

    def __enter__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"rfc2217://127.0.0.1:{self.server.getsockname()[1]}"
        self.settings, self.connection = None, None
        threading.Thread(target=self.run, daemon=True).start()
        return self

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                self.connection, _ = self.server.accept()
                with self.connection as connection, serial.serial_for_url("loop://", timeout=0.05) as device:
                    self.serve(connection, device)

    def serve(self, connection, device):
        manager = PortManager(device, Locked(connection))

        def forward():
            with contextlib.suppress(OSError, serial.SerialException):
                while True:
                    if data := device.read(device.in_waiting or 1):
                        connection.sendall(b"".join(manager.escape(data)))

        threading.Thread(target=forward, daemon=True).start()
        while data := connection.recv(1024):
            device.write(b"".join(manager.filter(data)))
            self.settings = device.baudrate, device.parity

    def cut(self):
        self.connection.shutdown(socket.SHUT_RDWR)

    def __exit__(self, *exc_info):
        self.server.close()


class Locked:
    def __init__(self, connection):
        self.connection = connection

    def write(self, data):
        self.connection.sendall(data)


@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")  # pyserial's client
def test_a_gateway_that_speaks_rfc_2217_is_a_port_too_and_takes_its_settings():
    async def scenario(port):
        assert await port.request(b"hello\xff\n") == b"hello\xff"
        assert gateway.settings == (115_200, "E")
        reading = asyncio.create_task(port.read("30s"))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(gateway.cut)
        with pytest.raises(DeviceUnavailable, match="went away"):
            await reading
        assert await port.request(b"back\n") == b"back"

    with Gateway() as gateway:
        on_port(gateway.url, scenario, parity="E")


async def first(messages, count):
    async with contextlib.aclosing(messages):
        for _ in range(count):
            yield await anext(messages)


@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")
def test_a_gateway_that_does_not_speak_rfc_2217_is_a_named_error():
    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="cannot be opened|did not open"):
            await port.read()

    with socket.create_server(("127.0.0.1", 0)) as mute:
        on_port(f"rfc2217://127.0.0.1:{mute.getsockname()[1]}", scenario)


async def until(call):
    """Repeat a call as a handler's retry does: in KW an answer that a busy machine delays is none."""
    while True:
        with contextlib.suppress(DeviceTimeout, GarbledData):
            return await call()


@pytest.mark.parametrize("protocol", ["P300", "KW"])
def test_a_boiler_is_read_over_a_real_port(pty_device, protocol):
    boiler = Boiler({0x0800: b"\x7b\x00", 0x6300: b"\x32"}, protocol)

    def beat():
        while pty_device._master is not None:
            with contextlib.suppress(OSError):
                pty_device.send(boiler.beat())
            time.sleep(0.3)

    async def read():
        port = SerialPort(pty_device.path, 4800, framer=FixedFramer(1))  # a pty takes no parity
        async with Optolink(port, protocol) as optolink:
            assert await until(lambda: optolink.read(0x0800, 2)) == b"\x7b\x00"
            await until(lambda: optolink.write(0x6300, b"\x37"))
            assert await until(lambda: optolink.read(0x6300, 1)) == b"\x37"
            await until(optolink.probe)

    echo(pty_device, boiler.receive)
    threading.Thread(target=beat, daemon=True).start()
    asyncio.run(read())


def test_a_modbus_meter_on_a_real_port_is_read_after_garbage_and_an_unplugged_cable(pty_device):
    answer = bytes.fromhex("010404436680006fdf")
    answers = iter([garbage(12), answer[:4], answer])

    async def read():
        async with Modbus(pty_device.path, 19_200, timeout="1s") as modbus:
            for _ in range(2):
                with pytest.raises((GarbledData, DeviceTimeout)):
                    await modbus.input_registers(1, 0, 2)
            first = await modbus.input_registers(1, 0, 2)
            pty_device.unplug()
            with pytest.raises(DeviceUnavailable):
                await modbus.input_registers(1, 0, 2)
            pty_device.plug()
            echo(pty_device, answered)
            return first, await modbus.input_registers(1, 0, 2)

    def answered(request):  # the thread from before the cable was pulled may still be there to answer
        return next(answers, answer)

    echo(pty_device, answered)

    assert asyncio.run(read()) == (bytes.fromhex("43668000"),) * 2


def test_messages_come_one_after_the_other_through_an_unplugged_cable(pty_device):
    async def scenario(port):
        await port.probe()
        pty_device.send(b"1\n2\n")
        assert [message async for message in first(port.messages(), 2)] == [b"1", b"2"]
        pty_device.unplug()
        with pytest.raises(DeviceUnavailable):
            await anext(port.messages())
        pty_device.plug()
        late = asyncio.create_task(anext(port.messages("30s")))
        await asyncio.sleep(0.1)
        pty_device.send(b"3\n")
        assert await late == b"3"
        with pytest.raises(DeviceTimeout):
            await anext(port.messages("100ms"))

    on_port(pty_device.path, scenario)


def test_settings_that_the_port_does_not_take_are_a_named_error(pty_device):
    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="check baudrate, bytesize, parity"):
            await port.read()

    on_port(pty_device.path, scenario, parity="E")


def test_a_missing_port_says_what_to_look_at(tmp_path):
    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="the port does not exist; is the device plugged in"):
            await port.probe()

    on_port(str(tmp_path / "nothing"), scenario)


def test_what_is_no_serial_port_is_a_named_error(tmp_path):
    plain = tmp_path / "file"
    plain.write_text("not a terminal")

    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="cannot be opened"):
            await port.probe()

    on_port(str(plain), scenario)


def test_a_numbered_usb_port_is_answered_with_its_lasting_name(caplog):
    async def run():
        async with SerialPort("/dev/ttyUSB7"):
            pass

    with caplog.at_level(logging.WARNING, "leadsman"):
        asyncio.run(run())

    assert "/dev/serial/by-id" in caplog.text


def test_nothing_stays_open_after_many_replugs(pty_device):
    async def scenario(port):
        await port.probe()
        before = len(os.listdir("/proc/self/fd"))
        for number in range(30):
            pty_device.unplug()
            with pytest.raises(DeviceUnavailable):
                await port.read()
            pty_device.plug()
            await port.probe()
            pty_device.send(b"%d\n" % number)
            assert await port.read() == b"%d" % number
        return len(os.listdir("/proc/self/fd")) - before

    assert on_port(pty_device.path, scenario) <= 1


@pytest.mark.parametrize("url", ["", " ", "http://x", "socket://host", "socket://:5", "telnet://h:1", "/dev/\0"])
def test_a_wrong_port_is_refused(url):
    with pytest.raises(InvalidValue, match="the port is"):
        SerialPort(url)


@pytest.mark.parametrize("words", [{"baudrate": 0}, {"bytesize": 9}, {"parity": "X"}, {"stopbits": 3}, {"timeout": 0}])
def test_a_wrong_setting_is_refused(words):
    with pytest.raises(InvalidValue):
        SerialPort("/dev/tty", **words)


@pytest.mark.parametrize(
    "words", [{"url": 5}, {"url": "/dev/tty", "baudrate": "9600"}, {"url": "/dev/tty", "framer": 5}]
)
def test_a_setting_of_the_wrong_type_is_refused(words):
    with pytest.raises(InvalidType):
        SerialPort(**words)


def test_an_app_reads_a_meter_through_unplugging_and_garbage_to_a_real_broker(mosquitto, listen):
    with PtyDevice() as meter:
        app = App("meter", mqtt=mosquitto.url, adapters=(SerialPort(meter.path, timeout="300ms"),))

        @app.telemetry("power", interval=0.5, retry=3)
        async def power(port: SerialPort):
            return {"watts": float(await port.request(b"?\n"))}

        listener, garbled = listen(mosquitto.port), []

        def watts():
            return [json.loads(message.payload)["watts"] for message in listener.on("meter/power/state")]

        def events():
            return [json.loads(message.payload)["event"] for message in listener.on("meter/power/error")]

        async def until(true):
            async with asyncio.timeout(60):
                while not true():
                    await asyncio.sleep(0.05)

        async def serve():
            serving = asyncio.create_task(app.serve())
            echo(meter, lambda request: b"42.0\n")
            await until(lambda: 42.0 in watts())
            meter.unplug()
            await until(lambda: "onset" in events())
            meter.plug()
            echo(meter, lambda request: garbled.append(request) or garbage(30) + b"\n")
            await until(lambda: len(garbled) > 2)
            meter.unplug()
            await asyncio.sleep(0.05)
            meter.plug()
            echo(meter, lambda request: b"43.0\n")
            await until(lambda: 43.0 in watts() and events()[-1] == "recovered")
            app.stop()
            await serving

        asyncio.run(serve())

    assert events()[0] == "onset"


def test_a_port_may_be_entered_again(pty_device):
    async def run():
        port = SerialPort(pty_device.path, timeout=30.0)
        answers = []
        for _ in range(3):
            async with port:
                answers.append(await port.request(b"hello\n"))
        return answers

    echo(pty_device)

    assert asyncio.run(run()) == [b"hello"] * 3


def test_a_port_that_stays_silent_is_opened_anew_and_read_once_the_device_answers(pty_device, mosquitto, listen):
    wire = SerialPort(pty_device.path, timeout="100ms")
    app = App("sys", mqtt=mosquitto.url, adapters=(wire,))

    @app.telemetry("meter", interval="200ms")
    async def meter(port: SerialPort):
        return {"reply": (await port.request(b"?\n")).decode()}

    async def run():
        serving = asyncio.create_task(app.serve())
        lines = set()
        while len(lines - {None}) < 2:
            lines.add(wire._connection)
            await asyncio.sleep(0.01)
        echo(pty_device)
        while not listener.on("sys/meter/state"):
            await asyncio.sleep(0.05)
        app.stop()
        return await serving

    listener = listen(mosquitto.port)
    left_behind = asyncio.run(asyncio.wait_for(run(), 100))

    assert left_behind == 0
    assert json.loads(listener.on("sys/meter/state")[0].payload) == {"reply": "?"}
    assert json.loads(listener.wait_for("sys/meter/error", 2)[-1].payload)["event"] in ("reminder", "recovered")


def test_lines_that_arrive_unasked_are_published_through_unplugging_and_garbage(pty_device, mosquitto, listen):
    app = App("sys", mqtt=mosquitto.url, adapters=(SerialPort(pty_device.path),))

    @app.source("meter", backoff=FixedBackoff("200ms"), circuit_breaker=CircuitBreaker(50))
    async def meter(port: SerialPort):
        while True:
            yield {"line": (await port.read(timeout="1h")).decode("ascii", "replace")}

    def said():
        return [json.loads(message.payload)["line"] for message in listener.on("sys/meter/state")]

    async def until(line):
        while line not in said():
            with contextlib.suppress(OSError, TimeoutError):
                pty_device.send(f"{line}\n".encode())
            await asyncio.sleep(0.05)

    async def run():
        serving = asyncio.create_task(app.serve())
        await until("one")
        pty_device.send(b"\xff\xfe\x00 no line" + bytes(range(256)) * 40)
        pty_device.send(b"\n")
        await until("two")
        pty_device.unplug()
        while "DeviceUnavailable" not in "".join(m.payload.decode() for m in listener.on("sys/meter/error")):
            await asyncio.sleep(0.05)
        pty_device.plug()
        await until("three")
        app.stop()
        return await serving

    listener = listen(mosquitto.port)

    assert asyncio.run(asyncio.wait_for(run(), 100)) == 0
    assert json.loads(listener.wait_for("sys/meter/error", 2)[-1].payload)["event"] == "recovered"


class TestBoth:
    """What a port and its twin both do."""

    @pytest.fixture(params=["real", "twin"])
    def there(self, request):
        """A port, and what its device does: it answers a line with the same in capitals, unless told otherwise."""

        def answer(data):
            return data.upper() if device.answers else b""

        device = SimpleNamespace(answers=True)
        if request.param == "twin":
            twin = SerialTwin(answer, timeout=30.0)
            device.port, device.say, device.unplug, device.plug = twin, twin.send, twin.unplug, twin.plug
            yield device
            return
        with PtyDevice() as pty:
            echo(pty, answer)

            def plug():
                pty.plug()
                echo(pty, answer)

            device.port = SerialPort(pty.path, 115_200, timeout=30.0)
            device.say, device.unplug, device.plug = pty.send, pty.unplug, plug
            yield device

    def run(self, there, scenario):
        async def run():
            async with there.port:
                return await scenario(there.port)

        return asyncio.run(run())

    def test_a_request_gets_its_reply(self, there):
        async def scenario(port):
            return [await port.request(f"{number} p?\n".encode()) for number in range(20)]

        assert self.run(there, scenario) == [f"{number} P?".encode() for number in range(20)]

    def test_requests_of_several_handlers_take_turns(self, there):
        async def scenario(port):
            return await asyncio.gather(*(port.request(f"{number} p?\n".encode()) for number in range(20)))

        assert self.run(there, scenario) == [f"{number} P?".encode() for number in range(20)]

    def test_silence_and_noise_are_timeouts_and_the_next_request_unharmed(self, there):
        async def scenario(port):
            there.answers = False
            with pytest.raises(DeviceTimeout, match="no message from .* within 300ms"):
                await port.request(b"p?\n", "300ms")
            await port.probe()
            there.say(b"\x00\xff")
            with pytest.raises(DeviceTimeout, match="2 bytes arrived, but no complete message"):
                await port.read("1s")
            there.answers = True
            assert await port.request(b"p?\n") == b"P?"

        self.run(there, scenario)

    def test_what_comes_unasked_is_read_in_order_or_the_latest_of_it(self, there):
        async def scenario(port):
            await port.probe()
            there.say(b"1\r\n2\r\n3\r\n")
            await arrived(port, 3)
            assert [await port.read(), await port.latest()] == [b"1", b"3"]

        self.run(there, scenario)

    def test_a_session_keeps_others_out_until_it_ends(self, there):
        async def scenario(port):
            async with port.session() as session:
                late = asyncio.create_task(port.request(b"late\n"))
                await session.discard()
                session.send(b"one\n")
                assert await session.receive() == b"ONE"
                session.send(b"two\nthree\n")
                assert await session.receive(2) == b"TWOTHREE"
                assert not late.done()
            assert await late == b"LATE"

        self.run(there, scenario)

    def test_an_unplugged_cable_is_noticed_and_the_port_used_again_once_it_is_back(self, there):
        async def scenario(port):
            await port.request(b"p?\n")
            reading = asyncio.create_task(port.read("30s"))
            await asyncio.sleep(0.05)
            there.unplug()
            with pytest.raises(DeviceUnavailable, match="went away"):
                await reading
            with pytest.raises(DeviceUnavailable, match="is the device plugged in"):
                await port.request(b"p?\n")
            there.plug()
            assert await port.request(b"p?\n") == b"P?"

        self.run(there, scenario)

    def test_half_a_message_before_the_cable_was_pulled_is_no_part_of_the_next_one(self, there):
        async def scenario(port):
            await port.probe()
            there.say(b"half a tele")
            await asyncio.sleep(0.05)
            there.unplug()
            with pytest.raises(DeviceUnavailable):
                await port.read()
            there.plug()
            await port.probe()
            there.say(b"gram\n")
            assert await port.read() == b"gram"
            assert {**port.health, "silent_for": None} == {
                "port": port.url,
                "opened": True,
                "discarded": 0,
                "silent_for": None,
            }
            assert 0 <= port.health["silent_for"] < 60

        self.run(there, scenario)

    def test_it_may_be_probed_closed_and_entered_again(self, there):
        async def scenario(port):
            await port.probe()
            await port.close()
            assert await port.request(b"p?\n") == b"P?"

        self.run(there, scenario)
        self.run(there, scenario)


def test_a_device_that_pauses_by_xoff_gets_the_rest_after_xon(pty_device):
    async def scenario(port):
        await port.write(b"")  # opens it
        pty_device.send(b"\x13")
        await asyncio.sleep(0.2)
        await port.write(b"measure\n")
        await asyncio.sleep(0.2)
        paused, rest = pty_device.receive(), b""
        pty_device.send(b"\x11")
        async with asyncio.timeout(60):
            while len(rest) < len(b"measure\n"):
                await asyncio.sleep(0.01)
                rest += pty_device.receive()
        return paused, rest

    assert on_port(pty_device.path, scenario, xonxoff=True) == (b"", b"measure\n")


def test_a_port_with_hardware_flow_control_and_lines_of_its_own_is_read(pty_device):
    async def scenario(port):
        await port.write(b"")  # opens it
        pty_device.send(b"1\n")
        return await port.read()

    assert on_port(pty_device.path, scenario, rtscts=True, dtr=False) == b"1"


def test_a_driver_that_does_not_switch_rs485_is_named(pty_device):
    async def scenario(port):
        with pytest.raises(DeviceUnavailable, match="its driver does not switch RS-485"):
            await port.read()

    on_port(pty_device.path, scenario, rs485=True)
