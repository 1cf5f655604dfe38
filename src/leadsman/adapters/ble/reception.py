"""What several radios hear of the same devices, as if one radio heard it. Pure.

Each transmission is passed on once, from the radio that delivers it first. What follows from other radios within
`WINDOW` is the same transmission, late; a repetition by the same radio is another one, and passes, as with one radio.
The signal strength is that of the radio that hears the device best.
"""

from typing import NamedTuple

from leadsman.adapters.ble.advertisement import MOST_KNOWN, Advertisement
from leadsman.adapters.ble.backend import Handle

WINDOW = 2.0
"""Seconds within which radios deliver the same transmission. A proxy collects up to 16 advertisements before it sends
them, at most 0.1 s, and a lost packet on Wi-Fi costs some tenths of a second."""
SIGNAL = 30.0
"""Seconds for which the strength of a signal counts: a device that moves is soon heard best elsewhere."""
MOST_PARTS = 16
"""Values of a device that are remembered, and entries of each kind in its advertisement: a legacy advertisement with
its scan response has 62 bytes, of which an entry with a value takes four or more."""

Part = tuple[str, object, object]
"""A kind of data, its key and its value: one service or manufacturer."""


class Signal(NamedTuple):
    """How a radio hears a device."""

    rssi: int
    at: float
    handle: Handle


class _Device:
    """What is known of one device."""

    __slots__ = ("latest", "passed", "signals")

    def __init__(self, advertisement: Advertisement) -> None:
        self.signals: dict[str, Signal] = {}
        self.latest = advertisement
        self.passed: dict[Part, tuple[str, float]] = {}
        """Which radio delivered a value, and when: the last ones."""

    def take(self, radio: str, advertisement: Advertisement, now: float) -> bool:
        """Take what a radio delivers. Returns whether it is another transmission than those before."""
        parts, current = _parts(advertisement), _parts(self.latest)
        late = {part for part in parts if self._is_late(part, radio, now)}
        if late and late | current >= parts:  # BlueZ repeats what a device sent earlier in other packets
            return False
        for part in parts:
            self.passed.pop(part, None)
            self.passed[part] = radio, now
        while len(self.passed) > MOST_PARTS:
            del self.passed[next(iter(self.passed))]
        self.latest = _joined(self.latest, advertisement)
        return True

    def _is_late(self, part: Part, radio: str, now: float) -> bool:
        """Whether another radio has delivered it just now."""
        deliverer, at = self.passed.get(part, (radio, now))
        return deliverer != radio and now - at < WINDOW


class Reception:
    """The devices that several radios hear. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def hear(self, radio: str, advertisement: Advertisement, handle: Handle, now: float) -> Advertisement | None:
        """What to pass on of an advertisement that a radio delivers: it has all that the device sent before in other
        packets, and the best signal. None if another radio has delivered it."""
        device = self._devices.pop(advertisement.address, None) or _Device(advertisement)
        self._devices[advertisement.address] = device
        if len(self._devices) > MOST_KNOWN:
            del self._devices[next(iter(self._devices))]
        device.signals[radio] = Signal(advertisement.rssi, now, handle)
        if not device.take(radio, advertisement, now):
            return None
        return device.latest._replace(rssi=self.signals(advertisement.address, now)[0][1].rssi)

    def signals(self, address: str, now: float) -> list[tuple[str, Signal]]:
        """The radios that hear a device, the best one first."""
        device = self._devices.get(address)
        if device is None:
            return []
        heard = [each for each in device.signals.items() if now - each[1].at < SIGNAL]
        return sorted(heard, key=lambda each: each[1].rssi, reverse=True)

    def leave(self, radio: str) -> None:
        """Forget what a radio heard: it hears nothing more."""
        for device in self._devices.values():
            device.signals.pop(radio, None)

    def devices_of(self, radio: str, now: float) -> int:
        """How many devices a radio hears."""
        heard = [device.signals.get(radio) for device in self._devices.values()]
        return sum(each is not None and now - each.at < SIGNAL for each in heard)


def _parts(advertisement: Advertisement) -> set[Part]:
    data: set[Part] = {("manufacturer", *each) for each in advertisement.manufacturer.items()}
    data |= {("service", *each) for each in advertisement.service_data.items()}
    return data or {("name", advertisement.name, advertisement.services)}


def _joined(earlier: Advertisement, later: Advertisement) -> Advertisement:
    """A device sends its name in one packet and its data in another; BlueZ joins them, too."""
    if earlier is later:
        return later
    return later._replace(
        name=later.name or earlier.name,
        services=tuple(dict.fromkeys((*earlier.services, *later.services)))[-MOST_PARTS:],
        manufacturer=dict(list({**earlier.manufacturer, **later.manufacturer}.items())[-MOST_PARTS:]),
        service_data=dict(list({**earlier.service_data, **later.service_data}.items())[-MOST_PARTS:]),
    )
