import errno
from concurrent.futures import Future

import pytest

from leadsman.adapters.serial.port import advice, checked_url, close_late, recommend_by_id
from leadsman.errors import InvalidType, InvalidValue


@pytest.mark.parametrize("url", ["/dev/ttyUSB0", "COM3", "socket://gateway.lan:2001", "rfc2217://[::1]:2001"])
def test_a_path_and_a_gateway_are_names_of_a_port(url):
    assert checked_url(url) == url


@pytest.mark.parametrize(
    "url", ["", " ", "a\0b", "socket://gateway.lan", "socket://:5", "http://x:1", "socket://x:99999"]
)
def test_what_names_no_port_is_refused_with_what_to_write(url):
    with pytest.raises(InvalidValue, match="write a path"):
        checked_url(url)


def test_what_is_no_text_is_refused():
    with pytest.raises(InvalidType, match="write a path"):
        checked_url(5)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (FileNotFoundError(errno.ENOENT, "no such file"), "is the device plugged in?"),
        (OSError("could not open port: [Errno 2] No such file"), "is the device plugged in?"),
        (PermissionError(errno.EACCES, "denied"), "usermod -aG dialout"),
        (OSError(errno.EBUSY, "busy"), "another program has it open"),
        (ValueError(errno.EINVAL, "invalid"), "check baudrate"),
        (OSError("something else"), "something else"),
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
