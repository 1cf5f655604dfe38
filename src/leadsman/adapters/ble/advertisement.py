"""Advertisements of Bluetooth devices: their content, the packets that bring it, filters for them, and device
addresses. Pure."""

import fnmatch
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, TypeVar

from pydantic import AfterValidator

from leadsman.adapters.ble.gatt import uuid_of
from leadsman.core.text import clean
from leadsman.errors import InvalidType, InvalidValue

MAX_DEVICES = 512
"""Devices remembered; in a city thousands pass by."""
MAX_ENTRIES = 16
"""Entries of each kind that are remembered of a device: a legacy advertisement with its scan response has 62 bytes, of
which an entry with a value takes four or more."""
MAX_PACKET_BYTES = 1650
"""Bytes of extended advertising data (Core Specification, Vol 4, Part E, 7.8.54); legacy ones have 31, and a scan
response as many."""
WEAKEST, STRONGEST = -127, 20
"""dBm that a controller can report (Core Specification, Vol 4, Part E, 7.7.65.2); 127 means not available."""
_K = TypeVar("_K", str, int)
_T = TypeVar("_T")
_UUIDS = {0x02: 2, 0x03: 2, 0x04: 4, 0x05: 4, 0x06: 16, 0x07: 16}
_SERVICE_DATA = {0x16: 2, 0x20: 4, 0x21: 16}
_NAMES = (0x08, 0x09)
_MANUFACTURER = 0xFF
"""Types of structures (Assigned Numbers, 2.3)."""


class Advertisement(NamedTuple):
    """One advertisement of a device. UUIDs are complete and in lower case.

    The data is that of this packet. A device often divides what it says among packets, so its name and its services may
    be from an earlier one, and a packet without data is an advertisement, too.
    """

    address: str
    name: str | None
    rssi: int
    """dBm."""
    services: tuple[str, ...]
    manufacturer: Mapping[int, bytes]
    """By company identifier."""
    service_data: Mapping[str, bytes]
    """By UUID."""


def decode_packet(address: int, rssi: int, data: bytes) -> Advertisement | None:
    """The advertisement in a packet, as it is in the air (Core Specification Supplement, Part A). What is garbled in
    it, or of an unknown type, is left out. None if there is no such address, or the packet is longer than any in the
    air."""
    if not 0 <= address < 1 << 48 or len(data) > MAX_PACKET_BYTES:
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


class AdvertisementFilter:
    """Selects advertisements by their content, and limits their rate.

    Args:
        address: of one device.
        name: a glob.
        service: a UUID. Of a device that sends data of this service, packets with such data pass; of any other one,
            those after which it is known to have the service.
        manufacturer: a company identifier. Packets with its data pass.
        every: seconds between two that pass of a device.
        changed: whether only those pass that add something to what passed before.
    """

    def __init__(
        self,
        address: str | None = None,
        name: str | None = None,
        service: str | None = None,
        manufacturer: int | None = None,
        every: float = 0.0,
        changed: bool = False,
    ) -> None:
        self._address = address
        self._name = name
        self._service = service
        self._manufacturer = manufacturer
        self._every = every
        self._changed = changed
        self._passed: dict[str, tuple[float, Advertisement]] = {}
        """By address: when one passed last, and what all that passed said last."""
        self._senders: dict[str, None] = {}
        """The devices that have sent data of the service."""

    def accepts(self, advertisement: Advertisement, now: float) -> bool:
        """Whether an advertisement passes the filter. `now` is monotonic seconds."""
        if self._address not in (None, advertisement.address):
            return False
        if self._name is not None and not fnmatch.fnmatchcase(advertisement.name or "", self._name):
            return False
        if self._service is not None and not self._has_service(advertisement, self._service):
            return False
        if self._manufacturer is not None and self._manufacturer not in advertisement.manufacturer:
            return False
        if not self._every and not self._changed:
            return True
        at, before = self._passed.get(advertisement.address, (now, None))
        if before is None:
            before = advertisement
        elif (self._every and now - at < self._every) or (self._changed and not _adds(before, advertisement)):
            return False
        _remember(self._passed, advertisement.address, (now, _join(before, advertisement)))
        return True

    def _has_service(self, advertisement: Advertisement, service: str) -> bool:
        if service in advertisement.service_data:
            _remember(self._senders, advertisement.address, None)
            return True
        return service in advertisement.services and advertisement.address not in self._senders


def _remember(devices: dict[str, _T], address: str, value: _T) -> None:
    """Remember something of a device, and forget the one that was heard longest ago if there are too many."""
    devices.pop(address, None)
    devices[address] = value
    if len(devices) > MAX_DEVICES:
        del devices[next(iter(devices))]


def _adds(before: Advertisement, packet: Advertisement) -> bool:
    """Whether a packet says something that was not said before."""
    return (
        packet.name not in (None, before.name)
        or not before.manufacturer.items() >= packet.manufacturer.items()
        or not before.service_data.items() >= packet.service_data.items()
        or not set(before.services).issuperset(packet.services)
    )


def _join(before: Advertisement, packet: Advertisement) -> Advertisement:
    """What all packets of a device said last; only to compare another one with."""
    named = name_and_services(before, packet)
    return named._replace(
        manufacturer=_newest({**before.manufacturer, **packet.manufacturer}),
        service_data=_newest({**before.service_data, **packet.service_data}),
    )


def _newest(parts: Mapping[_K, bytes]) -> dict[_K, bytes]:
    return dict(list(parts.items())[-MAX_ENTRIES:])


def name_and_services(before: Advertisement, packet: Advertisement) -> Advertisement:
    """A packet with the name and the services that its device has advertised before, and no other data than its own."""
    services = tuple(dict.fromkeys((*before.services, *packet.services)))[-MAX_ENTRIES:]
    return packet._replace(name=packet.name or before.name, services=services)


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
