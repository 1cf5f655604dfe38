"""Registrations, written down: what the app's decorators were told."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadsman.adapters.adapter import Slot
from leadsman.command import Command
from leadsman.injection import Needs, name_of
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.policy import Budget, CountBox, FilteredOn, Policy, TimeBox, Waits
from leadsman.resilience.predicate import IsA
from leadsman.resilience.terms import Rules
from leadsman.resilience.words import UNTIL_NEXT_POLL
from leadsman.source import Source
from leadsman.telemetry import Telemetry
from leadsman.wording import clean

if TYPE_CHECKING:
    from leadsman.introspection.document import Registered


def kind_of(each: Telemetry | Source | Command) -> str:
    """The decorator that it was registered with."""
    if isinstance(each, Telemetry):
        return "periodic" if each.job else "telemetry"
    return "source" if isinstance(each, Source) else "command"


def registered(each: Telemetry | Source | Command) -> "Registered":
    """One registration."""
    told: Any = {
        "kind": kind_of(each),
        "handler": clean(name_of(each.handler)),
        "needs": _adapters(each.needs),
        "enabled": each.enabled,
    }
    match each:
        case Telemetry():
            own = {
                "interval": each.interval,
                "schedule": None if each.cron is None else each.cron.expression,
                **_rules(each.rules),
                "timeout": each.rules.timeout,
                "overrun": "finish" if each.overrun else "next-poll",
                "on_failure": each.on_failure if isinstance(each.on_failure, str) else clean(name_of(each.on_failure)),
                "group": each.group,
                "spread": each.spread,
                "stale_after": each.stale_after,
            }
            if not each.job:
                own |= _publishing(each) | {"throttle": each.throttle}
        case Source():
            own = {**_rules(each.rules), **_publishing(each)}
            own |= {"stale_after": each.stale_after, "silence": each.silence}
        case Command():
            own = {"timeout": each.timeout, "group": each.group, "queue": each.queue}
            own |= {"when_full": "drop-oldest" if each.drop_oldest else "reject"}
    return told | own  # type: ignore[no-any-return]  # a dict of two parts; its shape is tested against the schema


def _rules(rules: Rules) -> Mapping[str, Any]:
    breaker = rules.breaker
    return {
        **_retries(rules.policy),
        "circuit_breaker": None if breaker is None else _breaker(breaker),
    }


def policy_in_words(policy: Policy) -> str:
    """A policy for a person: in the words of the decorator where they made it, else as it is written in the algebra."""
    words = _retries(policy)
    if "policy" in words:
        return str(words["policy"])
    kinds = ", ".join(words.pop("retry_on"))
    return ", ".join([f"{word}={value}" for word, value in words.items()] + [f"retry_on=({kinds})"])


def _breaker(rule: CircuitBreaker) -> dict[str, Any]:
    recovery = rule.recovery
    return {
        "threshold": rule.threshold,
        "recovery": recovery if recovery is None or isinstance(recovery, float) else _shown(recovery),
        "window": rule.window,
        "slow": rule.slow,
        "shared": rule.shared,
        "probes": rule.probes,
        "successes": rule.successes,
    }


def _retries(policy: Policy) -> dict[str, Any]:
    """The policy in the words of the decorator where they made it, else as it is written in the algebra."""
    whole, limits = policy, dict[str, Any]({"retry": UNTIL_NEXT_POLL.value})
    if isinstance(policy, CountBox) and policy.scope == "cycle":
        limits["retry"], policy = policy.limit, policy.inner
    if isinstance(policy, FilteredOn) and isinstance(policy.condition, IsA):
        limits["retry_on"], policy = [kind.__name__ for kind in policy.condition.kinds], policy.inner
        for word, node in (("within", TimeBox), ("budget", Budget)):
            if isinstance(policy, node) and policy.scope == "outage":
                limits[word], policy = policy.limit, policy.inner
        if isinstance(policy, Waits) and policy.scope == "outage":
            return limits | {"backoff": _shown(policy.strategy)}
    return {"policy": clean(repr(whole))}


def _publishing(each: Telemetry | Source) -> dict[str, Any]:
    delivery = each.delivery
    return {
        "publish": None if each.publish is None else _shown(each.publish),
        "delivery": {"qos": delivery.qos, "retain": delivery.retain, "expiry": delivery.expiry},
    }


def _shown(rule: object) -> str:
    """One of our values as it is written; what a user made by its class, as nobody knows what it holds."""
    return clean(repr(rule)) if type(rule).__module__.startswith("leadsman.") else type(rule).__qualname__


def _adapters(needs: Needs) -> list[str]:
    return [offer.label for _, offer in needs if isinstance(offer, Slot)]
