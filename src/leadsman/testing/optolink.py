"""A simulated boiler control behind an optical interface. It speaks P300 or KW, and stores bytes at addresses."""

from collections.abc import Mapping

from leadsman.adapters.serial.checksums import sum8


class Boiler:
    """A simulated boiler without I/O: `receive` takes the bytes sent to it and returns its answer.

    Args:
        memory: bytes by address; a write to an address that does not exist is refused.
        protocol: ``P300`` or ``KW``.
    """

    def __init__(self, memory: Mapping[int, bytes], protocol: str = "P300") -> None:
        self.memory = {address: bytes(data) for address, data in memory.items()}
        self.writes: list[tuple[int, bytes]] = []
        """What was written, in order."""
        self.silent = False
        """Whether it hears nothing, as one that is switched off."""
        self._kw = protocol == "KW"
        self._ready = False
        self._buffer = bytearray()

    def restart(self) -> None:
        """Be switched off and on: it hears again, and has forgotten the session."""
        self.silent = self._ready = False
        self._buffer.clear()

    def beat(self) -> bytes:
        """The byte that it sends every two seconds while it has no session."""
        return b"" if self.silent or self._ready else b"\x05"

    def receive(self, data: bytes) -> bytes:
        """Hear `data` and answer."""
        if self.silent:
            return b""
        self._buffer += data
        answers = bytearray()
        while self._buffer and (answer := self._kw_step() if self._kw else self._p300_step()) is not None:
            answers += answer
        return bytes(answers)

    def _p300_step(self) -> bytes | None:
        buffer = self._buffer
        if buffer[0] == 0x04:
            del buffer[0]
            self._ready = False
            return b"\x05"
        if buffer[0] == 0x16:
            if len(buffer) < 3:
                return None
            self._ready = buffer[:3] == b"\x16\x00\x00"
            del buffer[:3]
            return b"\x06" if self._ready else b"\x15"
        if buffer[0] != 0x41 or not self._ready:
            del buffer[0]
            return b""  # an acknowledgement, or noise
        if len(buffer) < 2 or len(buffer) < buffer[1] + 3:
            return None
        content, check = bytes(buffer[1 : buffer[1] + 2]), buffer[buffer[1] + 2]
        del buffer[: len(content) + 2]
        if sum8(content) != check or len(content) < 6:
            return b"\x15"
        mode, address, length, data = content[2], int.from_bytes(content[3:5], "big"), content[5], content[6:]
        found = self._read(address, length) if mode == 1 else self._write(address, data)
        answer = bytes((3 if found is None else 1,)) + content[2:6] + (found or b"")
        answer = bytes((len(answer),)) + answer
        return b"\x06\x41" + answer + bytes((sum8(answer),))

    def _kw_step(self) -> bytes | None:
        buffer = self._buffer
        if buffer[0] == 0x01:
            del buffer[0]
            return b""
        if buffer[0] not in (0xF7, 0xF4):
            del buffer[0]
            return b""
        if len(buffer) < 4 or (buffer[0] == 0xF4 and len(buffer) < 4 + buffer[3]):
            return None
        address, length, writing = int.from_bytes(buffer[1:3], "big"), buffer[3], buffer[0] == 0xF4
        data = bytes(buffer[4 : 4 + length]) if writing else b""
        del buffer[: 4 + len(data)]
        if writing:
            return b"\x00" if self._write(address, data) is not None else b"\xff"
        return self._read(address, length) or b"\xff" * length

    def _read(self, address: int, length: int) -> bytes | None:
        found = self.memory.get(address, b"")
        return found[:length] if len(found) >= length else None

    def _write(self, address: int, data: bytes) -> bytes | None:
        if address not in self.memory:
            return None
        self.memory[address] = data
        self.writes.append((address, data))
        return b""
