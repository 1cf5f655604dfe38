"""Decodes BTHome version 2, unencrypted: the measurements that sensors advertise (https://bthome.io/format).

::

    async for advertisement in radio.advertisements(service=bthome.SERVICE):
        yield bthome.decode(advertisement.service_data[bthome.SERVICE])     {"temperature": 21.5, "humidity": 45.0}
"""

from leadsman.errors import GarbledData, PermanentError

SERVICE = "0000fcd2-0000-1000-8000-00805f9b34fb"
"""The UUID of its service data."""

SHARES = frozenset({"battery", "humidity", "moisture"})
"""The kinds, and device classes, that are shares in per cent."""
MAX_PERCENT = 110
"""Per cent. A calibrated sensor may say 100.3 % in fog; what is far above is a byte of ones, for a value that is not
known."""

_ENCRYPTED, _ADDRESS, _RESERVED = 0b1, 0b10, 0b11000
"""Bits of the first byte. The address of the sensor follows if bit 1 is set: the format calls that bit reserved, and
sensors that phones are to recognise set it (Bluetooth-Devices/bthome-ble#42). Bit 2 says that a sensor advertises at
irregular times. Another reserved bit may mean that something else follows. Bits 5 to 7 are the version."""
_ADDRESS_BYTES = 6
_UINT, _SINT, _BOOL, _TURN, _VERSION = "uint", "sint", "bool", "turn", "version"
_KINDS: dict[int, tuple[str, str, int, float]] = {
    0x00: ("packet_id", _UINT, 1, 1),
    0x01: ("battery", _UINT, 1, 1),
    0x02: ("temperature", _SINT, 2, 100),
    0x03: ("humidity", _UINT, 2, 100),
    0x04: ("pressure", _UINT, 3, 100),
    0x05: ("illuminance", _UINT, 3, 100),
    0x06: ("mass", _UINT, 2, 100),
    0x07: ("mass_lb", _UINT, 2, 100),
    0x08: ("dewpoint", _SINT, 2, 100),
    0x09: ("count", _UINT, 1, 1),
    0x0A: ("energy", _UINT, 3, 1000),
    0x0B: ("power", _UINT, 3, 100),
    0x0C: ("voltage", _UINT, 2, 1000),
    0x0D: ("pm2_5", _UINT, 2, 1),
    0x0E: ("pm10", _UINT, 2, 1),
    0x12: ("co2", _UINT, 2, 1),
    0x13: ("tvoc", _UINT, 2, 1),
    0x14: ("moisture", _UINT, 2, 100),
    0x2E: ("humidity", _UINT, 1, 1),
    0x2F: ("moisture", _UINT, 1, 1),
    0x3A: ("button", _UINT, 1, 1),
    0x3C: ("dimmer", _TURN, 2, 1),
    0x3D: ("count", _UINT, 2, 1),
    0x3E: ("count", _UINT, 4, 1),
    0x3F: ("rotation", _SINT, 2, 10),
    0x40: ("distance_mm", _UINT, 2, 1),
    0x41: ("distance", _UINT, 2, 10),
    0x42: ("duration", _UINT, 3, 1000),
    0x43: ("current", _UINT, 2, 1000),
    0x44: ("speed", _UINT, 2, 100),
    0x45: ("temperature", _SINT, 2, 10),
    0x46: ("uv_index", _UINT, 1, 10),
    0x47: ("volume", _UINT, 2, 10),
    0x48: ("volume_ml", _UINT, 2, 1),
    0x49: ("volume_flow_rate", _UINT, 2, 1000),
    0x4A: ("voltage", _UINT, 2, 10),
    0x4B: ("gas", _UINT, 3, 1000),
    0x4C: ("gas", _UINT, 4, 1000),
    0x4D: ("energy", _UINT, 4, 1000),
    0x4E: ("volume", _UINT, 4, 1000),
    0x4F: ("water", _UINT, 4, 1000),
    0x50: ("timestamp", _UINT, 4, 1),
    0x51: ("acceleration", _UINT, 2, 1000),
    0x52: ("gyroscope", _UINT, 2, 1000),
    0x55: ("volume_storage", _UINT, 4, 1000),
    0x56: ("conductivity", _UINT, 2, 1),
    0x57: ("temperature", _SINT, 1, 1),
    0x58: ("temperature", _SINT, 1, 1 / 0.35),
    0x59: ("count", _SINT, 1, 1),
    0x5A: ("count", _SINT, 2, 1),
    0x5B: ("count", _SINT, 4, 1),
    0x5C: ("power", _SINT, 4, 100),
    0x5D: ("current", _SINT, 2, 1000),
    0x5E: ("direction", _UINT, 2, 100),
    0x5F: ("precipitation", _UINT, 2, 10),
    0x60: ("channel", _UINT, 1, 1),
    0x61: ("rotational_speed", _UINT, 2, 1),
    0x62: ("speed", _SINT, 4, 1_000_000),
    0x63: ("acceleration", _SINT, 4, 1_000_000),
    0x64: ("light_level", _UINT, 1, 1),
    0x65: ("settings_revision", _UINT, 1, 1),
    0xF0: ("device_type", _UINT, 2, 1),
    0xF1: ("firmware", _VERSION, 4, 1),
    0xF2: ("firmware", _VERSION, 3, 1),
}
_BOOLEANS = {
    0x0F: "boolean",
    0x10: "power_on",
    0x11: "opening",
    0x15: "battery_low",
    0x16: "battery_charging",
    0x17: "carbon_monoxide",
    0x18: "cold",
    0x19: "connectivity",
    0x1A: "door",
    0x1B: "garage_door",
    0x1C: "gas_detected",
    0x1D: "heat",
    0x1E: "light",
    0x1F: "lock",
    0x20: "moisture_detected",
    0x21: "motion",
    0x22: "moving",
    0x23: "occupancy",
    0x24: "plug",
    0x25: "presence",
    0x26: "problem",
    0x27: "running",
    0x28: "safety",
    0x29: "smoke",
    0x2A: "sound",
    0x2B: "tamper",
    0x2C: "vibration",
    0x2D: "window",
}
_KINDS |= {number: (name, _BOOL, 1, 1) for number, name in _BOOLEANS.items()}
_COMMAND, _TEXT, _RAW = 0x3B, 0x53, 0x54
_TURNS = {0x00: 0, 0x01: -1, 0x02: 1}
"""The directions of a dimmer: none, left, right."""

