"""The requests for one handler's poll."""

import math

from leadsman.errors import PollRefused
from leadsman.reading import Reading
from leadsman.resilience.retry_loop import Execution
from leadsman.runtime.runner import Answer
from leadsman.timing.durations import human

UNBLOCKED = frozenset({"closed", "disabled"})
"""The states of a circuit in which a poll besides the schedule may begin."""


class PollRequests:
    """Who waits for the poll under way, and when one was requested last."""

    __slots__ = ("answers", "polled_at")

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        """Who waits for the poll under way."""
        self.polled_at = -math.inf
        """When a poll was last requested, monotonic seconds."""

    def answer(self, result: Reading | BaseException | None) -> None:
        """Answer all that wait."""
        answers, self.answers = self.answers, []
        for answer in answers:
            answer(result)


def check_circuit(execution: Execution[Reading | None], now: float) -> None:
    """Let a requested poll pass the circuit, as one that is due does.

    Raises:
        PollRefused: the device is held or asked for a pause, or the circuit is open.
    """
    circuit = execution.circuit
    if circuit.held:
        raise PollRefused("the device is held; release it first")
    if (until := circuit.deferred_until) > now:
        raise PollRefused(f"the device asked for a pause, which lasts another {human(round(until - now, 1))}")
    if execution.snapshot().circuit not in UNBLOCKED or not execution.admit():
        raise PollRefused(
            "the circuit is open: the device failed several polls in a row, and is only probed on schedule"
        )
