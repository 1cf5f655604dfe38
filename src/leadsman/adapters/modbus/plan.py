"""Which requests read a table from a device that refuses some of its registers. Pure."""

from collections.abc import Collection

from leadsman.adapters.modbus.table import Block, Table

ASKED_AGAIN = 600.0
"""Seconds after which a device is asked again for all registers. It may have a new firmware, or have started since."""
MAX_REFUSALS = 16
"""Requests of one read that a device may refuse before it has answered any: then it refuses everything, as one of
another kind does. The next read goes on where this one ended."""


class Plan:
    """The requests that a device answers, as far as they are known: those that it refuses are divided, until each reads
    one register.

    Args:
        table: what is read.
        names: of its registers.
        now: monotonic seconds.
    """

    def __init__(self, table: Table, names: Collection[str], now: float) -> None:
        self.until = now + ASKED_AGAIN
        """When it ends, monotonic seconds."""
        self.blocks = list(table.blocks(names))
        """The next read begins with the first."""
        self._table = table
        self._refused: list[Block] = []

    def refuse(self, block: Block) -> tuple[Block, ...]:
        """Note that the device refuses a request. Returns what to ask instead; nothing if it cannot be divided."""
        parts = self._table.split(block)
        if block in self.blocks:  # another read may have divided it meanwhile
            self.blocks.remove(block)
            self.blocks.extend(parts or (block,))
        if not parts:
            self._refused.append(block)
        return parts

    def settle(self) -> None:
        """Leave out what was refused and is optional, after a read in which the device answered something."""
        absent = [each for each in self._refused if self._is_optional(each)]
        self.blocks = [each for each in self.blocks if each not in absent]
        self._refused.clear()

    def _is_optional(self, block: Block) -> bool:
        return all(self._table.registers[name].optional for name in block.names)
