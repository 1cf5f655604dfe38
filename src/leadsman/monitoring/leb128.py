"""Numbers in few bytes: LEB128 (DWARF 5, section 7.6). Each byte has seven bits, the lowest come first, and all but the
last byte of a number have the highest bit. Pure."""


def encode(*numbers: int) -> bytes:
    """Encode numbers from 0. One below 128 takes a byte."""
    encoded = bytearray()
    for number in numbers:
        while number > 0x7F:
            encoded.append(number & 0x7F | 0x80)
            number >>= 7
        encoded.append(number)
    return bytes(encoded)


def decode(encoded: bytes) -> list[int]:
    """The numbers that `encode` was given."""
    numbers, number, shift = list[int](), 0, 0
    for byte in encoded:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    return numbers
