"""Describes the registrations of an app: the names and options of its handlers."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.loop.durations import human
from leadsman.core.readings.publish import AllOf, AnyOf, Deadband, Every, OnChange, PublishRule
from leadsman.core.readings.sensor import FieldPresentation
from leadsman.core.registration.command import Command, CommandOptions
from leadsman.core.registration.declaration import described_as_they_are
from leadsman.core.registration.injection import Dependencies, name_of
from leadsman.core.registration.options import write_offline_on
from leadsman.core.registration.source import Source, SourceOptions
from leadsman.core.registration.telemetry import Telemetry, TelemetryOptions
from leadsman.core.resilience.breaker import CircuitBreaker
from leadsman.core.resilience.notation import render, render_condition
from leadsman.core.resilience.policy import Choice, Policy, Until, options_of
from leadsman.core.resilience.predicate import Constant
from leadsman.core.text import clean

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Registered
    from leadsman.core.readings.filtering import Filters


OPTIONS: Mapping[type, type] = {Telemetry: TelemetryOptions, Source: SourceOptions, Command: CommandOptions}
"""The options of each kind of registration; those of events are options of sources, too."""


def describe_registration(each: Telemetry | Source | Command) -> "Registered":
    """Describe one registration."""
    kind: type = type(each)
    found: dict[str, object] = {
        "kind": each.kind,
        "handler": clean(name_of(each.handler)),
        "needs": labels_of(each.needs),
    }
    job = isinstance(each, Telemetry) and each.job
    for name in described_as_they_are(OPTIONS[kind], kind, job=job):
        value = getattr(each, name)
        found[name] = None if value == math.inf else value
    if each.of_extensions:
        found["of_extensions"] = {name: _plain(value) for name, value in each.of_extensions.items()}
    if each.title is not None:
        found["title"] = clean(each.title)
    if each.area is not None:
        found["area"] = clean(each.area)
    if each.fields:
        found["fields"] = {clean(field): _presentation(how) for field, how in each.fields.items()}
    match each:
        case Telemetry():
            found |= {
                "schedule": None if each.cron is None else each.cron.expression,
                **_retries(each.guards.policy),
                **_name_policies(each),
                "timeout": each.guards.timeout,
                "overrun": "finish" if each.overrun else "next-poll",
                "on_failure": each.on_failure if isinstance(each.on_failure, str) else clean(name_of(each.on_failure)),
            }
            if each.request is not None:
                found["request"] = clean(each.request.payload)
        case Source():
            found["backoff"] = _write_value(each.guards.policy.strategy)
            if each.events is not None:
                found["event_types"] = [clean(one) for one in each.events.types]
                found["device_class"] = each.events.device_class
            if each.found_by is not None:
                found["found_by"] = each.found_by
        case Command():
            found["when_full"] = "drop-oldest" if each.drop_oldest else "reject"
    if not isinstance(each, Command):
        breaker = each.guards.breaker
        found["circuit_breaker"] = None if breaker is None else _breaker(breaker)
        if not job:
            found |= _publishing(each) | {"offline_on": write_offline_on(each.offline_on)}
        if each.finds is not None:
            found["finds"] = {"most": each.finds.most, "forget_after": each.finds.forget_after}
    return cast("Registered", found)  # tests compare it with the schema


def _plain(value: object) -> object:
    """The value of an option of an extension, as text unless a document can have it."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return clean(value) if isinstance(value, str) else _write_value(value)


def _name_policies(each: Telemetry) -> dict[str, object]:
    """The names of the policies of a handler, and when those apply that do not always."""
    if each.policy_name is None:
        return {}
    among = each.guards.policy.among if isinstance(each.guards.policy, Choice) else ()
    if all(isinstance(one.condition, Constant) for one in among):
        return {"policy_name": each.policy_name}
    where = {
        one.name: None if isinstance(one.condition, Constant) else render_condition(one.condition) for one in among
    }
    return {"policy_name": each.policy_name, "policy_where": where}


def _presentation(how: FieldPresentation) -> dict[str, object]:
    """How a field is shown, without what is left to its type."""
    found: dict[str, object] = {name: value for name, value in how._asdict().items() if value not in (None, ())}
    return found | ({"homeassistant": dict(how.homeassistant)} if how.homeassistant else {})


