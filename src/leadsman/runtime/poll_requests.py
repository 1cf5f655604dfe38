"""The requests for one handler's poll."""

import math

from leadsman.reading import Reading
from leadsman.runtime.runner import Answer


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
