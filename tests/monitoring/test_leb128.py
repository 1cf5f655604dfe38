from hypothesis import given
from hypothesis import strategies as st

from leadsman.monitoring import leb128


@given(st.lists(st.integers(0, 2**70)))
def test_what_is_encoded_is_decoded(numbers):
    assert leb128.decode(leb128.encode(*numbers)) == numbers


def test_a_number_has_seven_bits_in_each_byte_the_lowest_first():
    assert leb128.encode(0, 127, 128, 624485) == bytes([0, 127, 0x80, 1, 0xE5, 0x8E, 0x26])
