"""The rows of the trace that survive a restart, in the file behind ``keep_state=True``."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from leadsman.core.monitoring.trace_row import TraceRow
from leadsman.core.runtime.statefile import FurtherTable, SavedState
from leadsman.core.storage.database import Work
from leadsman.extensions.trace.trace import MAX_ROWS as MAX_ROWS_IN_MEMORY
from leadsman.extensions.trace.trace import ROWS as ROWS_IN_MEMORY
from leadsman.extensions.trace.trace import Trace

ROWS = 10_000
"""Rows of the trace that are kept. Of more, the device with most rows loses its oldest."""
TRIM = 500
"""Rows after which those above are deleted: each deletion writes pages."""
_DELETE_OLD = (
    "DELETE FROM trace WHERE number IN (SELECT number FROM (SELECT number, row_number() OVER"
    " (PARTITION BY handler ORDER BY number DESC) AS age FROM trace) ORDER BY age DESC, number"
    " LIMIT max(0, (SELECT count(*) FROM trace) - ?))"
)
ROW_BYTES = 16 * 1024
"""Bytes of trace rows in one write, at most: the newest row of each device, then the next ones, one of each."""


class TraceTable(FurtherTable):
    """Keeps them.

    Args:
        traces: the trace, once there is something in it.
        resume: goes on with the outages of an earlier run; see `leadsman.extensions.trace.part.Tracing.resume`.
    """

    def __init__(self, traces: Sequence[Trace], resume: Callable[[Mapping[str, float]], None]) -> None:
        self._traces = traces
        self._resume = resume
        self._traced = 0
        self._rows: dict[str, deque[tuple[int, TraceRow]]] = {}  # by device, numbered as they came
        self._came = 0
        self._tracebacks: dict[str, str] = {}
        self._untrimmed = TRIM
        self._after: tuple[dict[str, str], int] = {}, TRIM
        """The last two, once the write that is under way has succeeded."""

    def restore(self, store: SavedState) -> None:
        """See `FurtherTable`."""
        self._resume(store.outages)

    def gather(self) -> Callable[[], None]:
        """See `FurtherTable`."""
        rows = [row for trace in self._traces for row in trace.rows(after=self._traced)]
        self._traced = rows[-1].number if rows else self._traced
        return lambda: self.keep(rows)

    def keep(self, rows: Iterable[TraceRow]) -> None:
        """Let rows wait for the next write: as many as in memory, if the disk takes none for long."""
        for row in rows:
            self._came += 1
            self._rows.setdefault(row.handler, deque(maxlen=ROWS_IN_MEMORY)).append((self._came, row))
        for _ in range(sum(map(len, self._rows.values())) - MAX_ROWS_IN_MEMORY):
            max(self._rows.values(), key=len).popleft()

    @property
    def waits(self) -> bool:
        """See `FurtherTable`."""
        return bool(self._rows)

    def work(self, gone: Sequence[tuple[str]]) -> Work:
        """See `FurtherTable`."""
        rows, tracebacks = self._encoded_rows()
        work: Work = [("INSERT INTO trace (at, handler, document) VALUES (?, ?, ?)", rows)]
        untrimmed = self._untrimmed + len(rows)
        if rows and untrimmed > TRIM:
            work.append((_DELETE_OLD, [(ROWS,)]))
            untrimmed = 0
        self._after = tracebacks, untrimmed
        return work

    def written(self) -> None:
        """See `FurtherTable`."""
        self._tracebacks, self._untrimmed = self._after
        self._rows.clear()

    def begin_again(self) -> None:
        """See `FurtherTable`."""
        self._tracebacks = {}

    def _encoded_rows(self) -> tuple[list[tuple[float, str, str]], dict[str, str]]:
        """The rows of this write, as they are stored, oldest first, and each handler's last traceback."""
        turns = [(age, -came, row) for each in self._rows.values() for age, (came, row) in enumerate(reversed(each))]
        taken, size = list[tuple[int, TraceRow]](), 0
        for _, came, row in sorted(turns, key=lambda turn: turn[:2]):
            size += len(_encode([row], {row.handler: row.traceback or ""})[0][2])
            if size > ROW_BYTES:
                break
            taken.append((-came, row))
        while True:
            tracebacks = dict(self._tracebacks)
            encoded = _encode((row for _, row in sorted(taken)), tracebacks)
            if sum(len(row[2]) for row in encoded) <= ROW_BYTES:
                return encoded, tracebacks
            taken.pop()  # tracebacks that are not stored yet come on top


def _encode(rows: Iterable[TraceRow], tracebacks: dict[str, str]) -> list[tuple[float, str, str]]:
    """Rows as they are stored. What a row does not have is left out, and a traceback that is the same as in the
    handler's row before; `tracebacks` holds those, by handler, and is kept up."""
    encoded = []
    for row in rows:
        fields = {key: value for key, value in row._asdict().items() if value is not None and key != "number"}
        if row.traceback is not None and tracebacks.get(row.handler) == row.traceback:
            del fields["traceback"]
            fields["repeated"] = True
        elif row.traceback is not None:
            tracebacks[row.handler] = row.traceback
        encoded.append((row.at, row.handler, json.dumps(fields, separators=(",", ":"))))
    return encoded
