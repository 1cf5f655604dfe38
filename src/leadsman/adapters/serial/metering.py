"""Framers for the buses of meters and boilers: DSMR P1, SML and M-Bus. They verify the checksums."""

from leadsman.adapters.serial.checksums import crc16_arc, crc16_x25, sum8
from leadsman.adapters.serial.framing import MAX_SIZE, Found, size_of, sync
from leadsman.value import Value

_HEX = frozenset(b"0123456789ABCDEFabcdef")


class P1Framer(Value):
    """Telegrams of a smart meter's P1 port (DSMR 5.0.2, 6.2): from ``/`` to the line that begins with ``!``. Returned
    complete.

    If four hex digits follow the ``!``, they are the checksum and must be correct; DSMR 2 and 3 have none.

    Args:
        max_size: the longest telegram. A longer one is discarded.
    """

    __slots__ = ("max_size",)
    max_size: int

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self._hold(max_size=size_of(max_size, "max_size", least=16))

    def find(self, buffer: bytearray, start: int) -> Found:
        begin = sync(buffer, start, b"/")
        if begin > start:
            return None, begin
        mark = buffer.find(b"\n!", start, start + self.max_size)
        end = -1 if mark < 0 else buffer.find(b"\n", mark + 2, mark + 10)
        if end < 0:
            hopeless = len(buffer) - start >= self.max_size or (mark >= 0 and len(buffer) >= mark + 10)
            return None, self._next(buffer, start) if hopeless else start
        telegram = bytes(buffer[start : end + 1])
        digits = telegram[mark + 2 - start :].rstrip()
        sound = self._sound(digits, telegram[: mark + 2 - start]) if digits else b"/" not in telegram[1:]
        return (telegram, end + 1) if sound else (None, self._next(buffer, start))

    def _sound(self, digits: bytes, content: bytes) -> bool:
        return len(digits) == 4 and _HEX.issuperset(digits) and crc16_arc(content) == int(digits, 16)

    def _next(self, buffer: bytearray, start: int) -> int:
        """Where a telegram may begin behind this one, which is broken."""
        at = buffer.find(b"/", start + 1)
        return at if at >= 0 else len(buffer)


class SmlFramer(Value):
    """Files of the Smart Message Language (BSI TR-03109-1, SML transport protocol version 1): 1B1B1B1B 01010101 …
    1B1B1B1B 1A. Returned without escapes and fill bytes. The CRC must be correct.

    Args:
        max_size: the longest encoded file. A longer one is discarded.
    """

    __slots__ = ("max_size",)
    max_size: int
    _ESCAPE = b"\x1b\x1b\x1b\x1b"
    _BEGIN = b"\x1b\x1b\x1b\x1b\x01\x01\x01\x01"

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self._hold(max_size=size_of(max_size, "max_size", least=16))

    def find(self, buffer: bytearray, start: int) -> Found:
        begin = sync(buffer, start, self._BEGIN)
        if begin > start:
            return None, begin
        if not buffer.startswith(self._BEGIN, start):
            return None, start
        at = start + len(self._BEGIN)
        while (at := buffer.find(self._ESCAPE, at, start + self.max_size)) >= 0:
            if off := (at - start) % 4:  # escapes stand at multiples of four; an early hit is data that ends with 1B
                if buffer.startswith(self._BEGIN, at):
                    return None, at  # or this file was cut, and another one begins
                at += 4 - off
                if not buffer.startswith(self._ESCAPE, at):
                    continue
            if len(buffer) < at + 8:
                return None, start
            if buffer.startswith(self._ESCAPE, at + 4):
                at += 8  # four escaped bytes of data
            elif buffer[at + 4] == 0x1A:
                return self._file(bytes(buffer[start : at + 8])), at + 8
            else:
                return None, at  # another file begins, or this is none
        return None, start + 1 if len(buffer) - start >= self.max_size else start

    def _file(self, raw: bytes) -> bytes | None:
        fill = raw[-3]
        if fill > 3 or crc16_x25(raw[:-2]) != int.from_bytes(raw[-2:], "little"):
            return None
        content, found, at = raw[8:-8], bytearray(), 0
        while at < len(content):  # four bytes at a time, as they were escaped
            word = content[at : at + 4]
            at += 8 if word == self._ESCAPE else 4
            found += word
        return bytes(found[: len(found) - fill])


class MBusFramer(Value):
    """Frames of the wired M-Bus (EN 13757-2): long and control frames, short frames, and the single byte E5.

    Returns C, A, CI and the data of a long frame, C and A of a short one, and ``b"\\xe5"``. The checksum must be
    correct.
    """

    __slots__ = ()
    max_size = 261
    """68 L L 68, 255 bytes, checksum, 16."""

    def find(self, buffer: bytearray, start: int) -> Found:
        first, waiting = buffer[start], len(buffer) - start
        if first == 0xE5:
            return b"\xe5", start + 1
        if first == 0x10:
            return self._check_frame(buffer, start, 1, 2) if waiting >= 5 else (None, start)
        if first != 0x68:
            return None, start + 1
        if waiting < 4:
            return None, start
        length = buffer[start + 1]
        if length < 3 or buffer[start + 2] != length or buffer[start + 3] != 0x68:
            return None, start + 1
        return self._check_frame(buffer, start, 4, length) if waiting >= length + 6 else (None, start)

    def _check_frame(self, buffer: bytearray, start: int, header: int, length: int) -> Found:
        behind = start + header + length + 2
        content = bytes(buffer[start + header : behind - 2])
        if buffer[behind - 1] != 0x16 or buffer[behind - 2] != sum8(content):
            return None, start + 1
        return content, behind
