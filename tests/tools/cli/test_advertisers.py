"""The devices that `leadsman ble scan` remembers, and how they look. Real bleak has `tests/system/test_ble_scan.py`."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.ble import Advertisement, bthome
from leadsman.adapters.ble.advertisement import check_address
from leadsman.adapters.ble.gatt import short_uuid, uuid_of
from leadsman.tools.cli.advertisers import BIND_KEY, MAX_DEVICES, MORE, Advertisers, AirView, line_of, screen
from leadsman.tools.cli.screen import cells, text_of
from leadsman.tools.cli.tables import json_text

ADDRESS = "A4:C1:38:1A:2B:3C"
QUIET = Advertisement(ADDRESS, None, -60, (), {}, {})


def recognise(advertisement):
    data = advertisement.service_data.get(bthome.SERVICE)
    return None if data is None else ("bthome", "BTHome sensor", data[:1] == b"\x41")


def heard(*advertisements):
    found = Advertisers(recognise)
    for second, each in enumerate(advertisements):
        found.hear(each, float(second))
    return found


def shown(found, size=(79, 12), view=None, now=1.0):
    rows = found.ranked()
    return [
        text_of(line, colour=False) for line in screen(rows, view or AirView(), size, now, "21:00:00", found.forgotten)
    ]


def address_of(number):
    return ":".join(f"{number:012X}"[place : place + 2] for place in range(0, 12, 2))


def test_what_a_device_advertises_in_parts_is_joined():
    found = heard(
        QUIET,
        QUIET._replace(name="ATC_1A2B3C", rssi=-50),
        QUIET._replace(service_data={bthome.SERVICE: b"\x40"}, rssi=-70),
        QUIET._replace(manufacturer={0x0334: b"1"}, services=(uuid_of("181a"),)),
    )

    (device,) = found.ranked()
    assert line_of(device) == f"{ADDRESS}  -60 dBm  ATC_1A2B3C  bthome BTHome sensor  181a fcd2 0x0334"


def test_a_device_is_news_if_something_else_than_its_signal_is():
    found = heard(QUIET, QUIET)

    assert [each.address for each in found.changed()] == [ADDRESS]
    found.hear(QUIET._replace(rssi=-40), 2.0)
    assert found.changed() == []
    found.hear(QUIET._replace(name="sensor"), 3.0)
    found.hear(QUIET._replace(manufacturer={1: b"1"}), 3.0)
    assert [each.name for each in found.changed()] == ["sensor"]
    found.hear(QUIET._replace(manufacturer={1: b"2"}), 4.0)
    assert found.changed() == []


@pytest.mark.slow
def test_of_more_addresses_than_fit_those_heard_last_are_remembered():
    found = Advertisers(recognise)
    for number in range(12_000):
        found.hear(QUIET._replace(address=address_of(number)), float(number))
        if number % 1000 == 0:
            found.hear(QUIET, float(number))

    assert (len(found), len(found.changed()), found.forgotten) == (MAX_DEVICES, MAX_DEVICES, 2_001)
    assert {each.address for each in found.ranked()} == {ADDRESS, *map(address_of, range(2_001, 12_000))}
    assert "10000 devices, 0 recognised, 2001 forgotten" in shown(found)[0]


def test_what_one_device_can_make_us_remember_is_bounded():
    found = Advertisers(recognise)
    for number in range(1000):
        found.hear(
            Advertisement(
                ADDRESS,
                "x" * 100_000,
                -60,
                tuple(uuid_of(each) for each in range(number, number + 100)),
                {number: bytes(100_000)},
                {uuid_of(number): bytes(100_000)},
            ),
            0.0,
        )

    (device,) = found.ranked()
    assert len(json.dumps(device.document())) < 20_000


def test_devices_that_a_decoder_knows_come_first_and_then_the_nearest():
    near, far = QUIET._replace(address=address_of(1), rssi=-30), QUIET._replace(address=address_of(2), rssi=-90)
    known = QUIET._replace(service_data={bthome.SERVICE: b"\x40"}, rssi=-99)

    assert [each.address for each in heard(far, near, known).ranked()] == [ADDRESS, near.address, far.address]


def test_the_screen_has_the_table_and_the_settings_of_the_chosen_device():
    known = QUIET._replace(name="Küche", service_data={bthome.SERVICE: b"\x40"})
    other = QUIET._replace(address=address_of(1), name="wave", manufacturer={0x0334: b"1"})
    found, view = heard(known, other), AirView()

    lines = shown(found, view=view)
    assert lines[:4] == [
        "leadsman ble scan  2 devices, 1 recognised                             21:00:00",
        "  address           name             signal  decoder              advertises",
        "> A4:C1:38:1A:2B:3C Küche            -60 dBm bthome BTHome sensor fcd2",
        "  00:00:00:00:00:01 wave             -60 dBm                      0x0334",
    ]
    assert lines[-4:] == [
        "# Küche, bthome BTHome sensor, -60 dBm",
        "[sensors.kuche-2b3c]",
        'address = "A4:C1:38:1A:2B:3C"',
        "q quit  ↑ ↓ choose",
    ]
    assert not view.press("down", found.ranked())
    assert shown(found, view=view)[3].startswith("> 00:00")
    assert 'address = "00:00:00:00:00:01"' in shown(found, view=view)
    assert [view.press(key, found.ranked()) for key in ("up", "page-up", "x", "q")] == [False, False, False, True]


@pytest.mark.parametrize("before", [b"\x40", b"\x41"])
def test_a_device_that_encrypts_has_a_line_for_its_bind_key_also_if_it_first_sends_something_open(before):
    found = heard(
        QUIET._replace(service_data={bthome.SERVICE: before}),
        QUIET._replace(service_data={bthome.SERVICE: b"\x41"}),
        QUIET._replace(service_data={bthome.SERVICE: b"\x40"}),
        QUIET,
    )

    (device,) = found.ranked()
    assert device.settings[-1] == BIND_KEY
    assert line_of(device).endswith("  encrypted")
    filled = "\n".join(device.settings).replace("# key", "key").replace("…", "ab" * 16)
    assert tomllib.loads(filled)["sensors"] == {"bthome-sensor-2b3c": {"address": ADDRESS, "key": "ab" * 16}}
    assert BIND_KEY in shown(found)


def test_what_could_be_recognised_is_beside_the_keys():
    lines = screen(heard(QUIET).ranked(), AirView(), (79, 12), 1.0, "21:00:00", hint=MORE)

    assert text_of(lines[-1], colour=False) == f"q quit  ↑ ↓ choose  {MORE}"


def test_an_empty_screen_says_why_nothing_may_come():
    assert "advertises seldom" in "\n".join(shown(heard()))
    assert AirView().press("down", []) is False


def test_the_chosen_device_stays_on_the_screen():
    found, view = heard(*(QUIET._replace(address=address_of(number)) for number in range(300))), AirView()
    for key in ["page-down"] * 9 + ["down"] * 7:
        view.press(key, found.ranked())
        assert len([line for line in shown(found, view=view) if line.startswith(">")]) == 1
    assert any(line.startswith("> " + address_of(97)) for line in shown(found, view=view))


@pytest.mark.parametrize("address", ["", "x" * 18, 'A4:C1"\n', "../..", "A" * 37])
def test_what_is_no_address_is_not_remembered(address):
    assert len(heard(QUIET._replace(address=address))) == 0


ADVERTISEMENTS = st.builds(
    Advertisement,
    st.integers(0, 20).map(address_of),
    st.none() | st.text(max_size=300) | st.sampled_from(["\u202egnp.exe", "\x1b]0;x\x07", "a" * 9000, '"]\nx=1']),
    st.integers(-200, 127),
    st.lists(st.integers(0, 0xFFFFFFFF).map(uuid_of) | st.uuids().map(str), max_size=40).map(tuple),
    st.dictionaries(st.integers(0, 0xFFFF), st.binary(max_size=300), max_size=40),
    st.dictionaries(st.sampled_from([bthome.SERVICE, uuid_of("181a")]), st.binary(max_size=300)),
)


@pytest.mark.slow
@given(
    st.lists(ADVERTISEMENTS, max_size=40),
    st.tuples(st.integers(1, 200), st.integers(1, 60)),
    st.lists(st.sampled_from(["up", "down", "page-down", "j"]), max_size=5),
)
def test_whatever_is_in_the_air_fits_the_screen_and_drives_no_terminal(advertisements, size, keys):
    found, view = heard(*advertisements), AirView()
    for key in keys:
        view.press(key, found.ranked())

    lines = shown(found, size, view)

    assert len(lines) <= size[1]
    for line in lines:
        assert cells(line) <= size[0]
        assert line.isprintable()


@pytest.mark.slow
@given(st.lists(ADVERTISEMENTS, min_size=1, max_size=20))
def test_the_settings_of_any_device_can_be_pasted_together_with_those_of_others(advertisements):
    found = heard(*advertisements).ranked()

    pasted = tomllib.loads("\n".join(line for each in found for line in each.settings))

    addresses = [each["address"] for each in pasted["sensors"].values()]
    assert addresses == [check_address(each.address) for each in found]
    for each in found:
        assert all(line.isprintable() for line in each.settings)
        assert json.loads(json_text(each.document()))["address"] == each.address


@given(st.integers(0, 0xFFFFFFFF) | st.uuids().map(str))
def test_a_short_uuid_stands_for_the_same_one(uuid):
    assert uuid_of(short_uuid(uuid_of(uuid))) == uuid_of(uuid)
    assert short_uuid(uuid_of(0x2A6E)) == "2a6e"
