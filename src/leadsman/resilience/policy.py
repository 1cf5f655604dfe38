"""Whether a failed call is repeated, and after how long.

Two counters with two lifetimes. `Streak.retries` counts within one poll and is held against ``retry``; `Streak.waits`
counts since the last success and is the attempt number that the backoff sees, so that an outage which spans polls goes
on backing off. A wait that is not taken, because the next poll comes first, counts for neither.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from leadsman.errors import InvalidType, InvalidValue, TransientError

DEFAULT_RETRY_ON: tuple[type[Exception], ...] = (OSError, TransientError)
"""What is retried unless told otherwise, with the adapter's `transient_errors` added. `TimeoutError` is an `OSError`."""


class Retry(NamedTuple):
    """Call again after `delay` seconds."""

    delay: float


class GiveUp(NamedTuple):
    """The poll has failed. `reason`: ``count``, ``filtered``, ``next-poll`` or ``probe``."""

    reason: str


Verdict = Retry | GiveUp


class Streak(NamedTuple):
    """What a policy remembers of an outage; all zero after a success."""

    waits: int = 0
    retries: int = 0


CLEAR = Streak()


class RetryPolicy(NamedTuple):
    """At most `retries` repetitions per poll of failures that match `retry_on`: ``retry=3`` is four calls."""

    retries: int = 0
    retry_on: tuple[type[Exception], ...] = DEFAULT_RETRY_ON

    def step(
        self, streak: Streak, error: Exception, wait: Callable[[int], float], horizon: float
    ) -> tuple[Streak, Verdict]:
        """Decide about one failed call.

        Args:
            streak: what is remembered; `Streak.retries` is zero at the first failure of a poll.
            error: what the call raised.
            wait: the jittered delay in seconds before retry number n since the last success.
            horizon: seconds until the next poll is due, or infinity. A retry at or after it is dropped: the poll is
                the retry. So retrying never makes fewer calls than plain polling would.
        """
        if streak.retries >= self.retries:
            return streak, GiveUp("count")
        if not matches(error, self.retry_on):
            return streak, GiveUp("filtered")
        delay = wait(streak.waits + 1)
        if delay >= horizon:
            return streak, GiveUp("next-poll")
        return Streak(streak.waits + 1, streak.retries + 1), Retry(delay)


ONCE = RetryPolicy()
"""No retries."""


def matches(error: BaseException, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether an error is of one of `kinds`; an exception group is when all its leaves are."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


def exception_types(value: object, what: str) -> tuple[type[Exception], ...]:
    """Read a class, a list or a tuple of classes.

    Raises:
        InvalidType: something in it is not a subclass of `Exception`; `CancelledError`, `KeyboardInterrupt` and
            `SystemExit` are not, and are never retried nor counted.
        InvalidValue: it is empty.
    """
    kinds = tuple(value) if isinstance(value, Iterable) and not isinstance(value, type | str) else (value,)
    if not kinds:
        raise InvalidValue(f"{what} is empty, so nothing would match; leave it out for the default, or name the errors")
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            name = kind.__name__ if isinstance(kind, type) else repr(kind)
            raise InvalidType(f"{what} holds {name}, which is not a subclass of Exception; name exception classes only")
    return kinds
