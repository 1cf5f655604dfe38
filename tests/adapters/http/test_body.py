import contextlib
import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.http.answer import AnswerTooLong, Body
from leadsman.errors import GarbledData

MAX_BYTES = 10_000
PACKERS = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": lambda content: b"".join(gzip.compress(content[i : i + 700]) for i in range(0, len(content) or 1, 700)),
    "deflate": zlib.compress,
    "Deflate": lambda content: zlib.compress(content, wbits=-15),
}
"""Also several members of gzip behind each other, and a deflate without its header."""


def unpacked(encoding, packed, cuts, most=MAX_BYTES):
    body = Body(encoding, most)
    begin = 0
    for end in sorted({*(cut % (len(packed) + 1) for cut in cuts), len(packed)}):
        body.feed(packed[begin:end])
        begin = end
    return body.finish()


@given(st.sampled_from([*PACKERS]), st.binary(max_size=MAX_BYTES), st.lists(st.integers(3, 2**16), max_size=8))
def test_whatever_is_packed_comes_out_as_it_was_in_whatever_pieces(encoding, content, cuts):
    assert unpacked(encoding, PACKERS[encoding](content), cuts) == content


@given(st.sampled_from([*PACKERS]), st.integers(1, 300), st.integers(1, 10**6))
def test_what_is_longer_than_allowed_is_refused(encoding, most, more):
    with pytest.raises(AnswerTooLong, match=f"longer than {most:,} bytes"):
        unpacked(encoding, PACKERS[encoding](b"0" * (most + more)), [], most)


@given(st.sampled_from(["gzip", "deflate"]), st.binary(max_size=300))
def test_noise_is_read_or_refused_by_name(encoding, noise):
    with contextlib.suppress(GarbledData):
        unpacked(encoding, noise, [7])


@given(st.binary(min_size=1, max_size=500), st.integers(1, 400))
def test_a_packed_answer_that_breaks_off_is_never_taken_for_a_whole_one(content, missing):
    packed = gzip.compress(content)
    missing = min(missing, len(packed) - 1)

    with pytest.raises(GarbledData):
        unpacked("gzip", packed[:-missing], [])


def test_a_bomb_costs_no_memory_whichever_way_it_is_made():
    empty_blocks = gzip.compress(b"")[:10] + b"\x00\x00\x00\xff\xff" * 200_000
    empty_members = gzip.compress(b"") * 50_000
    for bomb in (gzip.compress(b"0" * 50_000_000), empty_blocks, empty_members):
        tracemalloc.start()
        with pytest.raises(AnswerTooLong):
            unpacked("gzip", bomb, range(1000, len(bomb), 1000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()
