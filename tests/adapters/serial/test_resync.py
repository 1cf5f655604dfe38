"""After noise, after a message that was cut, and behind what is sent back, each framer finds the next whole message."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.modbus import Modbus
from leadsman.adapters.modbus.framing import ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.serial.checksums import crc16_arc, crc16_modbus, crc16_x25, sum8
from leadsman.adapters.serial.framing import (
    DelimiterFramer,
    FixedFramer,
    LengthPrefixedFramer,
    LineFramer,
    Stream,
)
from leadsman.adapters.serial.metering import MBusFramer, P1Framer, SmlFramer
from leadsman.adapters.serial.optolink import Optolink
from leadsman.adapters.serial.port import QUIET_SECONDS, SerialPort
from leadsman.adapters.serial.stuffing import CobsFramer, HdlcFramer, SlipFramer, cobs, hdlc, slip
from leadsman.errors import DeviceTimeout, GarbledData, InvalidType, InvalidValue, PermanentError, TransientError
from leadsman.testing import Boiler, SerialTwin
from leadsman_rigs.telegrams import DSMR


def rtu(text):
    content = bytes.fromhex(text)
    return content + crc16_modbus(content).to_bytes(2, "little")


def mbus(text):
    content = bytes.fromhex(text)
    return bytes((0x68, len(content), len(content), 0x68)) + content + bytes((sum8(content), 0x16))


def sml(content):
    file = b"\x1b" * 4 + b"\x01" * 4 + content + b"\x1b" * 4 + b"\x1a\x00"
    return file + crc16_x25(file).to_bytes(2, "little")


def summed(content):
    return content + bytes((sum8(content),))


def is_summed(message):
    return sum8(message[:-1]) == message[-1]


def telegram(*lines):
    content = "\r\n".join(["/KMP5 1", "", *lines, "!"]).encode()
    return content + f"{crc16_arc(content):04X}\r\n".encode()


METER = "08 05 72 78 56 34 12 24 40 01 07 55 00 00 00 04 13 e5 10 00 00"
"""What a water meter answers; E5 is a byte of its data."""
VERIFIED = [
    (ModbusRtuFramer(), rtu("01 04 02 00 e6")),
    (ModbusRtuFramer(), rtu("11 03 14" + "00 e6" * 10)),
    (ModbusRtuFramer(), rtu("01 84 02")),
    (ModbusRtuFramer(), rtu("01 06 00 01 00 03")),
    (SmlFramer(), sml(b"\x76\x05\x00\x00 meters.")),
    (SmlFramer(), sml(b"\x76\x05\x00\x1b\x1b" * 12)),
    (P1Framer(), DSMR),
    (P1Framer(), telegram("1-0:1.8.1(00001.001*kWh)")),
    (MBusFramer(), mbus(METER)),
    (MBusFramer(answers=True), mbus(METER)),
    (FixedFramer(6, begin=b"\xaa", check=is_summed), summed(b"\xaa\x01\xaa\x03\xe5")),
    (LengthPrefixedFramer(b"\x41", extra=1, check=is_summed), summed(b"\x41\x04abcd")),
    (DelimiterFramer(b"<", b">", trailer=1, check=is_summed), summed(b"<good>")),
    (HdlcFramer(), hdlc(b"good \x7e")),
]
"""Framers that verify what they find, and a message."""
verified = st.sampled_from(VERIFIED)
noises = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"\0", b"\xff", b"\0\0", b"/", b"\n!", b"\x1b" * 5, b"\x68", b"\x10", b"\xe5", b"A", b"<", b"~"]),
    st.sampled_from(
        [b"\x01\x04", b"\x01\x03\x50", b"\x68\xff\xff\x68", b"\x1b\x1b\x1b\x1b\x01\x01\x01\x01", b"/ISk5\r\n"]
    ),
)
cuts = st.lists(st.integers(0, 5000), max_size=4)


def heard(framer, data, at=()):
    """The messages that a line with these bytes gives, in pieces, and when it is quiet."""
    stream, found = Stream(framer), []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in at), len(data)]
    for begin, end in pairwise(edges):
        found += stream.feed(data[begin:end])
    return found + stream.settle()


def message_of(framer, frame):
    (message,) = heard(framer, frame)
    return message


@given(verified, noises, cuts)
def test_behind_noise_the_next_whole_message_is_found(known, noise, at):
    framer, frame = known

    assert heard(framer, noise + frame, at)[-1:] == [message_of(framer, frame)]


@given(verified, st.integers(0, 5000), noises, cuts)
def test_behind_a_message_that_was_cut_the_next_whole_one_is_found(known, cut, noise, at):
    framer, frame = known

    assert heard(framer, noise + frame[: cut % len(frame)] + frame, at)[-1:] == [message_of(framer, frame)]


@given(verified, st.integers(0, 5000), st.integers(0, 7), cuts)
def test_behind_a_message_with_a_wrong_bit_the_next_whole_one_is_found(known, where, bit, at):
    framer, frame = known
    broken = bytearray(frame)
    broken[where % len(frame)] ^= 1 << bit

    assert heard(framer, bytes(broken) + frame, at)[-1:] == [message_of(framer, frame)]


@given(verified, st.integers(0, 5000), cuts)
def test_a_message_whose_end_was_lost_is_none_and_one_that_is_late_is_not_thrown_away(known, cut, at):
    framer, frame = known
    stream, size = Stream(framer), 1 + cut % (len(frame) - 3)

    assert heard(framer, frame[:size], at) == []
    assert [*stream.feed(frame[:size]), *stream.settle(), *stream.feed(frame[size:]), *stream.settle()][-1:] == [
        message_of(framer, frame)
    ]


@pytest.mark.parametrize(
    ("framer", "frame"),
    [
        (LineFramer(), b"\n21.5\n"),
        (SlipFramer(), slip(b"good")),
        (CobsFramer(), b"\0" + cobs(b"good")),
        (DelimiterFramer(b"<", b">"), b"<good>"),
    ],
)
@given(noise=st.binary(max_size=12))
def test_what_has_no_checksum_is_found_at_its_next_beginning(framer, frame, noise):
    assert heard(framer, noise + frame + frame)[-1:] == heard(framer, frame)[-1:]


@given(st.integers(1, 247), st.sampled_from([3, 4]), st.integers(1, 10), noises, cuts)
def test_an_answer_of_the_unit_that_was_asked_is_found_behind_noise_without_waiting(unit, function, count, noise, at):
    framer = ModbusRtuFramer()
    request = framer.wrap(bytes((function, 0, 0, 0, count)), unit)
    answer = bytes((function, 2 * count)) + b"\x00\xe6" * count
    for pdu in (answer, bytes((function | 0x80, 2))):
        stream = Stream(framer)
        stream.expect(request)
        data, found = noise + framer.wrap(pdu, unit), []
        for begin, end in pairwise([0, *sorted(cut % (len(data) + 1) for cut in at), len(data)]):
            found += stream.feed(data[begin:end])
        assert found[-1:] == [bytes((unit,)) + pdu]


@given(st.integers(0, 5000), st.integers(0, 7), cuts)
def test_no_byte_of_an_m_bus_frame_with_a_wrong_bit_is_an_acknowledgement(where, bit, at):
    frame = bytearray(mbus(METER))
    frame[where % len(frame)] ^= 1 << bit

    for framer in (MBusFramer(), MBusFramer(answers=True)):
        assert b"\xe5" not in heard(framer, bytes(frame), at)


@given(st.integers(0, 5000), cuts)
def test_no_byte_of_an_m_bus_frame_that_was_cut_is_an_acknowledgement(cut, at):
    frame = mbus(METER)

    for framer in (MBusFramer(), MBusFramer(answers=True)):
        assert b"\xe5" not in heard(framer, frame[: cut % len(frame)], at)


@given(noises, cuts)
def test_an_acknowledgement_on_the_m_bus_is_found_behind_noise_when_the_line_is_quiet(noise, at):
    found = heard(MBusFramer(answers=True), noise.replace(b"\x68", b"") + b"\xe5", at)

    assert found[-1:] == [b"\xe5"]


@pytest.mark.parametrize("digits", ["B9F", "0B9F", " B9F", "b9f", "0b9f "])
def test_the_checksum_of_a_telegram_may_lack_its_leading_zeros(digits):
    whole = next(
        text
        for number in range(100_000)
        if crc16_arc(text := f"/FLD5NWA\r\n\r\n0-1:24.2.1({number})\r\n!".encode()) == 0x0B9F
    )

    assert heard(P1Framer(), whole + digits.encode() + b"\r\n") == [whole + digits.encode() + b"\r\n"]
    for wrong in ("B9", "9F", "F", "0", "00B9F", "B9E"):
        assert heard(P1Framer(), whole + wrong.encode() + b"\r\n") == []


@pytest.mark.parametrize("version", ["1-3:0.2.8(42)", "1-3:0.2.8(50)", "0-0:96.1.4(50217)"])
def test_a_telegram_of_a_version_that_has_a_checksum_is_none_without_it(version):
    whole = telegram(version, "1-0:1.8.1(00001.001*kWh)")
    old = telegram("1-0:1.8.1(00001.001*kWh)")

    assert heard(P1Framer(), whole) == [whole]
    assert heard(P1Framer(), whole[:-6] + b"\r\n" + whole) == [whole]
    assert heard(P1Framer(), old[:-6] + b"\r\n") == [old[:-6] + b"\r\n"]


def test_a_telegram_needs_no_end_of_its_last_line_when_the_line_is_quiet():
    assert heard(P1Framer(), DSMR.rstrip()) == [DSMR.rstrip()]
    assert heard(P1Framer(), DSMR.rstrip()[:-1]) == []


# On a port, in virtual time


def on_line(scenario, loop, device=lambda request: b"", **options):
    """Run `scenario(port)` on a port with this device."""

    async def run():
        async with SerialTwin(device, **options) as port:
            return await scenario(port)

    return loop.run_until_complete(run())


def test_what_waits_for_its_rest_is_looked_at_again_when_the_line_is_quiet_and_not_before(loop):
    async def scenario(port):
        port.send(b"\x01\x03\x50" + rtu("01 04 02 00 e6"))
        before = loop.time()
        return await port.read("10s"), loop.time() - before

    async def listen(port):
        await port.probe()
        return await scenario(port)

    message, waited = on_line(listen, loop, framer=ModbusRtuFramer())
    assert message == bytes.fromhex("010402 00e6")
    assert waited == pytest.approx(QUIET_SECONDS, abs=0.01)


def test_a_slow_line_is_quiet_later(loop):
    async def scenario(port):
        await port.probe()
        port.send(b"\x00" + rtu("01 04 02 00 e6")[:-1])
        loop.call_later(0.3, port.send, rtu("01 04 02 00 e6")[-1:])
        return await port.read("10s")

    assert on_line(scenario, loop, framer=ModbusRtuFramer(), baudrate=300) == bytes.fromhex("010402 00e6")


def test_the_last_look_is_at_the_timeout(loop):
    async def scenario(port):
        await port.probe()
        port.send(b"\x01\x03\x50" + rtu("01 04 02 00 e6"))
        return await port.read(QUIET_SECONDS / 2)

    assert on_line(scenario, loop, framer=ModbusRtuFramer()) == bytes.fromhex("010402 00e6")


def test_bytes_that_go_on_without_a_message_are_looked_at_each_time_the_line_is_quiet(loop):
    async def scenario(port):
        await port.probe()
        port.send(b"\x01\x03\x50")
        loop.call_later(1, port.send, rtu("01 04 02 00 e6")[:4])
        loop.call_later(3, port.send, rtu("01 04 02 00 e6")[4:])
        before = loop.time()
        return await port.read("10s"), loop.time() - before

    message, waited = on_line(scenario, loop, framer=ModbusRtuFramer())
    assert (message, waited) == (bytes.fromhex("010402 00e6"), pytest.approx(3 + QUIET_SECONDS, abs=0.01))


def test_the_rest_of_a_line_that_was_just_arriving_is_not_the_answer(loop):
    async def scenario(port):
        await port.probe()
        port.send(b"unasked: 12")
        loop.call_later(0.05, port.send, b"3.4\n")
        return await port.request(b"P?\n")

    assert on_line(scenario, loop, lambda request: b"21.5\n") == b"21.5"


def test_a_line_that_never_ends_does_not_hold_up_a_request_for_long(loop):
    async def scenario(port):
        await port.probe()

        async def babble():
            while True:
                port.send(b"x")
                await asyncio.sleep(QUIET_SECONDS / 3)

        babbling = asyncio.create_task(babble())
        await asyncio.sleep(1)
        before = loop.time()
        with pytest.raises(DeviceTimeout):
            await port.request(b"P?\n", "2s")
        babbling.cancel()
        return loop.time() - before

    assert on_line(scenario, loop) <= 2 + 5 * QUIET_SECONDS + 0.01


# Converters that send back what is sent

ECHOES = [
    (LineFramer(), b"P?\r\n", b"21.5\r\n", b"21.5"),
    (ModbusRtuFramer(), rtu("01 04 00 00 00 01"), rtu("01 04 02 00 e6"), bytes.fromhex("01040200e6")),
    (ModbusRtuFramer(), rtu("01 06 00 01 00 03"), rtu("01 06 00 01 00 03"), bytes.fromhex("010600010003")),
    (MBusFramer(), bytes.fromhex("105b056016"), mbus(METER), bytes.fromhex(METER)),
    (MBusFramer(), bytes.fromhex("1040054516"), b"\xe5", b"\xe5"),
    (FixedFramer(3), b"abc", b"xyz", b"xyz"),
    (SlipFramer(), slip(b"ask"), slip(b"answer"), b"answer"),
    (DelimiterFramer(b"<", b">"), b"<ask>", b"<answer>", b"<answer>"),
    (SmlFramer(), b"ask", sml(b"good"), b"good"),
    (P1Framer(), b"/?!\r\n", DSMR, DSMR),
]


@pytest.mark.parametrize(("framer", "request_", "answer", "message"), ECHOES)
@pytest.mark.parametrize("noise", [b"", b"\0", b"\n", b"<"])
def test_what_comes_back_is_removed_and_the_answer_taken(loop, framer, request_, answer, message, noise):
    async def scenario(port):
        return [await port.request(request_) for _ in range(3)]

    found = on_line(scenario, loop, lambda data: noise + data + answer, framer=framer, echo=True)
    assert found == [message] * 3


@pytest.mark.parametrize(("framer", "request_", "answer", "message"), ECHOES)
def test_what_comes_back_alone_confirms_nothing(loop, framer, request_, answer, message):
    async def scenario(port):
        with pytest.raises(DeviceTimeout, match="within 3s"):
            await port.request(request_)

    on_line(scenario, loop, lambda data: data, framer=framer, echo=True)


@pytest.mark.parametrize(("framer", "request_", "answer", "message"), [ECHOES[1], ECHOES[3], ECHOES[4]])
def test_frames_of_ones_own_are_no_answer_without_the_option_either(loop, framer, request_, answer, message):
    async def scenario(port):
        return await port.request(request_)

    async def alone(port):
        with pytest.raises(DeviceTimeout, match="what was sent came back: write echo=True"):
            await port.request(request_)

    assert on_line(scenario, loop, lambda data: data + answer, framer=framer) == message
    on_line(alone, loop, lambda data: data, framer=framer)


def test_a_converter_that_sends_nothing_back_is_named(loop):
    async def scenario(port):
        with pytest.raises(DeviceTimeout, match=r"leave out echo=True"):
            await port.request(b"P?\n")

    on_line(scenario, loop, lambda data: b"21.5\n", echo=True)
    on_line(scenario, loop, lambda data: b"P!\n21.5\n", echo=True)


def test_what_is_written_comes_back_too_and_is_no_message(loop):
    async def scenario(port):
        await port.write(b"on\n")
        await port.write(b"off\n")
        loop.call_later(1, port.send, b"done\n")
        return await port.read("5s")

    assert on_line(scenario, loop, lambda data: data, echo=True) == b"done"


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4), cuts)
def test_it_does_not_matter_in_which_pieces_it_comes_back(sent, at):
    from leadsman.adapters.serial.port import Echo

    echo, data, behind, others = Echo(), b"".join(sent) + b"answer", b"", 0
    for each in sent:
        echo.sent(each)
    for begin, end in pairwise([0, *sorted(cut % (len(data) + 1) for cut in at), len(data)]):
        rest, noise = echo.heard(data[begin:end])
        behind, others = behind + rest, others + noise

    assert (behind, others, echo.awaited) == (b"answer", 0, False)


def test_a_modbus_write_is_confirmed_by_the_device_and_not_by_the_converter(loop):
    async def scenario(answers):
        port = SerialTwin(lambda data: data + answers(data), framer=ModbusRtuFramer(), timeout=1, echo=True)
        async with Modbus(port) as line:
            await line.write_registers(1, 7, b"\x00\x01")
            await line.write_coils(1, 7, [True])

    loop.run_until_complete(scenario(lambda data: data))
    with pytest.raises(TransientError):
        loop.run_until_complete(scenario(lambda data: b""))


def test_a_modbus_line_that_hears_itself_is_named(loop):
    async def scenario(answer):
        async with Modbus(SerialTwin(answer, framer=ModbusRtuFramer(), timeout=1)) as line:
            with pytest.raises(
                GarbledData, match="unit 1, 1 input registers from 0: what was sent came back: write echo"
            ):
                await line.input_registers(1, 0)
            with pytest.raises(GarbledData, match="write echo=True"):
                await line.write_registers(1, 0, b"\0\1\0\2")

    loop.run_until_complete(scenario(lambda data: data))


def test_a_refusal_behind_noise_is_a_refusal(loop):
    async def scenario():
        async with Modbus(SerialTwin(lambda data: b"\0" + rtu("01 84 02"), framer=ModbusRtuFramer())) as line:
            with pytest.raises(PermanentError, match="illegal data address"):
                await line.input_registers(1, 0)

    loop.run_until_complete(scenario())


@pytest.mark.parametrize("protocol", ["P300", "KW"])
@pytest.mark.parametrize("echo", [True, False])
def test_a_boiler_behind_an_adapter_that_hears_itself(loop, protocol, echo):
    boiler = Boiler({0x0800: b"\x7b\x00", 0x6300: b"\x32", 0x2000: bytes(range(8))}, protocol)

    async def run():
        port = SerialTwin(
            lambda data: data + boiler.receive(data),
            says=lambda: (2.0, boiler.beat()),
            framer=FixedFramer(1),
            timeout=2.0,
            echo=echo,
        )
        async with Optolink(port, protocol) as optolink:
            for address, length in ((0x0800, 2), (0x6300, 1), (0x2000, 5), (0x2000, 8)):
                if echo:
                    assert await optolink.read(address, length) == boiler.memory[address][:length]
                    await asyncio.sleep(1)
                else:
                    with pytest.raises((GarbledData, DeviceTimeout)):
                        await optolink.read(address, length)

    loop.run_until_complete(run())


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: SerialPort("/dev/tty", echo="yes"), InvalidType),
        (lambda: Modbus("tcp://host", echo=True), InvalidValue),
        (lambda: Modbus(SerialPort("/dev/tty", framer=ModbusRtuFramer()), echo=True), InvalidValue),
        (lambda: Optolink(SerialPort("/dev/tty"), echo=True), InvalidValue),
    ],
)
def test_an_echo_that_cannot_be_is_refused(make, error):
    with pytest.raises(error, match="echo"):
        make()


def test_modbus_tcp_needs_no_second_look():
    frame = ModbusTcpFramer().wrap(b"\x03\x02\x00\xe6", 1, 9)

    assert heard(ModbusTcpFramer(), frame) == [frame[:2] + frame[6:]]
