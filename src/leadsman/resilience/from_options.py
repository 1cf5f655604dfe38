"""Converts the retry options of a decorator, ``retry``, ``retry_on``, ``backoff``, ``budget`` and ``within``, into one
policy."""

import functools
import math
from collections.abc import Iterable
from enum import Enum
from typing import Final

from leadsman.errors import TransientError
from leadsman.resilience.algebra import Budget, CountBox, FilteredOn, Policy, TimeBox
from leadsman.resilience.backoff import DEFAULT_BACKOFF, BackoffStrategy
from leadsman.resilience.policy import Waits
from leadsman.resilience.predicate import IsA

DEFAULT_RETRY_ON: tuple[type[Exception], ...] = (OSError, TransientError)
"""The errors that are retried by default, together with the adapter's `transient_errors`. `TimeoutError` is an
`OSError`."""


class Until(Enum):
    """The type of `UNTIL_NEXT_POLL`."""

    NEXT_POLL = "until the next poll"


UNTIL_NEXT_POLL: Final = Until.NEXT_POLL
"""For ``retry``: retry as often as the backoff allows until the next poll is due, whatever the interval."""


@functools.lru_cache(maxsize=256)
def _compiled(
    retries: int | Until, kinds: tuple[type[Exception], ...], backoff: BackoffStrategy, budget: float, within: float
) -> Policy:
    inner: Policy = Waits(backoff, "outage")
    if math.isfinite(budget):
        inner = Budget(budget, inner)
    if math.isfinite(within):
        inner = TimeBox(within, inner)
    inner = FilteredOn(IsA(*kinds), inner)
    return inner if isinstance(retries, Until) else CountBox(retries, inner)


def from_options(
    retries: int | Until = 0,
    kinds: Iterable[type[Exception]] = DEFAULT_RETRY_ON,
    backoff: BackoffStrategy = DEFAULT_BACKOFF,
    budget: float = math.inf,
    within: float = math.inf,
) -> Policy:
    """Convert the retry options of a decorator into a policy. Equal options return the same object, so that a thousand
    devices share one."""
    try:
        return _compiled(retries, tuple(kinds), backoff, budget, within)  # type: ignore[arg-type]  # see below
    except TypeError:  # somebody's strategy that is no key
        return _compiled.__wrapped__(retries, tuple(kinds), backoff, budget, within)


ONCE = from_options()
"""No retries."""
