"""Framers of named protocols, on frames from their specifications."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leadsman.adapters.modbus.framing import ModbusRtuFramer
from leadsman.adapters.serial.checksums import crc16_arc, crc16_kermit, crc16_modbus, crc16_x25, sum8
from leadsman.adapters.serial.framing import Stream
from leadsman.adapters.serial.metering import MBusFramer, P1Framer, SmlFramer
from leadsman.adapters.serial.stuffing import CobsFramer, HdlcFramer, SlipFramer, cobs, hdlc, slip
from leadsman.errors import InvalidType, InvalidValue
from leadsman_rigs.telegrams import DSMR as TELEGRAM


def split(framer, *pieces):
    stream = Stream(framer)
    return [message for piece in pieces for message in stream.feed(piece)]


def test_checksums_have_the_values_of_the_catalogue():
    assert crc16_x25(b"123456789") == 0x906E
    assert crc16_kermit(b"123456789") == 0x2189
    assert crc16_arc(b"123456789") == 0xBB3D
    assert crc16_modbus(b"123456789") == 0x4B37
    assert sum8(b"\xff\x02") == 1


def test_slip_is_that_of_the_rfc():
    assert slip(b"a\xc0\xdb") == b"\xc0a\xdb\xdc\xdb\xdd\xc0"
    assert split(SlipFramer(), b"\xc0a\xdb\xdc\xdb\xdd\xc0\xc0b\xc0") == [b"a\xc0\xdb", b"b"]


def test_a_slip_frame_with_an_escape_that_means_nothing_is_discarded():
    assert split(SlipFramer(), b"\xc0a\xdbx\xc0\xc0b\xdb\xc0\xc0\xdb\xdb\xdc\xc0\xc0c\xc0") == [b"c"]


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b"\x00", "01 01 00"),
        (b"\x00\x00", "01 01 01 00"),
        (b"\x11\x22\x00\x33", "03 11 22 02 33 00"),
        (b"\x11\x00\x00\x00", "02 11 01 01 01 00"),
        (bytes(range(1, 255)), "ff" + bytes(range(1, 255)).hex() + "01 00"),
    ],
)
def test_cobs_is_that_of_the_paper(data, frame):
    assert split(CobsFramer(), bytes.fromhex(frame)) == [data]


def test_a_cobs_frame_that_points_behind_its_end_is_discarded():
    assert split(CobsFramer(), b"\x09ab\x00\x02c\x00") == [b"c"]


def test_hdlc_frames_carry_a_check_sequence():
    assert hdlc(b"123456789") == b"~123456789\x6e\x90~"
    assert split(HdlcFramer(), b"noise~123456789\x6e\x90~123456788\x6e\x90~x\x7d~") == [b"123456789"]


@given(st.binary(min_size=1, max_size=600))
def test_what_was_stuffed_comes_out_again(data):
    for framer, stuffed in ((SlipFramer(), slip(data)), (CobsFramer(), cobs(data)), (HdlcFramer(), hdlc(data))):
        assert split(framer, stuffed, stuffed) == [data, data]


def test_a_telegram_of_a_smart_meter_is_given_whole():
    assert split(P1Framer(), b"1-0:2.7.0(00.0", TELEGRAM[:100], TELEGRAM[100:], TELEGRAM) == [TELEGRAM, TELEGRAM]


def test_a_telegram_with_a_wrong_checksum_costs_only_itself():
    broken = TELEGRAM.replace(b"01.193", b"01.194")

    assert split(P1Framer(), broken, TELEGRAM) == [TELEGRAM]
    assert split(P1Framer(), TELEGRAM[:300], TELEGRAM) == [TELEGRAM]


def test_a_telegram_of_an_old_meter_has_no_checksum():
    old = b"/KMP5 KA6U001511209910\r\n\r\n1-0:1.8.1(05160.303*kWh)\r\n!\r\n"

    assert split(P1Framer(), old[:30], old, old) == [old, old]


def sml(content):
    fill = -len(content) % 4
    escape = b"\x1b" * 4
    escaped = b"".join(
        word * (2 if word == escape else 1)
        for word in [(content + bytes(fill))[at : at + 4] for at in range(0, len(content) + fill, 4)]
    )
    file = escape + b"\x01" * 4 + escaped + escape + b"\x1a" + bytes((fill,))
    return file + crc16_x25(file).to_bytes(2, "little")


@given(
    st.lists(st.sampled_from([b"\x1b", b"\x1b" * 4, b"\x1a", b"\x01" * 4, b"abc", b"\x00"]), max_size=30).map(b"".join)
)
def test_an_sml_file_comes_out_without_its_escapes(content):
    assume(b"\x1b" * 4 + b"\x01" * 4 not in content)  # looks like the beginning of another file, and no meter says it

    assert split(SmlFramer(), sml(content), sml(content)) == [content, content]


def test_an_sml_file_may_have_the_checksum_of_a_holley_dtz541():
    whole = sml(b"\x76\x05\x00\x00 meter")[:-2]
    checksum = crc16_kermit(whole)

    assert split(SmlFramer(), whole + checksum.to_bytes(2, "big")) == [b"\x76\x05\x00\x00 meter"]
    assert split(SmlFramer(), whole + (checksum ^ 1).to_bytes(2, "big"), whole + checksum.to_bytes(2, "little")) == []


def test_an_sml_file_that_is_broken_or_cut_costs_only_itself():
    whole = sml(b"\x76\x05\x00\x00 meter")
    broken = whole.replace(b"meter", b"metre")

    assert split(SmlFramer(), broken, whole, whole[:14], whole, b"\x00" * 9, whole) == [b"\x76\x05\x00\x00 meter"] * 3


def test_m_bus_frames_are_given_by_what_their_checksum_protects():
    long, short = bytes.fromhex("6804046808057201 80 16"), bytes.fromhex("1040014116")

    assert split(MBusFramer(), b"\xff", long, short, b"\xe5") == [bytes.fromhex("08057201"), b"\x40\x01", b"\xe5"]
    assert split(MBusFramer(), long[:-2] + b"\x81\x16", short) == [b"\x40\x01"]


@pytest.mark.parametrize(
    "content",
    ["0103 02 0001", "0106 0001 0002", "0183 02", "0116 0001 0002 0003", "0110 0001 0002", "0104 04 00010002"],
)
def test_modbus_answers_are_given_without_their_crc(content):
    content = bytes.fromhex(content)
    frame = content + crc16_modbus(content).to_bytes(2, "little")

    assert split(ModbusRtuFramer(), frame[:3], frame[3:]) == [content]
    assert split(ModbusRtuFramer(), frame[:-1] + bytes((frame[-1] ^ 1,)), *[frame] * 60)[-1] == content


@pytest.mark.parametrize("framer", [SlipFramer, CobsFramer, HdlcFramer, P1Framer, SmlFramer])
def test_an_impossible_size_is_refused(framer):
    with pytest.raises(InvalidValue, match="max_size"):
        framer(max_size=3)
    with pytest.raises(InvalidType, match="max_size"):
        framer(max_size="big")
