"""Checksums of serial protocols.

Names and parameters are those of Ross Williams' model, as the catalogue of parametrised CRC algorithms lists them; the
value of each over ``b"123456789"`` is in its docstring.
"""

import binascii


def crc16_x25(data: bytes) -> int:
    """CRC-16/X-25: HDLC's frame check sequence (RFC 1662, appendix C), SML, DLMS. Check value 0x906E.

    The C road of `binascii` runs over the same polynomial from the other end of each byte, so bytes are turned before
    it, and the result after.
    """
    return _turned(binascii.crc_hqx(data.translate(_TURNED), 0xFFFF) ^ 0xFFFF)


def crc16_kermit(data: bytes) -> int:
    """CRC-16/KERMIT: SML of some meters. Check value 0x2189. Only the beginning and the end differ from X-25."""
    return _turned(binascii.crc_hqx(data.translate(_TURNED), 0))


def crc16_arc(data: bytes) -> int:
    """CRC-16/ARC: telegrams of DSMR P1. Check value 0xBB3D."""
    return _reflect(data, 0)


def crc16_modbus(data: bytes) -> int:
    """CRC-16/MODBUS: Modbus over serial line, 6.2.2. Check value 0x4B37."""
    return _reflect(data, 0xFFFF)


def sum8(data: bytes) -> int:
    """The sum of all bytes, modulo 256: M-Bus (EN 13757-2), Optolink."""
    return sum(data) & 0xFF


def _turned(crc: int) -> int:
    return _TURNED[crc & 0xFF] << 8 | _TURNED[crc >> 8]


def _reflect(data: bytes, crc: int) -> int:
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0xA001 if byte & 1 else 0)
    return byte


_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in the other order."""
_TABLE = tuple(_entry(byte) for byte in range(256))
"""By byte, for the polynomial 0x8005 with its bits in the other order, 0xA001."""
