"""Framers for the buses of meters and boilers: DSMR P1, SML and M-Bus. They verify the checksums."""

import re

from leadsman.adapters.serial.checksums import crc16_arc, crc16_kermit, crc16_x25, sum8
from leadsman.adapters.serial.framing import MAX_SIZE, Behind, Found, size_of, sync
from leadsman.core.value import Value

_VERSION = re.compile(rb"\n(?:1-3:0\.2\.8|0-0:96\.1\.4)\(")
"""The version of a telegram, which came with the checksum, in DSMR 4 and e-MUCS."""
_HEX = frozenset(b"0123456789ABCDEFabcdef")


class P1Framer(Value):
    """Telegrams of a smart meter's P1 port (DSMR 5.0.2, 6.2): from ``/`` to the line that begins with ``!``. Returned
    complete.

    Hex digits after the ``!`` are the checksum, which must be correct; DSMR 2 and 3 have none. A telegram that has its
    version, as from DSMR 4 on, must have one. Some devices write it without its leading zeros
    (ndokter/dsmr_parser#173).

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
        digits = telegram[mark + 2 - start :].strip()
        if digits:
            sound = self._sound(digits, telegram[: mark + 2 - start])
        else:
            sound = b"/" not in telegram[1:] and _VERSION.search(telegram) is None
        return (telegram, end + 1) if sound else (None, self._next(buffer, start))

    def settle(self, buffer: bytearray) -> Behind | None:
        """A telegram with its checksum is whole without the end of its line, which some gateways leave out."""
        mark = buffer.find(b"\n!")
        digits = b"" if mark < 0 else bytes(buffer[mark + 2 :]).strip()
        whole = digits and self._sound(digits, bytes(buffer[: mark + 2]))
        return Behind(bytes(buffer), 0, len(buffer)) if whole else None

    def _sound(self, digits: bytes, content: bytes) -> bool:
        return len(digits) <= 4 and _HEX.issuperset(digits) and crc16_arc(content) == int(digits, 16)

    def _next(self, buffer: bytearray, start: int) -> int:
        """Where a telegram may begin behind this one, which is broken."""
        at = buffer.find(b"/", start + 1)
        return at if at >= 0 else len(buffer)


class SmlFramer(Value):
    """Files of the Smart Message Language (BSI TR-03109-1, SML transport protocol version 1): 1B1B1B1B 01010101 …
    1B1B1B1B 1A. Returned without escapes and fill bytes. The CRC must be correct: X-25, or KERMIT with its high byte
    first, as a Holley DTZ541 sends it on RS-485 (spacemanspiff2007/SmlLib#22).

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
        behind = self._end(buffer, start)
        if behind > start:
            content = self._content(bytes(buffer[start:behind]))
            return (content, behind) if content is not None else (None, sync(buffer, start + 1, self._BEGIN))
        if behind < start:
            return None, sync(buffer, start + 1, self._BEGIN)
        again = (
            start  # this file may have been cut: a whole one behind it is taken at once, since it cannot be its data
        )
        while (again := buffer.find(self._BEGIN, again + 1)) >= 0:
            behind = self._end(buffer, again)
            if behind > again and self._content(bytes(buffer[again:behind])) is not None:
                return None, again
        return None, start

    def _end(self, buffer: bytearray, start: int) -> int:
        """The index after the file that begins at `start`; `start` if its end may still come, -1 if no file begins
        there."""
        at = start + len(self._BEGIN)
        while (at := buffer.find(self._ESCAPE, at, start + self.max_size)) >= 0:
            if off := (at - start) % 4:  # escapes stand at multiples of four; an early hit is data that ends with 1B
                at += 4 - off
                if not buffer.startswith(self._ESCAPE, at):
                    continue
            if len(buffer) < at + 8:
                return start
            if buffer.startswith(self._ESCAPE, at + 4):
                at += 8  # four escaped bytes of data
            else:
                return at + 8 if buffer[at + 4] == 0x1A else -1
        return start if len(buffer) - start < self.max_size else -1

    def _content(self, raw: bytes) -> bytes | None:
        fill = raw[-3]
        low, high = raw[-2:]
        if fill > 3 or (crc16_x25(raw[:-2]) != high << 8 | low and crc16_kermit(raw[:-2]) != low << 8 | high):
            return None
        content, found, at = raw[8:-8], bytearray(), 0
        while at < len(content):  # four bytes at a time, as they were escaped
            word = content[at : at + 4]
            at += 8 if word == self._ESCAPE else 4
            found += word
        return bytes(found[: len(found) - fill])


class MBusFramer(Value):
    """Frames of the wired M-Bus (EN 13757-2): C, A, CI and the data of a long frame, C and A of a short one, and
    ``b"\\xe5"``. The checksum must be correct.

    The byte E5, which acknowledges, has no checksum, and inside a frame with a wrong bit it is data. So behind bytes
    that are no frame it counts only when the line is quiet after it.

    Args:
        answers: what a meter answers. Frames of the master, which a converter may send back, are passed over, and E5
            always waits until the line is quiet. `SerialPort.request` sees to that by itself.
    """

    __slots__ = ("answers",)
    answers: bool
    max_size = 261
    """68 L L 68, 255 bytes, checksum, 16."""
    _FROM_MASTER = 0x40
    """The bit of the C field that is set in what the master sends (EN 13757-2, 5.7.2)."""

    def __init__(self, *, answers: bool = False) -> None:
        self._hold(answers=answers)

    def answering(self, request: bytes) -> "MBusFramer":
        """See `AnswerFramer`."""
        return MBusFramer(answers=True)

    def find(self, buffer: bytearray, start: int) -> Found:
        if buffer[start] == 0xE5 and not self.answers:
            return b"\xe5", start + 1
        content, behind = self._frame(buffer, start)
        if content is not None and self.answers and content[0] & self._FROM_MASTER:
            return None, behind
        if content is not None or behind == start:
            return content, behind
        garbage = start  # stays in the buffer while E5 follows it, to tell that one from an acknowledgement
        for at in range(start + 1, len(buffer)):
            if buffer[at] == 0xE5:
                continue
            content, behind = self._frame(buffer, at)
            if content is not None or behind == at:
                return None, at
            garbage = at
        return None, len(buffer) if len(buffer) - garbage > self.max_size else garbage

    def settle(self, buffer: bytearray) -> Behind | None:
        """See `SettlesFramer`."""
        content, behind = self._frame(buffer, 0)
        if content is None and (behind < 0 or (self.answers and buffer[0] == 0x10)):  # no frame of a meter
            return Behind(b"\xe5", len(buffer) - 1, len(buffer)) if buffer[-1] == 0xE5 else None
        for at in range(1, len(buffer)):
            content, behind = self._frame(buffer, at)
            if content is not None and not (self.answers and content[0] & self._FROM_MASTER):
                return Behind(content, at, behind)
        return None

    def _frame(self, buffer: bytearray, at: int) -> Found:
        """As `find`, for a long or a short frame: the index is -1 if none begins here."""
        first, waiting = buffer[at], len(buffer) - at
        if first == 0x10:
            header, length = 1, 2
        elif first == 0x68 and waiting < 4:
            return None, at
        elif first == 0x68 and buffer[at + 1] == buffer[at + 2] >= 3 and buffer[at + 3] == 0x68:
            header, length = 4, buffer[at + 1]
        else:
            return None, -1
        behind = at + header + length + 2
        if len(buffer) < behind:
            return None, at
        content = bytes(buffer[at + header : behind - 2])
        if buffer[behind - 1] != 0x16 or buffer[behind - 2] != sum8(content):
            return None, -1
        return content, behind
