"""What is in a packet of the air: the same as bumble's parser finds, and nothing in garbage."""

from bumble.core import UUID, AdvertisingData
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman.adapters.ble.advertisement import decode_packet
from leadsman.adapters.ble.gatt import uuid_of

ADDRESS = 0xF0_11_22_33_44_55
SIZES = {0x02: 2, 0x03: 2, 0x04: 4, 0x05: 4, 0x06: 16, 0x07: 16}
STRUCTURES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0x16]), st.binary(min_size=2, max_size=20)),
        st.tuples(st.sampled_from([0x21]), st.binary(min_size=16, max_size=20)),
        st.tuples(st.just(0xFF), st.binary(min_size=2, max_size=20)),
        st.tuples(st.sampled_from([0x08, 0x09]), st.text(max_size=8).map(str.encode)),
        *(st.tuples(st.just(kind), st.binary(min_size=size, max_size=size)) for kind, size in SIZES.items()),
        st.tuples(st.sampled_from([0x01, 0x0A, 0x19, 0x2D]), st.binary(max_size=8)),
    ),
    max_size=8,
)


@given(STRUCTURES)
def test_it_finds_what_another_parser_finds(structures):
    data = bytes(AdvertisingData(structures))

    heard = decode_packet(ADDRESS, -60, data)

    theirs = AdvertisingData.from_bytes(data).ad_structures
    names = [value.decode(errors="replace") for kind, value in theirs if kind in (0x08, 0x09)]
    assert heard.address == "F0:11:22:33:44:55"
    assert heard.name == (names[-1] if names else None)
    assert heard.manufacturer == {
        int.from_bytes(value[:2], "little"): value[2:] for kind, value in theirs if kind == 0xFF
    }
    found = {}
    for kind, value in theirs:
        if kind in (0x16, 0x21):
            size = 2 if kind == 0x16 else 16
            found[full(value[:size])] = value[size:]
    assert heard.service_data == found
    assert heard.services == tuple(dict.fromkeys(full(value) for kind, value in theirs if kind in SIZES))


def full(data):
    """A complete UUID, as bumble writes it."""
    text = UUID.from_bytes(data).to_hex_str("-").lower()
    return text if len(text) == 36 else uuid_of(text)


@given(st.binary(max_size=80))
@example(b"\x00" * 31 + b"\x03\x16\xd2\xfc")
@example(b"\x02\x16\xd2")
@example(b"\x05\x02\xd2\xfc\x0a\x18")
@example(b"\xff\x16")
def test_garbage_is_an_advertisement_with_less_in_it(data):
    heard = decode_packet(ADDRESS, -60, data)

    assert sum(map(len, heard.service_data.values())) + sum(map(len, heard.manufacturer.values())) <= len(data)


def test_a_scan_response_behind_zeros_is_found_too():
    heard = decode_packet(ADDRESS, -60, b"\x02\x01\x06" + bytes(28) + b"\x04\x16\xd2\xfc\x40")

    assert heard.service_data == {uuid_of("fcd2"): b"\x40"}


def test_what_no_controller_reports_is_left_out():
    for address, data in ((1 << 48, b""), (-1, b""), (ADDRESS, bytes(1651))):
        assert decode_packet(address, -60, data) is None
    for rssi in (21, 127, -128, 2**31):
        assert decode_packet(ADDRESS, rssi, b"").rssi == -127
