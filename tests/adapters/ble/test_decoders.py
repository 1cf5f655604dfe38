"""What the parsers of sensors make of advertisements. The bytes are made by hand from the published formats."""

import logging
import math
import re
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from leadsman import Sensor
from leadsman.adapters.ble import Advertisement, BindKey, Decoders, Recognised, decoders, recognise
from leadsman.errors import InvalidType, InvalidValue, missing

BTHOME = "0000fcd2-0000-1000-8000-00805f9b34fb"
XIAOMI = "0000fe95-0000-1000-8000-00805f9b34fb"
ADDRESS = "54:48:E6:8F:80:A5"
KEY = "231d39c1d7cc1ab1aee224cd096db932"
GOVEE = {0xEC88: bytes.fromhex("00036da56400")}
APPLE = {0x004C: bytes(20)}
RUUVI = {0x0499: bytes.fromhex("0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F")}
CLIMATE = {BTHOME: bytes.fromhex("40006402c409032617")}
XIAOMI_IS_HERE = find_spec("xiaomi_ble") is not None
needs_xiaomi = pytest.mark.skipif(not XIAOMI_IS_HERE, reason="xiaomi-ble cannot be had for this Python")


def heard(name=None, manufacturer=None, service_data=None, address=ADDRESS, rssi=-60):
    return Advertisement(address, name, rssi, (), manufacturer or {}, service_data or {})


def encrypted(counter, temperature=21.5, key=KEY, address=ADDRESS):
    """A BTHome sensor that encrypts (https://bthome.io/encryption)."""
    plain = b"\x02" + round(temperature * 100).to_bytes(2, "little", signed=True)
    count = counter.to_bytes(4, "little")
    nonce = bytes.fromhex(address.replace(":", "")) + b"\xd2\xfc\x41" + count
    sealed = AESCCM(bytes.fromhex(key), tag_length=4).encrypt(nonce, plain, None)
    return heard(service_data={BTHOME: b"\x41" + sealed[:-4] + count + sealed[-4:]}, address=address)


def xiaomi(counter, content):
    """A Xiaomi LYWSDCGQ, which advertises one value at a time."""
    mac = bytes.fromhex(ADDRESS.replace(":", ""))[::-1]
    return heard(service_data={XIAOMI: b"\x50\x20\xaa\x01" + bytes([counter]) + mac + bytes.fromhex(content)})


def tilt(fahrenheit, gravity):
    """A Tilt, which is an iBeacon."""
    return {
        0x004C: bytes.fromhex("0215a495bb30c5b14b44b5121370f02d74de") + struct.pack(">HHb", fahrenheit, gravity, -59)
    }


def rapt(version, valid=True):
    """The metrics of a RAPT Pill; as in version 1, if it is that one."""
    middle = bytes(6) if version == 1 else struct.pack(">x?f", valid, -1.5)
    return b"PT" + bytes((version,)) + middle + struct.pack(">Hfhhhh", 37509, 1050.0, 16, 16, 16, 25600)


