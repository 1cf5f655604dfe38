"""A meter without hardware, for tests, demos and dry runs."""

from collections.abc import Callable

from leadsman.adapters.serial.metering import P1Framer
from leadsman.testing import SerialTwin

TELEGRAM = (
    b"/DEMO5\\demo\r\n"
    b"\r\n"
    b"1-0:1.8.1(%010.3f*kWh)\r\n"
    b"1-0:1.7.0(00.412*kW)\r\n"
    b"0-0:96.14.0(0001)\r\n"
    b"1-0:32.7.0(230.1*V)\r\n"
    b"!\r\n"
)
"""With room for the energy used."""


def simulated_port() -> SerialTwin:
    """A port on which a meter sends a telegram every second."""
    return SerialTwin(says=telegrams(), framer=P1Framer())


def telegrams() -> Callable[[], tuple[float, bytes]]:
    """A function that gives the next telegram, and the seconds until it comes."""
    energy = 1234.0

    def following() -> tuple[float, bytes]:
        nonlocal energy
        energy += 0.001
        return 1.0, TELEGRAM % energy

    return following
