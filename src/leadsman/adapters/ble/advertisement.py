"""Advertisements of Bluetooth devices: their content, the packets that bring it, filters for them, and device
addresses. Pure."""

import fnmatch
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from leadsman.adapters.ble.gatt import uuid_of
from leadsman.errors import InvalidType, InvalidValue
from leadsman.text import clean

MOST_KNOWN = 512
"""Devices remembered; in a city thousands pass by."""
LONGEST_PACKET = 1650
"""Bytes of extended advertising data (Core Specification, Vol 4, Part E, 7.8.54); legacy ones have 31, and a scan
response as many."""
WEAKEST, STRONGEST = -127, 20
"""dBm that a controller can report (Core Specification, Vol 4, Part E, 7.7.65.2); 127 means not available."""
_UUIDS = {0x02: 2, 0x03: 2, 0x04: 4, 0x05: 4, 0x06: 16, 0x07: 16}
_SERVICE_DATA = {0x16: 2, 0x20: 4, 0x21: 16}
_NAMES = (0x08, 0x09)
_MANUFACTURER = 0xFF
"""Types of structures (Assigned Numbers, 2.3)."""


class Advertisement(NamedTuple):
    """One advertisement of a device. UUIDs are complete and in lower case."""

    address: str
    name: str | None
    rssi: int
    """dBm."""
    services: tuple[str, ...]
    manufacturer: Mapping[int, bytes]
    """By company identifier."""
    service_data: Mapping[str, bytes]


def decode_packet(address: int, rssi: int, data: bytes) -> Advertisement | None:
    """The advertisement in a packet, as it is in the air (Core Specification Supplement, Part A). What is garbled in
    it, or of an unknown type, is left out. None if there is no such address, or the packet is longer than any in the
    air."""
    if not 0 <= address < 1 << 48 or len(data) > LONGEST_PACKET:
        return None
    name: str | None = None
    services: list[str] = []
    manufacturer: dict[int, bytes] = {}
    service_data: dict[str, bytes] = {}
    for kind, value in _structures(data):
        if kind in _NAMES:
            name = value.decode(errors="replace")
        elif width := _UUIDS.get(kind):
            whole = len(value) - len(value) % width
            services += [_uuid(value[at : at + width]) for at in range(0, whole, width)]
        elif (width := _SERVICE_DATA.get(kind)) and len(value) >= width:
            service_data[_uuid(value[:width])] = value[width:]
        elif kind == _MANUFACTURER and len(value) >= 2:
            manufacturer[int.from_bytes(value[:2], "little")] = value[2:]
    text = f"{address:012X}"
    return Advertisement(
        ":".join(text[at : at + 2] for at in range(0, 12, 2)),
        name,
        rssi if WEAKEST <= rssi <= STRONGEST else WEAKEST,
        tuple(dict.fromkeys(services)),
        manufacturer,
        service_data,
    )


def _structures(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each structure has its length, its type and its value. A length of zero ends a packet early; a scan response may
    follow its zeros."""
    at = 0
    while at + 1 < len(data):
        end = at + 1 + data[at]
        if end > len(data):
            return
        if end > at + 1:
            yield data[at + 1], data[at + 2 : end]
        at = end


def _uuid(data: bytes) -> str:
    digits = data[::-1].hex()
    if len(data) == 16:
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return uuid_of(digits)


class AdvertisementFilter(NamedTuple):
    """Selects advertisements by their content, and limits their rate."""

    address: str | None
    name: str | None
    service: str | None
    manufacturer: int | None
    every: float
    changed: bool
    last: dict[str, tuple[float, Advertisement]]
    """By address: what passed last, and when."""

    def accepts(self, advertisement: Advertisement, now: float) -> bool:
        """Whether an advertisement passes the filter. `now` is monotonic seconds."""
        if self.address not in (None, advertisement.address):
            return False
        if self.name is not None and not fnmatch.fnmatchcase(advertisement.name or "", self.name):
            return False
        if (
            self.service is not None
            and self.service not in advertisement.services
            and self.service not in advertisement.service_data
        ):
            return False
        if self.manufacturer is not None and self.manufacturer not in advertisement.manufacturer:
            return False
        last = self.last.get(advertisement.address)
        if last is not None:
            if self.every and now - last[0] < self.every:
                return False
            if self.changed and last[1]._replace(rssi=0) == advertisement._replace(rssi=0):
                return False
        if self.every or self.changed:
            self.last.pop(advertisement.address, None)
            self.last[advertisement.address] = now, advertisement
            if len(self.last) > MOST_KNOWN:
                del self.last[next(iter(self.last))]
        return True


def check_address(value: object) -> str:
    """Check a Bluetooth address and return it in upper case. macOS hides addresses, so there it is the UUID that macOS
    gives to a device.

    Raises:
        InvalidType, InvalidValue: it is not an address.
    """
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not a Bluetooth address; write one such as 'AA:BB:CC:DD:EE:FF'")
    text = value.strip().upper().replace("-", ":") if len(value.strip()) == 17 else value.strip().upper()
    if re.fullmatch(r"[0-9A-F]{2}(:[0-9A-F]{2}){5}", text):
        return text
    if sys.platform == "darwin" and re.fullmatch(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", text):
        return text
    raise InvalidValue(f"{clean(value)!r} is not a Bluetooth address; write one such as 'AA:BB:CC:DD:EE:FF'")


Address = Annotated[str, AfterValidator(check_address)]
"""For settings: a Bluetooth address, checked when the app starts."""
