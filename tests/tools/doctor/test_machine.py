"""What is read of the machine: the state directory, serial ports, and the switches of radios."""

import os
import socket
from pathlib import Path

import pytest

from leadsman.tools.doctor import examination


def test_the_machine_is_read_without_a_state_directory():
    found = examination.look_at_machine(None)

    assert found.state is None
    assert found.python.startswith("3.")
    assert [disk.free > 0 for disk in found.disks]


def test_a_state_directory_that_is_not_there_is_not_made(tmp_path):
    found = examination.look_at_machine(tmp_path / "a" / "b")

    assert found.state == (tmp_path / "a" / "b", False, True, 0o700)
    assert list(tmp_path.iterdir()) == []


def test_the_permissions_of_a_state_directory_are_seen(tmp_path):
    tmp_path.chmod(0o777)

    assert examination.state_of(tmp_path).mode == 0o777


def test_a_file_is_no_state_directory(tmp_path):
    (tmp_path / "file").write_text("")

    assert not examination.state_of(tmp_path / "file").writable


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ([], None),
        ([("wlan", "1", "1")], None),
        ([("bluetooth", "0", "0")], None),
        ([("bluetooth", "0", "1")], "soft"),
        ([("bluetooth", "1", "1")], "hard"),
        ([("bluetooth", "0", "1"), ("bluetooth", "0", "0")], None),
    ],
)
def test_a_radio_is_blocked_if_every_one_is(tmp_path, switches, expected):
    for number, (kind, hard, soft) in enumerate(switches):
        directory = tmp_path / f"rfkill{number}"
        directory.mkdir()
        for name, value in (("type", kind), ("hard", hard), ("soft", soft)):
            (directory / name).write_text(value + "\n")

    assert examination.switch(tmp_path) == expected


def test_the_programs_that_hold_a_port_are_named_and_others_are_not(tmp_path):
    for pid, name, target in (
        ("12", "gpsd", "/dev/port"),
        ("13", "cat", "/dev/other"),
        (str(os.getpid()), "me", "/dev/port"),
    ):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "comm").write_text(name + "\n")
        (tmp_path / pid / "fd" / "3").symlink_to(target)
    (tmp_path / "14").mkdir()  # of another user

    assert examination.holders("/dev/port", tmp_path) == ("gpsd (12)",)


def test_a_file_is_no_serial_port(tmp_path):
    (tmp_path / "file").write_text("")

    assert not examination.look_at_port(str(tmp_path / "file"), Path("/nowhere")).device


def test_a_gateway_without_an_address_is_named(monkeypatch):
    def nobody(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)

    assert examination.look_at_port("socket://gateway.lan:1").fault == "Name or service not known"


@pytest.mark.parametrize("url", ["socket://gateway.lan:modbus", "socket://gateway.lan:99999", "socket://[::1"])
def test_an_address_that_cannot_be_one_is_a_finding(url):
    assert examination.look_at_port(url).fault
