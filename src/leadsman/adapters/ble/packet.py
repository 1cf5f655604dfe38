"""Advertisements as they are in the air: the structures of a packet (Core Specification Supplement, Part A). Pure."""

from collections.abc import Iterator

from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.adapters.ble.gatt import uuid_of

LONGEST_PACKET = 1650
"""Bytes of extended advertising data (Core Specification, Vol 4, Part E, 7.8.54); legacy ones have 31, and a scan
response as many."""
WEAKEST, STRONGEST = -127, 20
"""dBm that a controller can report (Core Specification, Vol 4, Part E, 7.7.65.2); 127 means that it does not know."""
_UUIDS = {0x02: 2, 0x03: 2, 0x04: 4, 0x05: 4, 0x06: 16, 0x07: 16}
_SERVICE_DATA = {0x16: 2, 0x20: 4, 0x21: 16}
_NAMES = (0x08, 0x09)
_MANUFACTURER = 0xFF
"""Types of structures (Assigned Numbers, 2.3)."""


def decode(address: int, rssi: int, data: bytes) -> Advertisement | None:
    """The advertisement in a packet. What is garbled in it, or of an unknown type, is left out. None if there is no
    such address, or the packet is longer than any in the air."""
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
