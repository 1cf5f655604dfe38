import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.aiomqtt_client import BINARY, CLOSE, CONTINUATION, PING, PONG, FrameError, FrameReader


def frame(opcode, content, final=True):
    """A frame of a server."""
    length = len(content)
    head = bytes([0x80 * final | opcode])
    if length <= 125:
        return head + bytes([length]) + content
    return (
        head
        + (b"\x7e" + struct.pack("!H", length) if length < 2**16 else b"\x7f" + struct.pack("!Q", length))
        + content
    )


def cut(data, places):
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]


frames = st.one_of(
    st.tuples(st.just(BINARY), st.sampled_from([0, 1, 125, 126, 65_535, 65_536]).map(bytes), st.booleans()),
    st.tuples(st.just(CONTINUATION), st.binary(max_size=9), st.booleans()),
    st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125), st.just(True)),
)


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 70_000), max_size=9))
def test_what_the_frames_carry_comes_out_wherever_they_are_cut(sent, places):
    reader, received, answers = FrameReader(), b"", []

    for piece in cut(b"".join(frame(*each) for each in sent), places):
        message, answer = reader.feed(piece)
        received += message
        answers += [] if answer is None else [answer]

    assert received == b"".join(content for opcode, content, _ in sent if opcode in (BINARY, CONTINUATION))
    assert answers[-1:] == [(PONG, content) for opcode, content, _ in sent if opcode == PING][-1:]
    assert not reader.closed


@given(st.lists(st.binary(max_size=300), max_size=9))
def test_whatever_the_broker_sends_no_more_than_a_head_is_kept_or_it_is_refused(pieces):
    reader = FrameReader()

    for piece in pieces:
        try:
            message, _ = reader.feed(piece)
        except FrameError:
            break
        assert len(message) <= len(piece)
        assert len(reader._head) < 2 + 125


def test_a_frame_that_claims_to_be_endless_comes_out_as_it_comes_in():
    reader = FrameReader()
    reader.feed(b"\x82\x7f" + struct.pack("!Q", 2**63))

    assert sum(len(reader.feed(bytes(1000))[0]) for _ in range(1000)) == 1_000_000
    assert not reader._head


def test_a_ping_is_answered_by_a_pong_that_carries_the_same():
    assert FrameReader().feed(frame(PING, b"alive?")) == (b"", (PONG, b"alive?"))


def test_nothing_counts_after_a_close_which_is_answered():
    reader = FrameReader()

    assert reader.feed(frame(CLOSE, b"\x03\xe8") + frame(BINARY, b"late")) == (b"", (CLOSE, b"\x03\xe8"))
    assert reader.closed


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (b"\x81\x02hi", "not binary"),
        (b"\x83\x00", "not binary"),
        (b"\x82\x81abcdx", "mask"),
        (frame(PING, bytes(126)), "too long"),
        (frame(PING, b"", final=False), "too long"),
    ],
)
def test_what_is_no_frame_of_a_broker_is_a_named_error(sent, named):
    with pytest.raises(FrameError, match=named):
        FrameReader().feed(sent)
