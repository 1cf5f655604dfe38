"""The one-wire adapter: reads thermometers through the files of the kernel's driver w1_therm
(Documentation/w1/slaves/w1_therm.rst).

A read of such a file waits in the kernel until the thermometer has measured: 750 ms, and again after a wrong checksum.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self, TypeVar

from leadsman.core.adapters.resource import Resource
from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.loop.threads import Worker
from leadsman.core.resilience.turns import SharedLine
from leadsman.core.storage.given_file import read_given
from leadsman.core.text import clean, describe, join_words
from leadsman.errors import DeviceError, DeviceUnavailable, GarbledData, InvalidType, InvalidValue, PermanentError

DEVICES = "/sys/bus/w1/devices"
"""Where the kernel lists the devices of its buses."""
THERMOMETER = "^(10|22|28|3b|42)-[0-9a-f]{12}$"
"""The name of a thermometer, as a pattern: its family (DS18S20, DS1822, DS18B20, DS1825 and DS28EA00, as w1_therm has
them) and its serial number."""
MIN_CELSIUS, MAX_CELSIUS = -55.0, 125.0
"""Degrees Celsius that these thermometers measure (their data sheets)."""
MAX_FILE_BYTES = 4096
"""Of a file, as of each in sysfs: a page."""
SHOWN = 5
"""Names that an error lists."""
_WIRING = "check the cable, and the resistor of 4.7 kΩ between data and power"
_HOW_TO_TURN_ON = "turn one-wire on: dtoverlay=w1-gpio in config.txt, then restart the machine"

_T = TypeVar("_T")

__all__ = ["THERMOMETER", "OneWire"]


class OneWireFiles(Protocol):
    """The files of the kernel. Its calls block, and raise `OSError`."""

    def names(self) -> list[str]:
        """The names in the directory."""
        ...

    def content(self, name: str) -> str:
        """The content of the file of a thermometer, which measures meanwhile."""
        ...


class OneWire:
    """The thermometers on the one-wire buses of this machine. They are read one after another.

    Args:
        root: the directory in which the kernel lists them.
        timeout: for one thermometer: it measures for 750 ms, and the kernel tries again up to four times.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(self, root: str | Path = DEVICES, *, timeout: Duration = 10.0) -> None:
        if not isinstance(root, str | Path):
            raise InvalidType(f"root is {root!r}; write the path of a directory")
        self.root = Path(root)
        """The directory of the thermometers."""
        self._timeout = positive_seconds(timeout, "timeout")
        self._turns = SharedLine(cuts=False)  # a thread makes the calls
        self._worker = Worker("one-wire")
        self._found: int | None = None

    async def __aenter__(self) -> Self:
        """Nothing is open between two reads."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End the thread. The adapter may be entered again."""
        self._worker = self._worker.renew()

    @property
    def resource(self) -> Resource:
        """For ``leadsman doctor``: the directory."""
        return Resource("onewire", str(self.root), self._check)

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: the directory, and how many thermometers the last `thermometers` found."""
        return {"root": str(self.root), "thermometers": self._found}

    async def thermometers(self) -> list[str]:
        """The names of the thermometers that are there now, such as ``28-000005e2fdc3``, in order.

        Raises:
            DeviceUnavailable: one-wire is off. A retry may help.
            PermanentError: the directory may not be read.
        """
        found = await self._in_thread(self._list)
        self._found = len(found)
        return found

    async def temperature(self, thermometer: str) -> float:
        """Measure a temperature, in degrees Celsius, -55 to 125.

        Args:
            thermometer: its name, as `thermometers` returns it.

        Raises:
            DeviceUnavailable: it is not there, or does not answer. A retry may help.
            DeviceTimeout: the kernel did not answer in time. A retry may help.
            GarbledData: the checksum is wrong, or the value was not measured. A retry may help.
            PermanentError: its file may not be read.
            InvalidValue, InvalidType: this is no name of a thermometer.
        """
        name = check_thermometer(thermometer)
        return degrees(name, await self._in_thread(lambda wire: self._measure(wire, name)))

    async def probe(self) -> None:
        """Check that one-wire is on. Raises as `thermometers`."""
        await self.thermometers()

    async def _check(self) -> None:
        async with self:
            if not await self.thermometers():
                raise DeviceUnavailable(f"there is no thermometer in {self.root}; {_WIRING}")

    async def _in_thread(self, call: Callable[[OneWireFiles], _T]) -> _T:
        async with self._turns:
            wire = wire_of("onewire", str(self.root), self._create_wire)
            return await self._worker.call(lambda: call(wire), self._timeout)

    def _create_wire(self) -> OneWireFiles:
        return _KernelFiles(self.root)

    def _list(self, wire: OneWireFiles) -> list[str]:
        try:
            return sorted(name for name in wire.names() if re.fullmatch(THERMOMETER, name))
        except FileNotFoundError as error:
            raise DeviceUnavailable(f"{self.root} does not exist; {_HOW_TO_TURN_ON}") from error
        except OSError as error:
            raise _error_of(error, f"{self.root} may not be read") from error

    def _measure(self, wire: OneWireFiles, name: str) -> str:
        try:
            return wire.content(name)
        except FileNotFoundError as error:
            there = self._list(wire)
            if name in there:
                hint = "its driver is missing: sudo modprobe w1-therm"
            else:
                found = [*there[:SHOWN], *[f"{len(there) - SHOWN} more"] * (len(there) > SHOWN)]
                hint = f"there is {join_words(found)}" if there else f"nothing is: {_WIRING}"
            raise DeviceUnavailable(f"{name} is not on the bus; {hint}") from error
        except OSError as error:
            raise _error_of(error, f"{name} does not answer") from error


class _KernelFiles:
    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> list[str]:
        return os.listdir(self._root)

    def content(self, name: str) -> str:
        return read_given(self._root / name / "w1_slave", MAX_FILE_BYTES).decode("ascii", "replace")


def check_thermometer(name: object) -> str:
    """Check the name of a thermometer. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(name, str):
        raise InvalidType(f"the thermometer is {name!r}; write its name, such as '28-000005e2fdc3'")
    if not re.fullmatch(THERMOMETER, name):
        raise InvalidValue(
            f"the thermometer is {clean(repr(name[:40]))}; write a name from {DEVICES}, such as '28-000005e2fdc3'"
        )
    return name


