import pytest

from leadsman.adapters.ble.advertisement import MOST_KNOWN, Advertisement, AdvertisementFilter, checked_address
from leadsman.errors import InvalidType, InvalidValue

FIRST = Advertisement("AA:BB:CC:DD:EE:FF", "sensor", -60, ("0000181a-0000-1000-8000-00805f9b34fb",), {0x0334: b"a"}, {})
OTHER = FIRST._replace(address="AA:BB:CC:DD:EE:00")


def test_at_most_one_of_a_device_in_the_time_that_is_asked_for():
    wanted = AdvertisementFilter(None, None, None, None, 10.0, changed=False)

    assert [wanted.accepts(FIRST, now) for now in (0, 5, 9.9, 10, 15, 20)] == [True, False, False, True, False, True]
    assert wanted.accepts(OTHER, 21)


def test_only_what_differs_from_the_last_one_signal_strength_aside():
    wanted = AdvertisementFilter(None, None, None, None, 0.0, changed=True)
    stronger, later = FIRST._replace(rssi=-40), FIRST._replace(manufacturer={0x0334: b"b"})

    accepted = [wanted.accepts(each, 0) for each in (FIRST, FIRST, stronger, later, later, FIRST, OTHER)]

    assert accepted == [True, False, False, True, False, True, True]


def test_a_city_full_of_devices_is_forgotten_again():
    wanted = AdvertisementFilter(None, None, None, None, 60.0, changed=True)

    for number in range(3 * MOST_KNOWN):
        wanted.accepts(FIRST._replace(address=str(number)), number)

    assert len(wanted._last) == MOST_KNOWN


def test_an_address_may_be_written_as_people_do():
    assert checked_address(" aa-bb-cc-dd-ee-ff ") == checked_address("aa:bb:cc:dd:ee:ff") == FIRST.address
    for wrong, error in (("aa:bb", InvalidValue), ("gg:bb:cc:dd:ee:ff", InvalidValue), (5, InvalidType)):
        with pytest.raises(error, match="not a Bluetooth address"):
            checked_address(wrong)
