"""Files of the Smart Message Language, as an electricity meter sends them (BSI TR-03109-1, appendix IVb), with the
checksums of its messages and of the file."""

from leadsman.adapters.serial.checksums import crc16_x25

NONE = b"\x01"
"""An optional value that is missing."""
WATT, WATT_HOUR, VOLT = 27, 30, 35
"""Units (DLMS blue book, 4.3.2)."""


def octets(data: bytes) -> bytes:
    """An octet string."""
    size = len(data) + 1
    return (bytes((size,)) if size < 16 else bytes((0x80 | (size + 1) >> 4, (size + 1) & 15))) + data


def unsigned(value: int, size: int) -> bytes:
    """An unsigned number of so many bytes."""
    return bytes((0x60 | size + 1,)) + value.to_bytes(size, "big")


def signed(value: int, size: int) -> bytes:
    """A number of so many bytes."""
    return bytes((0x50 | size + 1,)) + value.to_bytes(size, "big", signed=True)


def listed(*items: bytes) -> bytes:
    """A list; fifteen items at most."""
    return bytes((0x70 | len(items),)) + b"".join(items)


def entry(obis: str, value: int, unit: int | None = None, scaler: int = 0, size: int = 8) -> bytes:
    """A value with its code, such as ``1-0:1.8.0*255``, its unit, and the power of ten that it is multiplied by."""
    name = bytes(int(part) for part in obis.replace("-", ".").replace(":", ".").replace("*", ".").split("."))
    kind = NONE if unit is None else unsigned(unit, 1)
    return listed(octets(name), NONE, NONE, kind, signed(scaler, 1), signed(value, size), NONE)


def message(number: int, kind: int, body: bytes) -> bytes:
    """A message with its checksum."""
    zero = unsigned(0, 1)
    content = octets(bytes((0, 0, 0, number))) + zero + zero + listed(unsigned(kind, 2), body)
    content = b"\x76" + content
    return content + b"\x63" + crc16_x25(content).to_bytes(2, "little") + b"\x00"


SERVER = bytes.fromhex("0a01 454d48 0000 000001")


def content_of(*entries: bytes) -> bytes:
    """The messages of a file: opened, a list of values, closed."""
    opened = listed(NONE, NONE, octets(b"\0\0\0\1"), octets(SERVER), NONE, NONE)
    values = listed(NONE, octets(SERVER), NONE, NONE, listed(*entries), NONE, NONE)
    return message(1, 0x0101, opened) + message(2, 0x0701, values) + message(3, 0x0201, listed(NONE))


def file_of(content: bytes) -> bytes:
    """The bytes on the line: escaped, filled up, with their checksum."""
    fill, escape = -len(content) % 4, b"\x1b" * 4
    filled = content + bytes(fill)
    words = [filled[at : at + 4] for at in range(0, len(filled), 4)]
    escaped = b"".join(word * (2 if word == escape else 1) for word in words)
    file = escape + b"\x01" * 4 + escaped + escape + b"\x1a" + bytes((fill,))
    return file + crc16_x25(file).to_bytes(2, "little")
