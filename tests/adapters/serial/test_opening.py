import errno
import socket
from concurrent.futures import Future

import pytest

from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.port import ControlLines, advice, check_url, close_late, open_device, recommend_by_id
from leadsman.errors import InvalidType, InvalidValue


@pytest.mark.parametrize("url", ["/dev/ttyUSB0", "COM3", "socket://gateway.lan:2001", "rfc2217://[::1]:2001"])
def test_a_path_and_a_gateway_are_names_of_a_port(url):
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url", ["", " ", "a\0b", "socket://gateway.lan", "socket://:5", "http://x:1", "socket://x:99999"]
)
def test_what_names_no_port_is_refused_with_what_to_write(url):
    with pytest.raises(InvalidValue, match="write a path"):
        check_url(url)


def test_what_is_no_text_is_refused():
    with pytest.raises(InvalidType, match="write a path"):
        check_url(5)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (FileNotFoundError(errno.ENOENT, "no such file"), "is the device plugged in?"),
        (OSError("could not open port: [Errno 2] No such file"), "is the device plugged in?"),
        (PermissionError(errno.EACCES, "denied"), "usermod -aG dialout"),
        (OSError(errno.EBUSY, "busy"), "another program has it open"),
        (ValueError(errno.EINVAL, "invalid"), "check baudrate"),
        (OSError("something else"), "something else"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "check the name"),
        (OSError("Could not open port x: [Errno -2] Name or service not known"), "check the name"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed"), "nothing listens there; check"),
        (OSError(errno.EHOSTUNREACH, "no route"), "cannot be reached; check"),
        (OSError("Could not configure port: (25, 'Inappropriate ioctl for device')"), "it is no serial port; write"),
    ],
)
def test_an_error_of_opening_says_what_a_person_can_do(error, hint):
    assert hint in advice(error)


@pytest.mark.parametrize(("url", "lines"), [("/dev/ttyUSB0", 1), ("/dev/ttyACM12", 1), ("/dev/serial/by-id/x", 0)])
def test_a_port_whose_number_may_change_is_logged_with_a_better_name(caplog, url, lines):
    recommend_by_id(url)

    assert caplog.text.count("/dev/serial/by-id") == lines


def test_a_device_that_opens_too_late_is_closed():
    closed = []

    class Device:
        def close(self):
            closed.append(True)

    late, failed, cancelled = Future(), Future(), Future()
    late.set_result(Device())
    failed.set_exception(OSError("gone"))
    cancelled.cancel()

    for future in (late, failed, cancelled):
        close_late(future)

    assert closed == [True]


class Recorded:
    """Stands for a device of pyserial, and keeps what is done to it before it is opened."""

    def __init__(self, *args, **options):
        object.__setattr__(self, "done", [("made", args, options)])

    def __setattr__(self, name, value):
        self.done.append((name, value if isinstance(value, bool | str) else type(value).__name__))

    def open(self):
        self.done.append(("open",))


@pytest.mark.parametrize(
    ("lines", "done"),
    [
        (ControlLines(), []),
        (ControlLines(dtr=False, rts=True), [("dtr", False), ("rts", True)]),
        (ControlLines(rs485=True), [("rs485_mode", "RS485Settings")]),
    ],
)
def test_control_lines_have_their_levels_before_the_port_is_open(monkeypatch, lines, done):
    monkeypatch.setattr("serial.Serial", Recorded)

    device = open_device("/dev/ttyS0", {"rtscts": True}, lines)

    assert device.done == [("made", (), {"exclusive": True, "rtscts": True}), ("port", "/dev/ttyS0"), *done, ("open",)]


def test_a_port_at_a_gateway_has_its_lines_before_it_is_open(monkeypatch):
    monkeypatch.setattr("serial.serial_for_url", Recorded)

    device = open_device("rfc2217://host:2217", {"dsrdtr": False}, ControlLines(dtr=False))

    made = ("made", ("rfc2217://host:2217",), {"do_not_open": True, "dsrdtr": False})
    assert device.done == [made, ("dtr", False), ("open",)]


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("/dev/ttyS0", {"rtscts": True, "rts": False}, "rtscts and rts both move RTS"),
        ("/dev/ttyS0", {"rtscts": True, "rs485": True}, "rtscts and rs485 both move RTS"),
        ("/dev/ttyS0", {"dsrdtr": True, "dtr": True}, "dsrdtr and dtr both move DTR"),
        ("socket://host:1", {"xonxoff": True}, "xonxoff is given for socket://host:1"),
        ("socket://host:1", {"dtr": False}, "dtr is given for socket://host:1"),
        ("rfc2217://host:1", {"rs485": True}, "rs485 is given for rfc2217://host:1"),
    ],
)
def test_lines_that_cannot_be_are_named(url, options, why):
    with pytest.raises(InvalidValue, match=why):
        SerialPort(url, **options)


@pytest.mark.parametrize("option", ["rtscts", "xonxoff", "dsrdtr", "dtr", "rts", "rs485"])
def test_a_line_is_on_or_off(option):
    with pytest.raises(InvalidType, match=f"{option} is 'yes'; write True or False"):
        SerialPort("/dev/ttyS0", **{option: "yes"})