Measurement = float | bool | str
"""A measurement: a number, yes or no, or text."""


def unknown_flags(data: bytes) -> bool:
    """Whether service data has flags that nobody knows, so that what follows them may be anything."""
    return bool(data) and bool(data[0] & _RESERVED)


def decode(data: bytes) -> dict[str, Measurement]:
    """Decode the measurements in one advertisement, in the units of the format: °C, %, hPa, lx, kg, kWh, W, V, ppm, …

    If a kind occurs twice, its names are numbered: ``temperature`` and ``temperature_2``. Kinds are ordered by number.
    A kind that this table does not have ends the reading; the measurements before it are kept. A share that is far
    above 100 %, such as a battery of 255 %, says that the sensor does not know it, and is left out.

    ``button`` is the number of an event of the format (1 is a press, 2 a double press, 0 none), and ``dimmer`` the
    steps that it was turned, negative to the left. A sensor sends an event several times, with one ``packet_id``.

    Raises:
        GarbledData: the data is not BTHome 2, has flags that nobody knows, or is incomplete.
        PermanentError: the data is encrypted.
    """
    if not data or data[0] >> 5 != 2:
        raise GarbledData(f"not BTHome version 2: {data[:32].hex(' ') or 'nothing'}")
    if unknown_flags(data):
        raise GarbledData(
            f"this BTHome data has flags that are not known, so it is not read; look for a newer leadsman: "
            f"{data[:32].hex(' ')}"
        )
    if data[0] & _ENCRYPTED:
        raise PermanentError(
            "this BTHome sensor encrypts its data; read it with Decoders and its key, or switch that off in it"
        )
    found: dict[str, Measurement | None] = {}
    at = 1
    if data[0] & _ADDRESS:
        at += len(_part(data, 1, 1 + _ADDRESS_BYTES))
    while at < len(data):
        kind = data[at]
        if kind in (_COMMAND, _TEXT, _RAW):
            at, content = _content(data, at, kind)
            name = {_COMMAND: "command", _TEXT: "text", _RAW: "raw"}[kind]
            _put(found, name, content.decode(errors="replace") if kind == _TEXT else content.hex())
        elif kind in _KINDS:
            name, shape, size, divisor = _KINDS[kind]
            value = _value(_part(data, at + 1, at + 1 + size), shape, divisor)
            known = name not in SHARES or not isinstance(value, int | float) or value <= MAX_PERCENT
            _put(found, name, value if known else None)
            at += 1 + size
        else:
            break
    return {name: value for name, value in found.items() if value is not None}


def _content(data: bytes, at: int, kind: int) -> tuple[int, bytes]:
    """The end and the content of an object that has its length in a byte. That of a command counts its arguments, in
    the lower five bits; its number comes first."""
    (length,) = _part(data, at + 1, at + 2)
    end = at + 2 + (1 + (length & 0x1F) if kind == _COMMAND else length)
    return end, _part(data, at + 2, end)


def _value(content: bytes, shape: str, divisor: float) -> Measurement:
    if shape == _VERSION:
        return ".".join(map(str, reversed(content)))
    if shape == _TURN:
        if content[0] not in _TURNS:
            raise GarbledData(f"BTHome data has a dimmer that turns neither left nor right: {content.hex(' ')}")
        return _TURNS[content[0]] * content[1]
    number = int.from_bytes(content, "little", signed=shape == _SINT)
    if shape == _BOOL:
        return bool(number)
    return number if divisor == 1 else round(number / divisor, 6)


def _part(data: bytes, begin: int, end: int) -> bytes:
    if end > len(data):
        raise GarbledData(f"BTHome data is incomplete: {data[:64].hex(' ')}")
    return data[begin:end]


def _put(found: dict[str, Measurement | None], name: str, value: Measurement | None) -> None:
    number = 1
    key = name
    while key in found:
        number += 1
        key = f"{name}_{number}"
    found[key] = value
