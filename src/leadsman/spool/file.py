"""The file of the spool."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from leadsman.spool.row import DeadLetter, Evicted, Found, Quota, Row

NAME = "outbox.db"
"""The name of the file, in the state directory of an app."""


class SpoolFile:
    """Rows in one SQLite file. All methods block; one thread at a time calls them, and it may be another each time.

    Damage is no error: a damaged file is put aside, its rows are salvaged, and `found` says so.

    Args:
        path: the file. Its directory is made where it is missing.
        quota: how much waits at the most. `write` obeys it, `open` deletes nothing.
        now: the wall clock, in epoch seconds.

    Raises:
        SpoolLocked, SpoolFull, SpoolUnavailable, SpoolReplaced: from all methods but `close`. Nothing was changed then.
    """

    def __init__(self, path: Path, quota: Quota, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self.quota = quota
        self.found = Found(0, 0, 1, None)
        """What `open` found. `quarantined`, `salvaged` and `damaged` change when damage is found later."""

    def open(self) -> Found:
        """Lock and open the file, or make it. After an error, and after `close`, it may be called again."""
        raise NotImplementedError

    def write(
        self, add: Sequence[Row], settled: Sequence[int], dead: Sequence[tuple[Row, str]] = ()
    ) -> list[Evicted]:
        """Add rows, delete the settled ones, and move dead ones to the dead letters, each with its reason: all of it in
        one transaction that survives a power cut, or nothing of it.

        A row whose id is in the file replaces that row, so a write may be repeated. Ids that are not in the file may be
        settled. On a disk that is almost full, ``write((), settled)`` still works where `SpoolFull` refuses more rows.

        Returns:
            What was deleted or not written because of the quota, its age or a newer row.
        """
        raise NotImplementedError

    def read(self, after: int, most_rows: int, most_bytes: int) -> list[Row]:
        """Rows with ids larger than `after`, in order; one at least if there are any. `most_bytes` counts as `size`
        does. A row with a wrong checksum becomes a dead letter and is counted in ``found.damaged``."""
        raise NotImplementedError

    def topics(self) -> dict[str, int]:
        """Rows of each topic."""
        raise NotImplementedError

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first."""
        raise NotImplementedError

    def resend(self, numbers: Sequence[int]) -> list[Row]:
        """Make rows of dead letters again, with new ids and a new `Row.run`. Returns the rows."""
        raise NotImplementedError

    def drop(self, numbers: Sequence[int]) -> int:
        """Delete dead letters. Returns how many there were."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it and let the next process have it."""
        raise NotImplementedError
