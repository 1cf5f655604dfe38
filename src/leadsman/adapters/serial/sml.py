"""The adapter for electricity meters that say their values in SML, such as by an optical head."""

from collections.abc import AsyncGenerator
from types import ModuleType
from typing import NamedTuple

from leadsman.adapters.serial.metering import SmlFramer
from leadsman.adapters.serial.port import PortAdapter, SerialPort
from leadsman.core.loop.durations import Duration
from leadsman.errors import GarbledData, InvalidType, check_found, missing


class SmlValue(NamedTuple):
    """A value of a meter."""

    code: str
    """Its OBIS code, such as ``1-0:1.8.0*255``."""
    value: float | str | bytes
    """A number in its unit, or a text such as the number of the meter."""
    unit: str | None
    """Such as ``Wh`` or ``W``; None if the meter says none."""


class SmlMeter(PortAdapter):
    """A meter that says its values by itself, every few seconds. pysml reads them; the extra ``sml`` installs it.

    Args:
        port: a path such as ``/dev/serial/by-id/usb-…``, a gateway such as ``socket://host:port``, or a `SerialPort` of
            your own, with ``framer=SmlFramer()``.
        baudrate: of a path.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(self, port: str | SerialPort, baudrate: int = 9600) -> None:
        super().__init__(port, lambda url: SerialPort(url, baudrate, framer=SmlFramer()))
        if not isinstance(self._port.framer, SmlFramer):
            raise InvalidType(
                f"the framer of the port is {self._port.framer!r}; write SmlFramer(), from "
                "leadsman.adapters.serial.metering"
            )

    def check_installed(self) -> None:
        """Raise `NotInstalled` if pysml or the library of the port is missing; else load pysml, before a file waits."""
        super().check_installed()
        check_found("files of SML", "pysml", "sml", "sml")
        _pysml()

    async def read(self, silence: Duration = "30s") -> list[SmlValue]:
        """The values of the next file, in the order in which the meter says them.

        Args:
            silence: the longest time without a file.

        Raises:
            DeviceTimeout, DeviceUnavailable: as `SerialPort.read`. A retry may help.
            GarbledData: pysml cannot read the file. A retry may help.
            NotInstalled: pysml is not installed.
        """
        return values_of(await self._port.read(silence))

    async def files(self, silence: Duration = "30s") -> AsyncGenerator[list[SmlValue], None]:
        """Yield the values of each file, as it comes; for `@app.source`. Raises as `read`."""
        while True:
            yield await self.read(silence)


def _pysml() -> ModuleType:
    """The library that reads SML. An app without such meters does not have it."""
    try:
        import sml
    except ImportError as error:
        raise missing("files of SML", "pysml", "sml", error) from error
    found: ModuleType = sml
    return found


def values_of(file: bytes) -> list[SmlValue]:
    """The values in a file that `SmlFramer` found, in the order in which the meter sends them.

    Raises:
        GarbledData: pysml cannot read it.
        NotInstalled: pysml is not installed.
    """
    pysml = _pysml()
    try:
        messages = [message["messageBody"] for message in pysml.SmlFrame(file)]
        lists = [body["valList"] for body in messages if isinstance(body, pysml.SmlGetListResponse)]
        return [
            SmlValue(entry["objName"], entry["value"], entry.get("unit"))
            for values in lists
            for entry in values
            if isinstance(entry.get("objName"), str) and "value" in entry
        ]
    except Exception as error:  # its own, those of bitstring, and whatever an unusual file leads to
        raise GarbledData(f"a file of SML that cannot be read: {type(error).__name__}: {error}") from error
