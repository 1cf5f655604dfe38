"""A simulated door, which people open and shut behind them."""

import asyncio
import random
from typing import Literal

from leadsman.readings.buffer import Buffer

Moved = Literal["opened", "shut"]
"""What happens at the door."""
SHORTEST, LONGEST = 3.0, 9.0
"""Seconds between two people, at the least and at the most."""
OPEN = 1.0
"""Seconds that it stays open."""


class Door:
    """Puts into a buffer what happens, as the callback of a library for its pins would."""

    def __init__(self) -> None:
        self.moves: Buffer[Moved] = Buffer(100)

    async def live(self) -> None:
        """Let people go through it until cancelled."""
        while True:
            await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
            self.moves.put("opened")
            await asyncio.sleep(OPEN)
            self.moves.put("shut")
