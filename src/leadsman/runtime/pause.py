"""The end of a pause that a device asked for: it is polled once then, and on its schedule again after that."""

from collections.abc import Callable


class PauseEnd:
    """An alarm at the end of a pause.

    Args:
        at: monotonic seconds.
        resume: called then, with this.
    """

    __slots__ = ("_resume", "at")

    def __init__(self, at: float, resume: "Callable[[PauseEnd], None]") -> None:
        self.at = at
        self._resume = resume

    def ring(self, now: float) -> None:
        """The pause is over."""
        self._resume(self)