@pytest.mark.parametrize(
    ("advertisement", "known"),
    [
        (heard("GVH5075_1234", GOVEE), Recognised("govee", "H5075")),
        (heard("GVH5075_1234", APPLE | GOVEE), Recognised("govee", "H5075")),
        (heard(manufacturer=RUUVI), Recognised("ruuvitag", "RuuviTag")),
        (heard("SBHT-003C", service_data=CLIMATE), Recognised("bthome", "BLU H&T")),
        (encrypted(7), Recognised("bthome", "BTHome sensor", encrypts=True)),
        pytest.param(xiaomi(1, "0d1004fc002202"), Recognised("xiaomi", "LYWSDCGQ"), marks=needs_xiaomi),
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
    assert recognise(encrypted(7)) == Recognised("bthome", "BTHome sensor", encrypts=True)
    assert recognise(heard("GVH5075_1234", GOVEE)) is None
    assert recognise(heard(service_data={BTHOME: b""})) is None


def described(measurement):
    """What the fields say: unit, device class and state class of each."""
    found = {name: kind.__metadata__[0] for name, kind in measurement.fields.items()}
    assert all(isinstance(each, Sensor) for each in found.values())
    return {name: (each.unit, each.device_class, each.state_class) for name, each in found.items()}


class TestValues:
    def test_a_sensor_has_values_units_and_classes(self):
        found = Decoders().decode(heard("GVH5075_1234", GOVEE), 1.0)

        assert found.values == {"temperature": 22.4, "humidity": 67.7, "battery": 100}
        assert described(found)["temperature"] == ("°C", "temperature", "measurement")
        assert described(found)["battery"] == ("%", "battery", "measurement")
        assert (found.title, found.decoder, found.model) == ("Govee H5075 80A5", "govee", "H5075")

    def test_a_value_of_a_class_that_home_assistant_does_not_have_keeps_its_unit(self):
        found = Decoders().decode(heard(manufacturer=RUUVI), 1.0)

        assert found.values["acceleration_z"] == 10.16
        assert described(found)["acceleration_z"] == ("m/s²", None, "measurement")
        assert described(found)["pressure"] == ("hPa", "pressure", "measurement")

    def test_what_is_counted_is_a_total_and_yes_or_no_has_a_class(self):
        data = {BTHOME: bytes.fromhex("400a138a142101")}

        found = Decoders().decode(heard(service_data=data), 1.0)

        assert found.values == {"energy": 1346.067, "motion": True}
        assert described(found) == {
            "energy": ("kWh", "energy", "total_increasing"),
            "motion": (None, "motion", None),
        }

    @needs_xiaomi
    def test_a_sensor_that_advertises_one_value_at_a_time_has_those_of_some_minutes_as_its_state(self):
        heard_by = Decoders()

        first = heard_by.decode(xiaomi(1, "041002fc00"), 1.0)
        second = heard_by.decode(xiaomi(2, "0610022202"), 2.0)
        third = heard_by.decode(xiaomi(3, "0610022302"), 1.0 + decoders.RECENT)

        assert (first.values, first.recent) == ({"temperature": 25.2}, {"temperature": 25.2})
        assert (second.values, second.recent) == ({"humidity": 54.6}, {"temperature": 25.2, "humidity": 54.6})
        assert (third.values, third.recent) == ({"humidity": 54.7}, {"humidity": 54.7})
        assert third.fields.keys() == {"temperature", "humidity"}

    def test_the_fields_are_the_same_object_while_there_is_no_new_kind(self):
        heard_by = Decoders()
        first, second = (heard_by.decode(heard("GVH5075_1234", GOVEE), at) for at in (1.0, 2.0))

        assert second.fields is first.fields

    def test_what_is_no_sensor_is_counted_and_not_kept(self):
        heard_by = Decoders()

        assert heard_by.decode(heard("My Phone", APPLE), 1.0) is None
        assert heard_by.health == {"sensors": 0, "unknown": 1}


class TestSilence:
    """Values are those of this packet: nothing of an earlier one is said again."""

    @pytest.mark.parametrize(
        "value",
        [
            heard("GVH5075_1234", GOVEE),
            pytest.param(xiaomi(1, "0d1004fc002202"), marks=needs_xiaomi),
            heard(manufacturer=RUUVI),
        ],
    )
    def test_a_packet_without_data_has_no_values_and_a_parser_stays(self, value):
        heard_by = Decoders()
        assert heard_by.decode(value, 0.0)

        bare = value._replace(manufacturer={}, service_data={}, name=value.name or "sensor")
        assert [heard_by.decode(bare, float(at)) for at in range(1, 200)] == [None] * 199
        assert heard_by.health == {"sensors": 1, "decoded": 1, "empty": 199}
        assert heard_by.decode(value, 200.0) or value.service_data, "a sensor that counts its packets repeats one"

    def test_values_that_stay_the_same_are_values_of_each_packet_also_beside_other_data(self):
        heard_by, both = Decoders(), heard("GVH5075_1234", APPLE | GOVEE)

        found = [heard_by.decode(both, float(at)) for at in range(5)]

        assert [each.values for each in found] == [{"temperature": 22.4, "humidity": 67.7, "battery": 100}] * 5

    def test_what_was_read_of_a_packet_before_it_was_garbled_is_in_no_later_one(self, monkeypatch):
        heard_by = Decoders()
        assert heard_by.decode(heard("GVH5075_1234", GOVEE), 0.0)
        parser = heard_by._sensors[ADDRESS]._parser
        start = parser._start_update

        def stumble(data):
            start(data)
            if data.manufacturer_data:
                raise IndexError

        monkeypatch.setattr(parser, "_start_update", stumble)
        assert heard_by.decode(heard("GVH5075_1234", {0xEC88: bytes.fromhex("0003c5ec6400")}), 1.0) is None
        monkeypatch.undo()

        other = heard("GVH5075_1234", APPLE)
        assert heard_by.decode(other, 2.0) is None
        assert heard_by.health["garbled"] == 1

    @given(st.lists(st.sampled_from(range(5)), max_size=12))
    def test_what_a_packet_says_does_not_depend_on_those_before_it(self, order):
        packets = [
            heard("GVH5075_1234", GOVEE),
            heard("GVH5075_1234", GOVEE | APPLE),
            heard("GVH5075_1234", APPLE),
            heard("GVH5075_1234", {0xEC88: bytes.fromhex("0003c5ec6400")}),
            heard("GVH5075_1234"),
        ]
        values = [found and found.values for found in (Decoders().decode(each, 0.0) for each in packets)]
        heard_by = Decoders()

        for at, number in enumerate(order):
            found = heard_by.decode(packets[number], float(at))
            assert (found and found.values) == values[number]


class TestUnknown:
    """A value that a sensor does not know, or that means something else, is no number."""

    def test_a_sensor_that_reports_an_error_has_no_value_and_no_earlier_one(self):
        heard_by = Decoders()
        assert heard_by.decode(heard("GVH5075_1234", GOVEE), 0.0).recent["temperature"] == 22.4

        broken = heard_by.decode(heard("GVH5075_1234", {0xEC88: bytes.fromhex("0083 6da5 e400")}), 1.0)

        assert broken is None or (broken.values.keys() | broken.recent.keys()) <= {"battery"}
        assert heard_by.decode(heard("GVH5075_1234", GOVEE), 2.0).values["temperature"] == 22.4

    def test_a_tilt_that_sends_its_version_has_no_gravity(self):
        heard_by = Decoders()

        assert heard_by.decode(heard(manufacturer=tilt(68, 1050)), 0.0).values == {
            "temperature": 68,
            "specific_gravity": 1.05,
        }
        assert heard_by.decode(heard(manufacturer=tilt(999, 1005)), 1.0) is None
        assert heard_by.health["garbled"] == 1

    @pytest.mark.parametrize("version", range(6))
    def test_a_version_that_nobody_knows_is_not_read(self, version):
        found = Decoders().decode(heard(manufacturer={0x4152: rapt(version)}), 0.0)

        assert (found is not None) == (version in (1, 2))

    def test_a_velocity_that_is_not_valid_any_more_is_gone(self):
        heard_by = Decoders()

        assert heard_by.decode(heard(manufacturer={0x4152: rapt(2)}), 0.0).recent["specific_gravity_velocity"] == -1.5
        later = heard_by.decode(heard(manufacturer={0x4152: rapt(2, valid=False)}), 1.0)
        assert "specific_gravity_velocity" not in later.recent


class TestKeys:
    def test_an_encrypted_sensor_is_read_with_its_key(self):
        found = Decoders({ADDRESS.lower(): KEY.upper(), "AA:BB:CC:DD:EE:FF": None}).decode(encrypted(200), 1.0)

        assert found.values == {"temperature": 21.5}

    def test_a_wrong_key_is_said_once_and_counted_and_other_sensors_are_read(self, caplog):
        heard_by = Decoders({ADDRESS: "00" * 16})
        for at in range(20):
            assert heard_by.decode(encrypted(200 + at), float(at)) is None

        assert heard_by.health == {"sensors": 1, "wrong_key": 20}
        assert [each.getMessage() for each in caplog.records] == [
            f"{ADDRESS} (BTHome sensor): its bind key in the settings is not the one with which it encrypts; write the"
            " right one"
        ]
        assert heard_by.decode(heard("GVH5075_1234", GOVEE, address="AA:AA:AA:AA:AA:AA"), 30.0) is not None

    def test_a_key_that_is_missing_is_said_and_a_flood_of_such_sensors_is_no_flood_of_lines(self, caplog):
        heard_by = Decoders()
        for number in range(500):
            address = f"AA:AA:AA:AA:{number // 256:02X}:{number % 256:02X}"
            assert heard_by.decode(encrypted(200, address=address), 1.0) is None

        assert heard_by.health["no_key"] == 500
        assert 1 <= len(caplog.records) <= 5
        assert "it encrypts its values; write its bind key in the settings" in caplog.text

    def test_a_message_that_somebody_sends_again_is_no_reading(self):
        heard_by = Decoders({ADDRESS: KEY})

        assert heard_by.decode(encrypted(900, 21.5), 1.0).values == {"temperature": 21.5}
        assert heard_by.decode(encrypted(901, 22.5), 10.0).values == {"temperature": 22.5}
        assert heard_by.decode(encrypted(901, 22.5), 11.0) is None
        assert heard_by.decode(encrypted(900, 21.5), 200.0) is None
        assert heard_by.decode(encrypted(500, 40.0), 300.0) is None
        assert heard_by.health["repeated"] == 3
        assert heard_by.decode(encrypted(902, 23.5), 310.0).values == {"temperature": 23.5}

    def test_a_sensor_with_a_key_is_not_believed_without_encryption(self, caplog):
        heard_by = Decoders({ADDRESS: KEY})

        assert heard_by.decode(heard(service_data=CLIMATE), 1.0) is None
        assert heard_by.health["unencrypted"] == 1
        assert "does not encrypt" in caplog.text
        assert heard_by.decode(encrypted(900), 2.0) is not None

    @pytest.mark.parametrize(
        ("keys", "error", "text"),
        [
            ({ADDRESS: "5ecre7"}, InvalidValue, "32 hexadecimal digits"),
            ({ADDRESS: SecretStr("x" * 32)}, InvalidValue, "32 hexadecimal digits"),
            ({ADDRESS: 5}, InvalidType, "write text"),
            ({"kitchen": KEY}, InvalidValue, "is not a Bluetooth address"),
        ],
    )
    def test_an_invalid_key_is_named_and_not_shown(self, keys, error, text):
        with pytest.raises(error, match=text) as found:
            Decoders(keys)
        assert "5ecre7" not in str(found.value)

    def test_in_settings_it_is_a_secret(self):
        class Settings(BaseModel):
            key: BindKey

        assert KEY not in repr(Settings(key=KEY))
        with pytest.raises(ValidationError, match="it is no bind key") as found:
            Settings(key=SecretStr("5ecre7"))
        assert "5ecre7" not in str(found.value)


DATA = st.binary(max_size=40)
ANY = st.builds(
    heard,
    st.none()
    | st.sampled_from(["sps", "tps", "xBBQ", "GVH5075_1", "TP357 (2)", "s", "HT.w", "Ink@IAM-T1"])
    | st.text(),
    st.dictionaries(
        st.sampled_from([0x4C, 0x499, 0xEC88, 0xFFFF, 0x133, 0x59, 0xDC, 0x10]) | st.integers(0, 65535), DATA
    ),
    st.dictionaries(st.sampled_from([BTHOME, XIAOMI, "0000fdcd-0000-1000-8000-00805f9b34fb"]), DATA),
    st.sampled_from([ADDRESS, "AA:AA:AA:AA:AA:AA"]),
)


class TestWhoeverIsOnTheAir:
    @given(st.lists(ANY, max_size=8))
    def test_garbage_costs_no_sensor_its_next_value(self, advertisements):
        heard_by = Decoders({ADDRESS: KEY})
        for at, each in enumerate(advertisements):
            found = heard_by.decode(each, float(at))
            assert found is None or (
                found.values.keys() <= found.recent.keys() <= found.fields.keys()
                and all(math.isfinite(value) for value in found.values.values() if isinstance(value, float))
                and all(name.isidentifier() for name in found.fields)
            )

        good = heard("GVH5075_1234", GOVEE, address="AA:AA:AA:AA:AA:BB")
        assert heard_by.decode(good, 100.0).values["temperature"] == 22.4

    def test_packages_write_nothing_into_the_log(self, caplog):
        heard_by = Decoders()
        for size in range(30):
            heard_by.decode(heard(service_data={BTHOME: b"\x40" + bytes(range(size))}), 1.0)
            heard_by.decode(heard(manufacturer={0x0499: b"\x05" * size}), 1.0)

        assert [each for each in caplog.records if each.name != "leadsman"] == []
        assert logging.getLogger("bthome_ble").level == logging.CRITICAL

    @pytest.mark.slow
    def test_nothing_is_kept_of_five_thousand_addresses(self):
        heard_by = Decoders()
        for number in range(5_000):
            address = ":".join(f"{byte:02X}" for byte in number.to_bytes(6, "big"))
            heard_by.decode(heard(manufacturer={0x004C: address.encode()}, address=address), 1.0)

        assert heard_by.health == {"sensors": 0, "unknown": 5_000}

    def test_of_too_many_sensors_those_stay_that_were_heard_last(self, monkeypatch):
        monkeypatch.setattr(decoders, "MAX_SENSORS", 20)
        heard_by = Decoders({"BB:BB:BB:BB:BB:BB": KEY})
        assert heard_by.decode(encrypted(900, address="BB:BB:BB:BB:BB:BB"), 1.0)
        for number in range(50):
            assert heard_by.decode(heard("GVH5075_1234", GOVEE, address=f"AA:AA:AA:AA:AA:{number:02X}"), 1.0)
            assert heard_by.decode(heard(manufacturer=RUUVI), 1.0)

        assert heard_by.health == {"sensors": 21, "decoded": 101}
        assert heard_by.decode(encrypted(899, address="BB:BB:BB:BB:BB:BB"), 2.0) is None, "its counter is known"

    def test_a_device_that_was_taken_for_another_is_known_again_after_a_minute(self):
        heard_by = Decoders()
        assert heard_by.decode(heard("GVH5075_1234", GOVEE), 0.0)
        for at in (1.0, 59.0, 61.0):
            assert heard_by.decode(heard(manufacturer=RUUVI), at) is None

        assert heard_by.decode(heard(manufacturer=RUUVI), 62.0).decoder == "ruuvitag"


def test_a_package_that_a_machine_cannot_have_is_done_without(monkeypatch):
    found = decoders.find_spec
    monkeypatch.setattr(decoders, "find_spec", lambda name: None if name == "xiaomi_ble" else found(name))

    there = decoders.load.__wrapped__()

    assert "xiaomi" not in there
    assert {"bthome", "govee"} <= there.keys()


PAGE = Path("docs/how-to/bluetooth-thermometers.md")
FFF0, FEE5, FDCD = (f"0000{short}-0000-1000-8000-00805f9b34fb" for short in ("fff0", "fee5", "fdcd"))
MOAT = "00001000-0000-1000-8000-00805f9b34fb"
ENVIRONMENT = "0000181a-0000-1000-8000-00805f9b34fb"
PUSHED = b"\x04" + (24_600 + 66_001 * 18_000).to_bytes(4, "little")
"""Of a SensorPush HT.w, whose company identifier is a part of its values."""
SAMPLES = {
    "bthome": (heard("ATC_8F80A5", service_data=CLIMATE), {"temperature": 25.0, "humidity": 59.26}),
    "xiaomi": (xiaomi(1, "0d1004fc002202"), {"temperature": 25.2, "humidity": 54.6}),
    "govee": (heard("GVH5075_1234", GOVEE), {"temperature": 22.4, "humidity": 67.7, "battery": 100}),
    "inkbird": (
        heard("sps", {2044: bytes.fromhex("c71200c83d5606")}),
        {"temperature": 20.44, "humidity": 48.07, "battery": 86},
    ),
    "thermopro": (heard("TP357 (2142)", {0xE6C2: bytes.fromhex("00320202")}), {"temperature": 23.0, "humidity": 50}),
    "qingping": (
        heard("Qingping Alarm Clock", service_data={FDCD: bytes.fromhex("080c344d56342d5801042001b201020164")}),
        {"temperature": 28.8, "humidity": 43.4, "battery": 100},
    ),
    "sensorpush": (
        heard("SensorPush HT.w 0CA1", {PUSHED[0] | PUSHED[1] << 8: PUSHED[2:]}),
        {"temperature": 21.5, "humidity": 45.0},
    ),
    "thermobeacon": (
        heard("ThermoBeacon", {16: bytes.fromhex("0000b002000047a4e20c8001b6024a000000")})._replace(services=(FFF0,)),
        {"temperature": 24.0, "humidity": 43.38, "battery": 100, "voltage": 3.3},
    ),
    "moat": (
        heard("Moat_S2", service_data={MOAT: bytes(10) + struct.pack("<HHH", 26214, 29360, 3000)}),
        {"temperature": 23.437, "humidity": 50.0, "voltage": 3.0, "battery": 100},
    ),
    "sensirion": (
        heard("MyCO2", {0x06D5: b"\x00\x08\x12\x34" + struct.pack("<HHH", 26214, 32768, 600)}),
        {"temperature": 25.0, "humidity": 50.0, "carbon_dioxide": 600},
    ),
    "bluemaestro": (
        heard(manufacturer={0x0133: struct.pack("!BB4xhHH", 0x0D, 90, 215, 0, 0)}),
        {"temperature": 21.5, "battery": 90},
    ),
    "ruuvitag": (heard(manufacturer=RUUVI), {"temperature": 24.3, "humidity": 53.49, "pressure": 1000.44}),
    "tilt": (heard(manufacturer=tilt(68, 1050)), {"temperature": 68, "specific_gravity": 1.05}),
    "rapt": (heard(manufacturer={0x4152: rapt(1)}), {"temperature": 19.89, "specific_gravity": 1.05, "battery": 100}),
    "kegtron": (
        heard(manufacturer={0xFFFF: struct.pack(">HHHB20s", 19550, 10000, 2500, 1, b"Pils")}),
        {"keg_size": 19.55, "volume_dispensed": 2.5, "port_name": "Pils"},
    ),
    "mopeka_iot": (
        heard(manufacturer={89: bytes((3, 96, 60, 100, 0xC0, 1, 2, 3, 4, 5))})._replace(services=(FEE5,)),
        {"temperature": 20, "battery_voltage": 3.0, "reading_quality": 100},
    ),
    "oralb": (
        heard(manufacturer={0x00DC: bytes((6, 49, 3, 3, 32, 1, 5, 0, 1, 0, 4))}),
        {"time": 65, "toothbrush_state": "running", "brushing": True},
    ),
    "switchbot": (
        heard(
            manufacturer={2409: bytes.fromhex("d7c17d5deb43de03069835")},
            service_data={"0000fd3d-0000-1000-8000-00805f9b34fb": bytes.fromhex("5400e4069835")},
        ),
        {"temperature": 24.6, "humidity": 53, "battery": 100},
    ),
}


class TestThePage:
    """It claims only what is read."""

    def test_it_names_the_decoders_that_there_are(self):
        rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
        named = re.findall(
            r"`(\w+)`",
            "".join(
                row.split("|")[1] for row in rows[: rows.index(next(row for row in rows if "switchbot" in row)) + 1]
            ),
        )

        assert set(named) == set(SAMPLES)
        assert set(SAMPLES) - set(decoders.load()) == (set() if XIAOMI_IS_HERE else {"xiaomi"})

    @pytest.mark.parametrize(
        "name", [pytest.param(each, marks=needs_xiaomi) if each == "xiaomi" else each for each in SAMPLES]
    )
    def test_each_decoder_reads_a_sensor_of_its_make_with_units(self, name):
        sample, values = SAMPLES[name]
        found = Decoders().decode(sample, 1.0)

        assert found.decoder == name
        assert values.items() <= found.values.items()
        assert found.values == found.recent
        for field, value in found.values.items():
            if value is not True and value is not False and "temperature" in field:
                assert described(found)[field][0] in ("°C", "°F")

    @pytest.mark.parametrize(
        "data", ["a4c13800112200c82d5a0b5407", "22110038c1a4d0079411540b5a0705", "22110038c1a4d00794115a07"]
    )
    def test_the_own_formats_of_the_firmwares_atc_and_pvvx_are_not_read_as_something_else(self, data):
        sensor = heard("ATC_001122", service_data={ENVIRONMENT: bytes.fromhex(data)}, address="A4:C1:38:00:11:22")

        assert Decoders().decode(sensor, 1.0) is None
        assert "themselves** are not read" in PAGE.read_text()

    @given(st.lists(st.sampled_from(sorted(SAMPLES)), max_size=8), st.booleans())
    def test_what_a_sensor_says_does_not_depend_on_what_it_said_before(self, names, bare):
        heard_by = Decoders()
        for at, name in enumerate(names):
            sample, _ = SAMPLES[name]
            sample = sample._replace(address=f"AA:AA:AA:AA:AA:{sorted(SAMPLES).index(name):02X}")
            found, alone = heard_by.decode(sample, 10.0 * at), Decoders().decode(sample, 1.0)
            assert found is None or found.values == alone.values
            if bare:
                assert heard_by.decode(sample._replace(manufacturer={}, service_data={}), 10.0 * at + 1) is None
