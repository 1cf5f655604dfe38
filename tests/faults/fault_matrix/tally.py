"""Counts numbered readings: which were taken, which came, and in which order."""

import json
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple


class Taken(NamedTuple):
    """A reading that a device gave to the app: its number, and the time in seconds of `time.time`."""

    number: int
    at: float


def taken(ledger: Path, until: float = float("inf")) -> dict[str, set[int]]:
    """The numbers of the readings that each device gave before the time `until`, from the file that the app writes."""
    found: dict[str, set[int]] = defaultdict(set)
    if ledger.exists():
        for line in ledger.read_text().splitlines(keepends=True):
            device, number, at = line.split() if line.endswith("\n") else ("", "0", "inf")  # killed while it wrote
            if float(at) < until:
                found[device].add(int(number))
    return found


class Tally:
    """The readings that came."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        """The numbers of each device in the order in which they came first."""
        self.duplicates = self.disordered = 0
        self._seen: dict[str, set[int]] = defaultdict(set)

    def add(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        """Count a message, if it is a reading. One that the broker had kept says nothing about order."""
        levels = topic.split("/")
        if levels[-1] != "state":
            return
        device, number = levels[-2], json.loads(payload)["n"]
        if number in self._seen[device]:
            self.duplicates += not retained
            return
        self.disordered += not retained and number < max(self._seen[device], default=0)
        self._seen[device].add(number)
        self.numbers[device].append(number)

    def clear(self) -> None:
        """Begin anew."""
        self.numbers.clear()
        self._seen.clear()
        self.duplicates = self.disordered = 0

    @property
    def came(self) -> int:
        """How many different readings came."""
        return sum(map(len, self._seen.values()))

    def lost(self, expected: Mapping[str, Set[int]]) -> dict[str, set[int]]:
        """The numbers of `expected` that did not come, of the devices that miss any."""
        missing = {device: set(numbers) - self._seen[device] for device, numbers in expected.items()}
        return {device: numbers for device, numbers in missing.items() if numbers}
