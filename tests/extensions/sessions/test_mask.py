"""What a session does not show."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.text.redaction import Secret
from leadsman.extensions.sessions.mask import Mask, same
from leadsman.extensions.sessions.session import Event


def masked(*events, addresses=True):
    mask = Mask(addresses=addresses)
    return [json.loads(mask.of(each).as_line()) for each in events]


def advertised(address, **more):
    return Event(0.0, "bluetooth", 1, "advertised", None, {"address": address, **more})


def test_the_same_address_gets_the_same_mask_wherever_it_stands():
    found = masked(
        advertised("AA:BB:CC:DD:EE:01"),
        advertised("AA:BB:CC:DD:EE:02", name="sensor aa-bb-cc-dd-ee-01"),
        Event(0.0, "bluetooth", 2, "value", b"mac=aa:bb:cc:dd:ee:02;"),
    )

    assert [each.get("address") for each in found] == ["02:00:00:00:00:01", "02:00:00:00:00:02", None]
    assert found[1]["name"] == "sensor 02-00-00-00-00-01"
    assert found[2]["text"] == "mac=02:00:00:00:00:02;"


def test_hosts_and_ports_are_masked_in_names_of_wires_bodies_and_errors():
    found = masked(
        Event(0.0, "http http://inverter.lan:8080/api", 1, "ask", b"", {"method": "GET", "url": "/status"}),
        Event(0.0, "http http://inverter.lan:8080/api", 1, "body", b'{"host": "inverter.lan", "ip": "10.0.0.7"}'),
        Event(0.0, "http", 1, "failed", None, {"error": "X", "message": "no connection to inverter.lan:8080"}),
        Event(0.0, "serial socket://10.0.0.7:4196", 1, "open"),
        Event(0.0, "serial /dev/serial/by-id/usb-FTDI_A10K5Z-if00-port0", 1, "open"),
        Event(0.0, "http http://localhost", 1, "ask", b"", {"method": "GET", "url": "/127.0.0.1/1.2.3.400"}),
    )

    assert found[0]["wire"] == "http http://host1.invalid:8080/api"
    assert json.loads(found[1]["text"]) == {"host": "host1.invalid", "ip": "192.0.2.1"}
    assert found[2]["message"] == "no connection to host1.invalid:8080"
    assert found[3]["wire"] == "serial socket://192.0.2.1:4196"
    assert found[4]["wire"] == "serial /dev/serial/by-id/port1"
    assert (found[5]["wire"], found[5]["url"]) == ("http http://localhost", "/127.0.0.1/1.2.3.400")


def test_a_serial_number_of_one_wire_becomes_one_of_the_same_family_and_a_uuid_does_not():
    uuid = "5f0c2d9e-1b7a-4c3d-8b28-000005e2fdc3"
    listed, read = masked(
        Event(0.0, "onewire x", 1, "listed", None, {"names": ["w1_bus_master1", "28-000005e2fdc3", "3b-000005e2fdc3"]}),
        Event(0.0, "onewire x", 2, "read", None, {"thermometer": "3b-000005e2fdc3", "uuid": uuid}),
    )

    assert listed["names"] == ["w1_bus_master1", "28-000000000001", "3b-000000000002"]
    assert (read["thermometer"], read["uuid"]) == ("3b-000000000002", uuid)


def test_the_command_and_the_output_of_a_program_are_masked():
    asked, ended = masked(
        Event(0.0, "program", 1, "run", None, {"command": "ping -c1 10.0.0.7"}),
        Event(0.0, "program", 1, "ended", b"10.0.0.7 is at aa:bb:cc:dd:ee:02", {"code": 0, "errors": "10.0.0.7: slow"}),
    )

    assert asked["command"] == "ping -c1 192.0.2.1"
    assert (ended["text"], ended["errors"]) == ("192.0.2.1 is at 02:00:00:00:00:01", "192.0.2.1: slow")


@pytest.mark.parametrize("wire", ["serial x", "i2c /dev/i2c-1"])
def test_the_bytes_of_serial_ports_and_i2c_keep_their_addresses_since_their_checksums_count(wire):
    (found,) = masked(Event(0.0, wire, 1, "received", b"10.0.0.7 crc"))

    assert found["text"] == "10.0.0.7 crc"


def test_without_the_option_addresses_are_kept():
    (found,) = masked(advertised("AA:BB:CC:DD:EE:01"), addresses=False)

    assert found["address"] == "AA:BB:CC:DD:EE:01"


@pytest.mark.parametrize("data", [b"token=hunter22\n", b"\xff hunter22", "ä hunter22".encode(), b"aHVudGVyMjI6eA=="])
def test_a_secret_is_hidden_in_text_and_bytes_whatever_was_asked_for(data):
    secret = Secret("hunter22")
    (found,) = masked(Event(0.0, "serial x", 1, "send", data, {"headers": {"a": ["hunter22"]}}), addresses=False)

    assert secret
    assert "hunter22" not in str(found)
    assert b"hunter22".hex(" ") not in str(found)
    assert "***" in str(found) or b"***".hex(" ") in str(found)
    assert "aHVudGVyMjI6" not in str(found)


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=4))
def test_a_hidden_part_stands_for_anything(parts):
    recorded = "***".join(parts)

    for between in ("", "x", "abab"):
        assert same(recorded, between.join(parts))
        assert same(recorded.encode(), between.join(parts).encode())


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ("a***b", "ab c"),
        ("***a", "b"),
        ("a***", "b"),
        ("ab***ba", "aba"),
        ("***x***", "aba"),
        ("a", "***"),
        (None, "a"),
    ],
)
def test_what_is_around_a_hidden_part_must_be_there(recorded, asked):
    assert not same(recorded, asked)
