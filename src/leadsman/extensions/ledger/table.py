"""The ledgers of an app in the file behind ``keep_state=True``."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from leadsman.core.runtime.failure_state import UNREADABLE, warn_damaged
from leadsman.core.runtime.statefile import FurtherTable, SavedState
from leadsman.core.storage.database import Work
from leadsman.extensions.ledger.reports import LedgerReports
from leadsman.extensions.ledger.saved import HEAD, HOUR, KEPT_SECONDS, LedgerRow

Rows = dict[tuple[str, int], str]
"""The JSON of rows, by device and key."""


class LedgerTable(FurtherTable):
    """Keeps them.

    Args:
        reports: the ledgers.
        is_durable: whether readings that waited as the earlier run ended are on disk, and are sent now.
    """

    query = "SELECT name, key, document FROM ledger ORDER BY key"

    def __init__(self, reports: LedgerReports, is_durable: Callable[[], bool]) -> None:
        self._reports = reports
        self._is_durable = is_durable
        self._found: dict[str, list[tuple[int, object]]] = {}
        self._new: Rows = {}
        self._gone: set[str] = set()
        self._waiting: Rows = {}

    def found(self, rows: Sequence[tuple[object, ...]]) -> None:
        """See `FurtherTable`."""
        for name, key, document in cast("Sequence[tuple[str, int, object]]", rows):
            self._found.setdefault(name, []).append((key, document))

    def restore(self, store: SavedState) -> None:
        """See `FurtherTable`. A ledger that is damaged is left out."""

        def keep(name: str, rows: Iterable[LedgerRow]) -> None:
            self._new.update(((name, row.key), json.dumps(row.document)) for row in rows)
            store.soon()

        self._reports.saved.add(keep)
        found, self._found = self._found, {}
        durable = self._is_durable()
        for name, saved in found.items():
            try:
                rows = [LedgerRow(key, json.loads(str(document))) for key, document in saved]
                self._reports.restore(name, rows, durable=durable)
            except UNREADABLE as error:
                warn_damaged("%s: its ledger in %s is damaged (%s); a new one is begun", name, store.path, error)

    def forget(self, device: str) -> None:
        """See `FurtherTable`."""
        self._found.pop(device, None)
        self._new = _without(self._new, {device})
        self._gone.add(device)

    def gather(self) -> Callable[[], None]:
        """See `FurtherTable`."""
        new, self._new = self._new, {}
        gone, self._gone = self._gone, set()
        return lambda: self.keep(new, gone)

    def keep(self, rows: Rows, gone: frozenset[str] | set[str] = frozenset()) -> None:
        """Let rows wait for the next write. Those of devices that are gone wait no more, nor do those that are too old
        to be read after a restart: a disk that stays full must not fill the memory."""
        waiting = _without(self._waiting, gone) | rows
        oldest = max((key for _, key in waiting), default=0) - KEPT_SECONDS - HOUR
        self._waiting = {each: row for each, row in waiting.items() if each[1] == HEAD or each[1] >= oldest}

    @property
    def waits(self) -> bool:
        """See `FurtherTable`."""
        return bool(self._waiting)

    def work(self, gone: Sequence[tuple[str]]) -> Work:
        """See `FurtherTable`."""
        rows = sorted((key, name, document) for (name, key), document in self._waiting.items())
        work: Work = [
            ("DELETE FROM ledger WHERE name = ?", gone),
            (
                "INSERT INTO ledger (key, name, document) VALUES (?, ?, ?) "
                "ON CONFLICT (key, name) DO UPDATE SET document = excluded.document",
                rows,
            ),
        ]
        if rows:
            oldest = rows[-1][0] - KEPT_SECONDS - HOUR
            work.append(("DELETE FROM ledger WHERE key != ? AND key < ?", [(HEAD, oldest)]))
        return work

    def written(self) -> None:
        """See `FurtherTable`."""
        self._waiting = {}


def _without(rows: Rows, gone: set[str] | frozenset[str]) -> Rows:
    return {each: row for each, row in rows.items() if each[0] not in gone} if gone else rows
