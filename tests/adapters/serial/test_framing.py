import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.modbus.framing import ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.serial.framing import DelimiterFramer, FixedFramer, LengthPrefixedFramer, LineFramer, Stream
from leadsman.adapters.serial.metering import MBusFramer, P1Framer, SmlFramer
from leadsman.adapters.serial.stuffing import CobsFramer, HdlcFramer, SlipFramer, cobs, hdlc, slip
from leadsman.errors import InvalidType, InvalidValue

FRAMERS = [
    LineFramer(max_size=16),
    LineFramer(b"\r\n", max_size=16),
    DelimiterFramer(b"<", b">", max_size=16),
    DelimiterFramer(b"/*", b"*/", trailer=2, max_size=24),
    FixedFramer(4),
    FixedFramer(6, begin=b"\xaa\xbb", check=lambda message: sum(message[:-1]) % 256 == message[-1]),
    LengthPrefixedFramer(max_size=16),
    LengthPrefixedFramer(b"\x68", length_size=2, byteorder="little", extra=1, max_size=32),
    SlipFramer(max_size=24),
    CobsFramer(max_size=24),
    HdlcFramer(max_size=24),
    P1Framer(max_size=40),
    SmlFramer(max_size=40),
    MBusFramer(),
    ModbusRtuFramer(),
    ModbusTcpFramer(),
]
MODBUS = bytes.fromhex("010306002200000000d972")  # read holding registers: 0x22, 0, 0
MBUS = bytes.fromhex("68030368080500 0d16")
framers = st.sampled_from(FRAMERS)
streams = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([b"\n", b"\r\n", b"<", b">", b"/*", b"*/", b"\xaa\xbb", b"\x68", b"\x00" * 40]),
        st.sampled_from([slip(b"\xc0\xdba"), cobs(b"a\x00b"), hdlc(b"\x7e\x7d"), b"\xc0\xdb", b"\x7e", b"\x7d"]),
        st.sampled_from([b"/a\r\n\r\n!\r\n", b"\n!12AB\r\n", b"\x1b" * 4, b"\x01" * 4, b"\x1a\x00", MODBUS, MBUS]),
    ),
    max_size=20,
).map(b"".join)


def split(framer, *pieces):
    stream = Stream(framer)
    return [message for piece in pieces for message in stream.feed(piece)], stream


def test_lines_are_given_without_their_end():
    assert split(LineFramer(), b"21.5\n22.0\r\n\nrest")[0] == [b"21.5", b"22.0", b""]


def test_a_line_may_come_byte_by_byte():
    assert split(LineFramer(), *(bytes([byte]) for byte in b"21.5\n22.0\n"))[0] == [b"21.5", b"22.0"]


def test_a_line_that_is_too_long_is_discarded_up_to_its_end_and_the_next_one_read():
    messages, stream = split(LineFramer(max_size=10), b"x" * 1_000_000, b"still", b" it\n", b"good\n")

    assert messages == [b"good"]
    assert stream.discarded == 1_000_000 + 9
    assert stream.waiting == 0


def test_delimited_messages_are_given_whole_and_noise_between_them_discarded():
    messages, stream = split(DelimiterFramer(b"/", b"!", trailer=4), b"noise/KFM5 1.8.0!A1B2\r\n/KFM5", b" 2!C3D4")

    assert messages == [b"/KFM5 1.8.0!A1B2", b"/KFM5 2!C3D4"]
    assert stream.discarded == 7


def test_a_message_whose_end_was_lost_does_not_swallow_the_next_one():
    messages, _ = split(DelimiterFramer(b"<", b">", max_size=12), b"<cut of here, and noise <good>")

    assert messages == [b"<good>"]


def test_a_message_with_a_bad_checksum_is_searched_for_the_next_beginning():
    framer = FixedFramer(3, begin=b"\x01", check=lambda message: message[2] == 0xFF)

    assert split(framer, b"\x01\x01\x02\xff\x01\x05\xff")[0] == [b"\x01\x02\xff", b"\x01\x05\xff"]


def test_length_prefixed_messages_are_given_whole():
    framer = LengthPrefixedFramer(b"\x41", extra=1)

    assert split(framer, b"\x00\x41\x02ab\xc4\x41", b"\x00\x41")[0] == [b"\x41\x02ab\xc4", b"\x41\x00\x41"]


