"""Registrations, written down: what the app's decorators were told."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leadsman.adapters.adapter import Slot
from leadsman.command import Command
from leadsman.injection import Needs, name_of
from leadsman.resilience.execution import Rules
from leadsman.source import Source
from leadsman.telemetry import Telemetry
from leadsman.wording import clean

if TYPE_CHECKING:
    from leadsman.introspection.document import Registered


def registrations(registered: Iterable[Telemetry | Source | Command]) -> "dict[str, list[Registered]]":
    """All registrations by name."""
    found: dict[str, list[Registered]] = {}
    for each in registered:
        found.setdefault(each.name, []).append(_registered(each))
    return found


def _registered(each: Telemetry | Source | Command) -> "Registered":
    told: Any = {"handler": clean(name_of(each.handler)), "needs": _adapters(each.needs), "enabled": each.enabled}
    match each:
        case Telemetry():
            own = {
                "kind": "periodic" if each.job else "telemetry",
                "interval": each.interval,
                "schedule": None if each.cron is None else each.cron.expression,
                **_rules(each.rules),
                "timeout": each.rules.timeout,
                "overrun": "finish" if each.overrun else "next-poll",
                "group": each.group,
                "spread": each.spread,
                "stale_after": each.stale_after,
            }
            if not each.job:
                own |= _publishing(each) | {"throttle": each.throttle}
        case Source():
            own = {"kind": "source", **_rules(each.rules), **_publishing(each)}
            own |= {"stale_after": each.stale_after, "silence": each.silence}
        case Command():
            own = {"kind": "command", "timeout": each.timeout, "group": each.group, "queue": each.queue}
            own |= {"when_full": "drop-oldest" if each.drop_oldest else "reject"}
    return own | told  # type: ignore[no-any-return]  # a dict of two parts; its shape is tested against the schema


def _rules(rules: Rules) -> Mapping[str, Any]:
    breaker = rules.breaker
    return {
        "retry": rules.retry.retries,
        "retry_on": [kind.__name__ for kind in rules.retry.retry_on],
        "backoff": clean(repr(rules.backoff)),
        "circuit_breaker": None
        if breaker is None
        else {"threshold": breaker.threshold, "probes": breaker.probes, "successes": breaker.successes},
    }


def _publishing(each: Telemetry | Source) -> dict[str, Any]:
    delivery = each.delivery
    return {
        "publish": None if each.publish is None else clean(repr(each.publish)),
        "delivery": {"qos": delivery.qos, "retain": delivery.retain, "expiry": delivery.expiry},
    }


def _adapters(needs: Needs) -> list[str]:
    return [offer.label for _, offer in needs if isinstance(offer, Slot)]
