"""What a policy decides about a failed call."""

from collections.abc import Mapping
from typing import NamedTuple


class Retry(NamedTuple):
    """Call again after `delay` seconds."""

    delay: float


class GiveUp(NamedTuple):
    """The cycle has failed. `reason` is a key of `REASONS`."""

    reason: str


Verdict = Retry | GiveUp

REASONS: Mapping[str, str] = {
    "count": "gave up: no retries left",
    "filtered": "gave up: errors of this kind are not retried; see retry_on or the policy",
    "next-poll": "the next poll tries again",
    "budget": "gave up: the budget is used up",
    "time": "gave up: the time is up",
    "probe": "the probe failed",
    "tokens": "gave up: the adapter has no retries left",
    "never": "gave up: the policy is never",
    "deferred": "deferred, as the device asked",
    "isolated": "gave up: the circuit was isolated by hand",
    "fault": "gave up: the policy itself failed",
}
"""What a reason means, for a person."""
