"""The wire of an `I2c`: transfers with the chips of a bus, each of which is a lane of its own. All of it blocks, in a
thread."""

from leadsman.adapters.i2c.bus import I2cWire
from leadsman.sessions.player import Lanes
from leadsman.sessions.recorder import WireLog


def recorded(log: WireLog, name: str, wire: I2cWire) -> I2cWire:
    """A bus, with its transfers written down."""
    return _RecordedBus(log, wire)


class _RecordedBus:
    def __init__(self, log: WireLog, bus: I2cWire) -> None:
        self._log = log
        self._bus = bus

    @property
    def opened(self) -> bool:
        return self._bus.opened

    def open(self) -> None:
        if not self._bus.opened:
            self._log.call(self._bus.open, lambda _: ("opened", None, {}), "open")

    def transfer(self, address: int, data: bytes, count: int) -> bytes:
        call = lambda: self._bus.transfer(address, data, count)  # noqa: E731  # a name for what is long
        chip = _written(address)
        return self._log.call(call, lambda found: ("received", found, {}), "transfer", data, address=chip, count=count)

    def close(self) -> None:
        self._bus.close()


def _written(address: int) -> str:
    """An address as i2cdetect and data sheets have it."""
    return f"0x{address:02x}"


def played(lanes: Lanes, name: str) -> I2cWire:
    """A bus with recorded chips."""
    return _PlayedBus(lanes)


class _PlayedBus:
    def __init__(self, lanes: Lanes) -> None:
        self.opened = False
        self._lanes = lanes

    def open(self) -> None:
        if not self.opened:
            self._lanes.ask("opened", "open")
            self.opened = True

    def transfer(self, address: int, data: bytes, count: int) -> bytes:
        return self._lanes.ask("received", "transfer", data, address=_written(address), count=count).data or b""

    def close(self) -> None:
        self.opened = False
