"""The handler of the log, which keeps nobody waiting who logs; see `leadsman.core.loop.output`."""

import logging
import os
from collections.abc import Callable
from weakref import WeakSet

from leadsman.core.loop.output import CLOSING, Output
from leadsman.core.text import count_noun, describe, log_fields


class OutputHandler(logging.Handler):
    """Formats records, and has them written by an `Output`.

    Args:
        write: as `Output` takes it.
        end: the same.
    """

    def __init__(self, write: Callable[[str], object], end: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.output = Output(write, self._report, end)
        _HANDLERS.add(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        try:
            line = self.format(record)
        except Exception as error:  # its arguments do not fit its text; Python would print a traceback
            line = self.format(_unformatted(record, error))
        self.output.put(f"{line}\n")

    def flush(self) -> None:
        """Write what waits, for `CLOSING` seconds at most."""
        self.output.flush(CLOSING)

    def close(self) -> None:
        """End."""
        self.output.close()
        super().close()

    def _report(self, lines: int) -> str:
        text = "%s of the log were left out here: nobody read those before"
        record = _record(logging.WARNING, text, count_noun(lines, "line"))
        record.fields = log_fields("log not read", lines=lines)["fields"]
        return f"{self.format(record)}\n"


def _record(level: int, text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("leadsman", level, __file__, 0, text, arguments, None)


def _unformatted(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    where = f"{os.path.basename(record.pathname)}:{record.lineno}"
    text = "a line of the log cannot be formatted: %s; correct the call at %s: %r"
    return _record(logging.ERROR, text, describe(error), where, record.msg)


_HANDLERS: WeakSet[OutputHandler] = WeakSet()


def left_out_lines() -> int:
    """Lines of the log that were left out since the start of the process because nobody read those before them."""
    return sum(handler.output.left_out for handler in list(_HANDLERS))