_CONTENT = re.compile(r"((?:[0-9a-f]{2} ){9}): crc=[0-9a-f]{2} (YES|NO)\n(?:[0-9a-f]{2} ){9}t=(-?\d{1,6})\n?")


def degrees(name: str, content: str) -> float:
    """The temperature in the file of a thermometer, in degrees Celsius.

    Raises:
        DeviceUnavailable: it is empty, as the kernel leaves it if the thermometer does not answer.
        GarbledData: it has another form, a wrong checksum, or a value that was not measured.
    """
    if not content.strip():
        raise DeviceUnavailable(f"{name} does not answer; {_WIRING}")
    found = _CONTENT.fullmatch(content)
    if found is None:
        raise GarbledData(f"the file of {name} has another form: {clean(content[:80])!r}")
    scratchpad, value = bytes.fromhex(found[1]), int(found[3]) / 1000
    if found[2] == "NO":
        raise GarbledData(f"{name}: the checksum is wrong; {_WIRING}")
    if not any(scratchpad):
        raise GarbledData(f"{name} sends only zeros, as if data were joined to ground; {_WIRING}")
    # Byte 6 is 12 after a conversion that failed; see the page of the driver about its `features`. That of a DS18S20 is
    # so, too, if it measured exactly 85 °C.
    if scratchpad[6] == 0x0C and value == 85.0:
        raise GarbledData(f"{name}: 85 °C is the value after power-on; it lost its power while it measured")
    if scratchpad[:2] == b"\xff\x07":
        raise GarbledData(f"{name}: 0x7FF is the value of too little power; connect its power pin")
    if not MIN_CELSIUS <= value <= MAX_CELSIUS:
        raise GarbledData(f"{name}: {value} °C is out of its range, {MIN_CELSIUS:.0f} to {MAX_CELSIUS:.0f} °C")
    return value


def _error_of(error: OSError, what: str) -> DeviceError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermanentError(f"{what}: {describe(error)}; let the user of the app read it")
    return DeviceUnavailable(f"{what}: {describe(error)}; {_WIRING}")