def policy_text(each: Telemetry | Source) -> str:
    """The retry policy of a registration as text: options of the decorator, the name of a policy, or the notation of a
    file."""
    if isinstance(each, Source):
        return f"backoff={_write_value(each.guards.policy.strategy)}"
    if each.policy_name is not None:
        return each.policy_name
    options = _retries(each.guards.policy)
    if "policy" in options:
        return str(options["policy"])
    kinds = ", ".join(cast(list[str], options.pop("retry_on")))
    return ", ".join([f"{option}={value}" for option, value in options.items()] + [f"retry_on=({kinds})"])


def _breaker(rule: CircuitBreaker) -> dict[str, object]:
    recovery = rule.recovery
    return {
        "threshold": rule.threshold,
        "recovery": recovery if recovery is None or isinstance(recovery, float) else _write_value(recovery),
        "shared": rule.shared,
        "ignore": [kind.__name__ for kind in rule.ignore],
    }


def _name_of(kind: type[BaseException]) -> str:
    """The name of a class of errors; with its module if it says nothing alone, such as ``struct.error``."""
    return f"{kind.__module__}.{kind.__name__}" if kind.__name__ == "error" else kind.__name__


def _retries(policy: Policy) -> dict[str, object]:
    """The policy as options of the decorator if they can express it, else in the notation of a policy file."""
    options = options_of(policy)
    if options is None:
        return {"policy": render(policy)}
    retries = options.retries
    found: dict[str, object] = {"retry": retries.value if isinstance(retries, Until) else retries}
    found["retry_on"] = [_name_of(kind) for kind in options.kinds]
    limits = {"within": options.within, "budget": options.budget}
    found |= {name: limit for name, limit in limits.items() if math.isfinite(limit)}
    return found | {"backoff": _write_value(options.backoff)}


def _publishing(each: Telemetry | Source) -> dict[str, object]:
    delivery = each.delivery
    filters: dict[str, object] = {}
    if each.filters is not None:
        filters = {"filters": _filters(each.filters)}
        filters |= {} if each.filters.window is None else {"window": each.filters.window}
    layout: dict[str, object] = {} if each.layout == "json" else {"layout": each.layout}
    if each.content is not None:
        content, topic = each.content
        layout = {"content": {"content_type": content.content_type, "limit": content.limit, "topic": topic}}
    return filters | {
        **layout,
        "publish": None if each.publish is None else _write_rule(each.publish),
        "delivery": {
            "qos": delivery.qos,
            "retain": delivery.retain,
            "expiry": delivery.expiry,
            "keep": delivery.keep,
            "history": delivery.history,
        },
    }


def _filters(filters: "Filters") -> dict[str, list[str]]:
    """The filters of each output, as they are written in code."""
    return {
        clean(chain.path if chain.path == chain.source else f"{chain.path} of {chain.source}"): [
            _write_value(each) for each in chain.filters
        ]
        for chain in filters.chains
    }


def _write_rule(rule: PublishRule) -> str:
    """A publish rule as it is written in code, without default values."""
    match rule:
        case AnyOf():
            return f"{_write_rule(rule.left)} | {_write_rule(rule.right)}"
        case AllOf():
            sides = [_write_rule(each) for each in (rule.left, rule.right)]
            return " & ".join(f"({side})" if " | " in side else side for side in sides)
        case OnChange():
            fields = ", ".join(f"{name!r}: {_width(width)}" for name, width in rule.fields)
            written = [_width(rule.deadband)] * bool(rule.deadband) + [f"fields={{{fields}}}"] * bool(fields)
            return clean(f"OnChange({', '.join(written)})")
        case Every():
            written = [] if rule.seconds is None else [f"'{human(rule.seconds)}'"]
            return f"Every({', '.join(written + ([] if rule.n is None else [f'n={rule.n}']))})"
        case _:
            return _write_value(rule)


def _width(deadband: Deadband) -> str:
    return repr(deadband) if isinstance(deadband, str) else f"{deadband:g}"


def _write_value(rule: object) -> str:
    """A value of leadsman as it is written in code. An object of the user is shown by its class, since it may hold
    secrets."""
    return clean(repr(rule)) if type(rule).__module__.startswith("leadsman.") else type(rule).__qualname__


def labels_of(needs: Dependencies) -> list[str]:
    """The adapters among what a handler asks for."""
    return [dependency.label for _, dependency in needs if isinstance(dependency, ManagedAdapter)]
