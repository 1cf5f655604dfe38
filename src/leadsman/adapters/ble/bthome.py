"""Decodes BTHome version 2, unencrypted: the measurements that sensors advertise (https://bthome.io/format).

::

    async for advertisement in radio.advertisements(service=bthome.SERVICE):
        yield bthome.decode(advertisement.service_data[bthome.SERVICE])     {"temperature": 21.5, "humidity": 45.0}
"""

from leadsman.errors import GarbledData, PermanentError

SERVICE = "0000fcd2-0000-1000-8000-00805f9b34fb"
"""The UUID of its service data."""

_UINT, _SINT, _BOOL = "uint", "sint", "bool"
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
    0x3C: ("dimmer", _UINT, 2, 1),
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
    0xF0: ("device_type", _UINT, 2, 1),
    0xF1: ("firmware", _UINT, 4, 1),
    0xF2: ("firmware", _UINT, 3, 1),
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
_TEXT, _RAW = 0x53, 0x54

Measurement = float | bool | str
"""A measurement: a number, yes or no, or text."""


def decode(data: bytes) -> dict[str, Measurement]:
    """Decode the measurements in one advertisement, in the units of the format: °C, %, hPa, lx, kg, kWh, W, V, ppm, …

    If a kind occurs twice, its names are numbered: ``temperature`` and ``temperature_2``. Kinds are ordered by number.
    A kind that this table does not have ends the reading; the measurements before it are kept.

    Raises:
        GarbledData: the data is not BTHome 2, or is incomplete.
        PermanentError: the data is encrypted.
    """
    if not data or data[0] >> 5 != 2:
        raise GarbledData(f"not BTHome version 2: {data[:32].hex(' ') or 'nothing'}")
    if data[0] & 1:
        raise PermanentError(
            "this BTHome sensor encrypts its data; read it with Decoders and its key, or switch that off in it"
        )
    found: dict[str, Measurement] = {}
    at = 1
    while at < len(data):
        kind = data[at]
        if kind in (_TEXT, _RAW):
            begin = at + 2
            end = begin + (data[at + 1] if at + 1 < len(data) else 0)
            content = _part(data, begin, end)
            _put(found, *(("text", content.decode(errors="replace")) if kind == _TEXT else ("raw", content.hex())))
        elif kind in _KINDS:
            name, shape, size, divisor = _KINDS[kind]
            end = at + 1 + size
            number = int.from_bytes(_part(data, at + 1, end), "little", signed=shape == _SINT)
            value = bool(number) if shape == _BOOL else number if divisor == 1 else round(number / divisor, 4)
            _put(found, name, value)
        else:
            break
        at = end
    return found


def _part(data: bytes, begin: int, end: int) -> bytes:
    if end > len(data):
        raise GarbledData(f"BTHome data is incomplete: {data[:64].hex(' ')}")
    return data[begin:end]


def _put(found: dict[str, Measurement], name: str, value: Measurement) -> None:
    number = 1
    key = name
    while key in found:
        number += 1
        key = f"{name}_{number}"
    found[key] = value
