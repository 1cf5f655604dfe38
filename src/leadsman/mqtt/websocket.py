"""Reads the frames of a WebSocket (RFC 6455), as a broker sends them: the bytes of binary messages come out as they
come in, whatever length a frame claims, so nothing waits but the head of one."""

import struct

CONTINUATION, BINARY, CLOSE, PING, PONG = 0x0, 0x2, 0x8, 0x9, 0xA
"""Opcodes (§5.2)."""
_FINAL, _MASKED = 0x80, 0x80
_LONGEST_CONTROL = 125
"""Bytes that a control frame may carry (§5.5)."""


class FrameError(Exception):
    """The broker sent what is no frame of MQTT over WebSocket."""


class FrameReader:
    """The reading side of one connection."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the broker has said that it closes. Nothing after that counts."""
        self._head = bytearray()
        """The head of a frame that is not complete, or a control frame that is not."""
        self._left = 0
        """Bytes of the present frame that are still to come."""

    def take(self, data: bytes) -> tuple[bytes, tuple[int, bytes] | None]:
        """Take what has arrived. Returns the bytes of messages, and the opcode and the content of the control frame to
        answer with, if any: of several pings the last one may be answered alone (§5.5.3).

        Raises:
            FrameError: the connection is of no use any more.
        """
        message, answer, rest = bytearray(), None, memoryview(bytes(self._head) + data)
        self._head.clear()
        while len(rest) and not self.closed:
            if self._left:
                message += rest[: self._left]
                taken = min(self._left, len(rest))
                self._left -= taken
                rest = rest[taken:]
                continue
            frame = _head(rest)
            if frame is None:
                self._head += rest
                break
            opcode, at, length = frame
            if opcode in (CONTINUATION, BINARY):
                self._left, rest = length, rest[at:]
            elif len(rest) < at + length:
                self._head += rest
                break
            else:
                self.closed = opcode == CLOSE
                if opcode != PONG:
                    answer = CLOSE if self.closed else PONG, bytes(rest[at : at + length])
                rest = rest[at + length :]
        return bytes(message), answer


def _head(rest: memoryview) -> tuple[int, int, int] | None:
    """The opcode of the frame at the beginning, where its content begins, and its length; None as long as its head is
    not complete."""
    if len(rest) < 2:
        return None
    opcode, length, at = rest[0] & 0x0F, rest[1] & 0x7F, 2
    if rest[1] & _MASKED:
        raise FrameError("the broker sent a WebSocket frame with a mask, which only a client may")
    if opcode not in (CONTINUATION, BINARY, CLOSE, PING, PONG):
        raise FrameError(f"the broker sent a WebSocket frame that is not binary (opcode {opcode})")
    if opcode >= CLOSE and (length > _LONGEST_CONTROL or not rest[0] & _FINAL):
        raise FrameError("the broker sent a WebSocket control frame that is too long")
    if length > _LONGEST_CONTROL:
        kind, at = ("!H", 4) if length == 126 else ("!Q", 10)
        if len(rest) < at:
            return None
        (length,) = struct.unpack(kind, rest[2:at])
    return opcode, at, length
