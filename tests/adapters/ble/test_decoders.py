"""What the parsers of sensors make of advertisements. The bytes are made by hand from the published formats."""

import pytest

from leadsman.adapters.ble import Advertisement, Recognised, decoders, recognise
from leadsman.extras import missing

BTHOME = "0000fcd2-0000-1000-8000-00805f9b34fb"
GOVEE = {0xEC88: bytes.fromhex("00036da56400")}
APPLE = {0x004C: bytes(20)}
RUUVI = {0x0499: bytes.fromhex("0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F")}
CLIMATE = {BTHOME: bytes.fromhex("40006402c409032617")}
ENCRYPTED = {BTHOME: bytes.fromhex("41a47266c95f730011223378237214")}


def heard(name=None, manufacturer=None, service_data=None, address="AA:BB:CC:DD:EE:FF", rssi=-60):
    return Advertisement(address, name, rssi, (), manufacturer or {}, service_data or {})


@pytest.mark.parametrize(
    ("advertisement", "known"),
    [
        (heard("GVH5075_1234", GOVEE), Recognised("govee", "H5075")),
        (heard("GVH5075_1234", APPLE | GOVEE), Recognised("govee", "H5075")),
        (heard(manufacturer=RUUVI), Recognised("ruuvitag", "RuuviTag")),
        (heard("SBHT-003C", service_data=CLIMATE), Recognised("bthome", "BLU H&T")),
        (heard(service_data=ENCRYPTED), Recognised("bthome", "BTHome sensor")),
        (heard("My Phone", APPLE), None),
        (heard(), None),
        (heard(manufacturer={0x0499: b"\x05"}, service_data={BTHOME: b""}), None),
    ],
)
def test_the_decoder_and_the_model_of_an_advertisement_are_known(advertisement, known):
    assert recognise(advertisement) == known


def test_without_the_packages_bthome_alone_is_recognised(monkeypatch):
    def load():
        raise missing("decoders of Bluetooth sensors", "govee-ble", "ble-decoders")

    monkeypatch.setattr(decoders, "load", load)

    assert recognise(heard(service_data=CLIMATE)) == Recognised("bthome", "BTHome sensor")
    assert recognise(heard("GVH5075_1234", GOVEE)) is None
