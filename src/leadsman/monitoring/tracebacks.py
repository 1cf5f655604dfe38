"""Which tracebacks the log has: that of each bug in code of the user once."""

import logging

from leadsman.monitoring.bugs import is_bug, place, placed
from leadsman.text import log_fields

logger = logging.getLogger("leadsman")

MOST_PLACES = 1000
"""Bugs whose traceback is not logged again. Past that number, the oldest may have a second one."""


class Tracebacks:
    """Which tracebacks have been logged. Each bug, which is an error at a place of a handler, has one in the log, and
    one at each occurrence if the log shows DEBUG."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], None] = {}

    def lines(self, about: str, error: BaseException) -> list[str]:
        """The lines of a traceback that is due; none for an error that is no bug. `about`: the handler."""
        if not is_bug(error):
            return []
        from leadsman.user_code import frames_of

        key = about, type(error).__name__, place(error)
        if key in self._known and not logger.isEnabledFor(logging.DEBUG):
            return []
        self._known[key] = None
        if len(self._known) > MOST_PLACES:
            del self._known[next(iter(self._known))]
        return frames_of(error)

    def log(self, about: str, error: BaseException) -> None:
        """Log the traceback that is due on a line of its own, after lines that count several errors."""
        lines = self.lines(about, error)
        if lines:
            fields = log_fields("bug", handler=about, error_type=type(error).__name__)
            logger.warning("%s", "\n".join([f"{about}: {placed(error)}", *lines]), extra=fields)