def test_an_impossible_length_is_garbage():
    messages, stream = split(LengthPrefixedFramer(b"\x68", length_size=2, max_size=10), b"\x68\xff\xff\x68\x00\x01z")

    assert messages == [b"\x68\x00\x01z"]
    assert stream.discarded == 3


def test_a_line_that_is_too_long_stays_so_when_its_end_comes_in_two_pieces():
    assert split(LineFramer(b"\r\n", max_size=4), b"too long\r", b"\nnext\r\n")[0] == [b"next"]


@given(framers, streams, st.lists(st.integers(1, 50), max_size=30))
def test_it_does_not_matter_how_the_bytes_are_cut(framer, data, cuts):
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(data[at : at + cut])
        at += cut

    in_pieces, _ = split(framer, *pieces, data[at:])

    assert in_pieces == split(framer, data)[0]


@given(framers, streams)
def test_whatever_comes_in_memory_is_bounded_and_every_byte_accounted_for(framer, data):
    stream, given_back = Stream(framer), 0
    for at in range(0, len(data), 7):
        for message in stream.feed(data[at : at + 7]):
            assert len(message) <= framer.max_size
            given_back += len(message)
        assert stream.waiting <= framer.max_size + 7

    assert given_back + stream.discarded + stream.waiting <= len(data)


@pytest.mark.parametrize(
    ("framer", "good"),
    [
        (FRAMERS[0], b"\ngood\n"),
        (FRAMERS[2], b">" * 20 + b"<good>"),
        (FRAMERS[3], b"*/" * 20 + b"/*good*/cc"),
        (FRAMERS[5], b"\x00" * 10 + b"\xaa\xbb\x01\x02\x03\x6b"),
        (FRAMERS[7], b"\x00" * 40 + b"\x68\x02\x00ab\xff"),
        (FRAMERS[8], slip(b"good")),
        (FRAMERS[9], b"\x00" + cobs(b"good")),
        (FRAMERS[10], hdlc(b"good")),
        (FRAMERS[11], b"\n" * 40 + b"/good\r\n\r\n!\r\n"),
        (FRAMERS[12], bytes(40) + bytes.fromhex("1b1b1b1b01010101") + b"good" + bytes.fromhex("1b1b1b1b1a007d3d")),
        (FRAMERS[13], b"\x00" * 300 + MBUS),
        (FRAMERS[14], b"\x00" * 300 + MODBUS),
    ],
)
@given(noise=st.binary(max_size=200))
def test_after_garbage_it_finds_back(framer, good, noise):
    stream = Stream(framer)
    stream.feed(noise)

    found = [message for _ in range(8) for message in stream.feed(good)]

    assert any(b"good" in message or message in good for message in found)


def test_a_reset_forgets_the_beginning_of_a_message():
    stream = Stream(LineFramer())
    stream.feed(b"stale beg")

    stream.reset()

    assert stream.feed(b"fresh\n") == [b"fresh"]
    assert stream.discarded == 9


def test_a_framer_of_ones_own_needs_two_names():
    class Pairs:
        max_size = 2

        def find(self, buffer, start):
            return (bytes(buffer[start : start + 2]), start + 2) if len(buffer) >= start + 2 else (None, start)

    assert split(Pairs(), b"abc", b"d")[0] == [b"ab", b"cd"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LineFramer(b""),
        lambda: LineFramer(max_size=0),
        lambda: DelimiterFramer(b"", b"!"),
        lambda: DelimiterFramer(b"/", b"!", max_size=1),
        lambda: DelimiterFramer(b"/", b"!", trailer=-1),
        lambda: FixedFramer(0),
        lambda: FixedFramer(1, begin=b"ab"),
        lambda: LengthPrefixedFramer(length_size=3),
        lambda: LengthPrefixedFramer(byteorder="middle"),
    ],
)
def test_an_impossible_framer_is_refused(make):
    with pytest.raises(InvalidValue):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: LineFramer("\n"),
        lambda: LineFramer(max_size=True),
        lambda: FixedFramer(2.0),
        lambda: FixedFramer(4, begin="x"),
    ],
)
def test_a_framer_of_the_wrong_type_is_refused(make):
    with pytest.raises(InvalidType):
        make()
