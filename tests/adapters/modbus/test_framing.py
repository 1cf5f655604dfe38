from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.modbus.framing import Heard, ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.serial.framing import Stream
from leadsman.errors import InvalidValue

READ = st.sampled_from([1, 2, 3, 4, 23]).flatmap(
    lambda function: st.binary(max_size=251).map(lambda data: bytes((function, len(data))) + data)
)
WRITTEN = st.tuples(st.sampled_from([5, 6, 15, 16]), st.binary(min_size=4, max_size=4)).map(
    lambda each: bytes((each[0],)) + each[1]
)
REFUSED = st.tuples(st.integers(0x81, 0x97), st.integers(0, 255)).map(bytes)
ANSWERS = st.one_of(READ, WRITTEN, REFUSED)
FRAMERS = [ModbusRtuFramer(), ModbusTcpFramer()]


def in_pieces(framer, data, cuts):
    stream, found = Stream(framer), []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for begin, end in pairwise(edges):
        found += stream.feed(data[begin:end])
    return [framer.unwrap(message) for message in found], stream


@given(
    st.sampled_from(FRAMERS),
    st.lists(st.tuples(st.integers(1, 247), st.integers(0, 0xFFFF), ANSWERS), min_size=1, max_size=6),
    st.lists(st.integers(0, 5000), max_size=8),
)
def test_answers_come_out_whole_and_in_order_wherever_the_stream_is_cut(framer, sent, cuts):
    data = b"".join(framer.wrap(pdu, unit, transaction) for unit, transaction, pdu in sent)

    heard, stream = in_pieces(framer, data, cuts)

    assert heard == [Heard(transaction if framer.numbered else None, unit, pdu) for unit, transaction, pdu in sent]
    assert (stream.discarded, stream.waiting) == (0, 0)


@given(st.sampled_from(FRAMERS), st.binary(max_size=600), st.lists(st.integers(0, 5000), max_size=8))
def test_whatever_comes_a_framer_keeps_at_most_one_message_and_accounts_for_each_byte(framer, noise, cuts):
    heard, stream = in_pieces(framer, noise, cuts)

    assert stream.waiting < framer.max_size
    frames = sum(len(each.pdu) + (7 if framer.numbered else 3) for each in heard)
    assert stream.discarded + stream.waiting + frames == len(noise)


@given(st.binary(max_size=40), ANSWERS)
def test_after_noise_an_rtu_answer_that_is_repeated_is_found(noise, pdu):
    frame = ModbusRtuFramer().wrap(pdu, 7)

    heard, _ = in_pieces(ModbusRtuFramer(), noise + frame * 60, [])

    assert heard[-1] == Heard(None, 7, pdu)


@given(ANSWERS, st.integers(0, 2_000), st.integers(0, 7))
def test_an_rtu_answer_with_one_wrong_bit_is_no_answer(pdu, at, bit):
    frame = bytearray(ModbusRtuFramer().wrap(pdu, 7))
    frame[at % len(frame)] ^= 1 << bit

    heard, _ = in_pieces(ModbusRtuFramer(), bytes(frame), [])

    assert Heard(None, 7, pdu) not in heard


@pytest.mark.parametrize(
    ("framer", "frame"),
    [(FRAMERS[0], "11 03 006b 0003 7687"), (FRAMERS[1], "0000 0000 0006 11 03 006b 0003")],
)
def test_a_request_is_that_of_the_specification(framer, frame):
    assert framer.wrap(bytes.fromhex("03 006b 0003"), 0x11) == bytes.fromhex(frame)


@pytest.mark.parametrize(
    ("framer", "pdu", "unit"),
    [
        (FRAMERS[0], b"\x03", 248),
        (FRAMERS[0], b"\x03", -1),
        (FRAMERS[0], b"", 1),
        (FRAMERS[1], b"\x03", 256),
        (FRAMERS[1], bytes(254), 1),
    ],
)
def test_a_message_that_has_no_frame_is_refused(framer, pdu, unit):
    with pytest.raises(InvalidValue, match="they must be 0 to"):
        framer.wrap(pdu, unit)


def test_a_frame_for_another_protocol_than_modbus_is_passed_over():
    frame = ModbusTcpFramer().wrap(b"\x03\x02\x00\x01", 1, 9)
    other = frame[:2] + b"\x00\x01" + frame[4:]

    heard, _ = in_pieces(ModbusTcpFramer(), other + frame * 3, [])

    assert heard[-1] == Heard(9, 1, b"\x03\x02\x00\x01")


def test_a_pause_has_three_and_a_half_characters():
    assert ModbusRtuFramer().pause(9600) == pytest.approx(0.00401, rel=0.01)
    assert ModbusRtuFramer().pause(115_200) == 0.00175
    assert ModbusTcpFramer().pause(9600) == 0
