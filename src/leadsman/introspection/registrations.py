"""Describes the registrations of an app: the names and options of its handlers, as a document and in plain English."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from leadsman.adapters.managed import ManagedAdapter
from leadsman.introspection.registry import kind_of
from leadsman.loop.durations import human, write_duration
from leadsman.mqtt.message import Delivery
from leadsman.readings.publish import AllOf, AnyOf, Deadband, Every, OnChange, PublishRule
from leadsman.readings.sensor import FieldPresentation
from leadsman.registration.command import Command
from leadsman.registration.injection import Dependencies, name_of
from leadsman.registration.options import ANY_ERROR, write_offline_on
from leadsman.registration.source import Source
from leadsman.registration.telemetry import THROTTLE, Telemetry
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.environment import GuardSpec
from leadsman.resilience.failure import qualified_name
from leadsman.resilience.notation import condition_in_words, policy_in_words, render, waits_in_words
from leadsman.resilience.policy import Choice, CountBox, Policy, Until, Waits, options_of
from leadsman.resilience.predicate import Constant
from leadsman.text import clean, count_noun, join_words

if TYPE_CHECKING:
    from leadsman.introspection.document import Registered
    from leadsman.readings.filtering import Filters
    from leadsman.registration.finds import Finds


def describe_registration(each: Telemetry | Source | Command) -> "Registered":
    """Describe one registration."""
    common: dict[str, object] = {
        "kind": kind_of(each),
        "handler": clean(name_of(each.handler)),
        "needs": labels_of(each.needs),
        "enabled": each.enabled,
    }
    if each.title is not None:
        common["title"] = clean(each.title)
    if each.area is not None:
        common["area"] = clean(each.area)
    if each.fields:
        common["fields"] = {clean(field): _presentation(how) for field, how in each.fields.items()}
    match each:
        case Telemetry():
            own: dict[str, object] = {
                "interval": each.interval,
                "schedule": None if each.cron is None else each.cron.expression,
                **_retries(each.guards.policy),
                **_name_policies(each),
                **_circuit(each.guards),
                "timeout": each.guards.timeout,
                "overrun": "finish" if each.overrun else "next-poll",
                "on_failure": each.on_failure if isinstance(each.on_failure, str) else clean(name_of(each.on_failure)),
                "group": each.group,
                "spread": each.spread,
                "stale_after": each.stale_after,
            }
            if not each.job:
                own |= _publishing(each) | {"throttle": each.throttle, "offline_on": write_offline_on(each.offline_on)}
                own |= {} if each.request is None else {"request": clean(each.request.payload)}
        case Source():
            own = {"backoff": _write_value(each.guards.policy.strategy), **_circuit(each.guards), **_publishing(each)}
            stale_after = each.stale_after if math.isfinite(each.stale_after) else None
            offline_on = write_offline_on(each.offline_on)
            own |= {"stale_after": stale_after, "silence": each.silence, "offline_on": offline_on}
            if each.events is not None:
                own |= {
                    "event_types": [clean(one) for one in each.events.types],
                    "device_class": each.events.device_class,
                }
            if each.found_by is not None:
                own["found_by"] = each.found_by
        case Command():
            own = {"timeout": each.timeout, "group": each.group, "queue": each.queue}
            own |= {"when_full": "drop-oldest" if each.drop_oldest else "reject"}
    if isinstance(each, Telemetry | Source) and each.finds is not None:
        own["finds"] = {"most": each.finds.most, "forget_after": each.finds.forget_after}
    return cast("Registered", common | own)  # tests compare it with the schema


def _name_policies(each: Telemetry) -> dict[str, object]:
    """The names of the policies of a handler, and when those apply that do not always."""
    if each.policy_name is None:
        return {}
    among = each.guards.policy.among if isinstance(each.guards.policy, Choice) else ()
    if all(isinstance(one.condition, Constant) for one in among):
        return {"policy_name": each.policy_name}
    where = {
        one.name: None if isinstance(one.condition, Constant) else condition_in_words(one.condition) for one in among
    }
    return {"policy_name": each.policy_name, "policy_where": where}


def _circuit(guards: GuardSpec) -> dict[str, object]:
    return {"circuit_breaker": None if guards.breaker is None else _breaker(guards.breaker)}


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
        "window": rule.window,
        "slow": rule.slow,
        "shared": rule.shared,
        "probes": rule.probes,
        "successes": rule.successes,
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


def sentences(each: Telemetry | Source | Command) -> list[str]:
    """The sentences that explain a registration."""
    found = [] if each.enabled else ["It is disabled."]
    match each:
        case Telemetry():
            found += _telemetry(each)
        case Source():
            found += _source(each)
        case Command():
            found += _command(each)
    return [clean(sentence) for sentence in found]


def _telemetry(each: Telemetry) -> Iterator[str]:
    verb = "called" if each.job else "polled"
    if each.interval is not None:
        yield f"It is {verb} every {write_duration(each.interval)}."
    elif each.cron is not None:
        yield f"It is {verb} at the times of the cron schedule {each.cron.expression}."
    if names := labels_of(each.needs):
        yield f"It uses {join_words(names)}."
    if each.group is not None:
        yield f"It shares the bus {each.group}: one call at a time."
    if each.guards.timeout is not None:
        yield f"A call may take {write_duration(each.guards.timeout)}."
    if not each.job:
        yield f"After {write_duration(each.stale_after)} without a reading it is stale."
    yield from _offline(each, "as soon as a poll has failed")
    yield from _retries_in_words(each)
    yield from _circuit_in_words(each.guards.breaker)
    yield from _failing(each)
    if not each.job:
        yield from _filtering(each.filters)
        yield from _publishing_in_words(each.publish, each.delivery)
        yield from _requests(each)
    yield from _finding(each.finds)


def _requests(each: Telemetry) -> Iterator[str]:
    if each.throttle != THROTTLE:
        yield f"Two polls that are requested are at least {write_duration(each.throttle)} apart."
    if each.request is not None:
        yield f"A request for a poll may give {each.request.payload}; other polls have its default."


def _source(each: Source) -> Iterator[str]:
    what = "readings" if each.events is None else "events"
    if each.found_by is not None:
        yield f"It was found at run time by {each.found_by}, which gives its {what}."
    elif each.events is None:
        yield "It pushes its readings."
    else:
        yield "It sends events when they happen, and is never stale."
    if each.events is not None:
        yield f"Its events are {join_words(each.events.types)}."
    if names := labels_of(each.needs):
        yield f"It uses {join_words(names)}."
    if isinstance(each.guards.policy, Waits) and each.found_by is None:
        yield f"When it ends or fails, it is started again {waits_in_words(each.guards.policy.strategy)}."
    if each.silence is not None:
        silence = write_duration(each.silence)
        yield f"After {silence} without a reading it is started again, unless it waits for messages."
    if math.isfinite(each.stale_after):
        yield f"After {write_duration(each.stale_after)} without a reading it is stale."
    yield from _offline(each, "as soon as it has failed")
    yield from _circuit_in_words(each.guards.breaker)
    yield from _filtering(each.filters)
    yield from _publishing_in_words(each.publish, each.delivery, "reading" if each.events is None else "event")
    yield from _finding(each.finds)


def _offline(each: Telemetry | Source, when: str) -> Iterator[str]:
    if each.offline_on:
        errors = "" if each.offline_on == ANY_ERROR else f" with {join_words(write_offline_on(each.offline_on), 'or')}"
        yield f"It is offline {when}{errors}{', and so are the devices that it finds' if each.finds else ''}."


def _finding(finds: "Finds | None") -> Iterator[str]:
    if finds is not None:
        yield f"It may find up to {count_noun(finds.most, 'device')} while the app runs."
        if finds.forget_after is not None:
            yield f"A found device that gives no reading for {write_duration(finds.forget_after)} is forgotten."


def _command(each: Command) -> Iterator[str]:
    yield "It takes commands, one at a time."
    if each.timeout is not None:
        yield f"A command may take {write_duration(each.timeout)}."
    if each.group is not None:
        yield f"It shares the bus {each.group}: one call at a time."
    then = "the oldest is dropped" if each.drop_oldest else "a further one is refused"
    yield f"At most {count_noun(each.queue, 'command')} may wait; then {then}."


def _retries_in_words(each: Telemetry) -> Iterator[str]:
    if each.policy_name is not None:
        yield f"Its policy is {each.policy_name}."
    policy = each.guards.policy
    if isinstance(policy, CountBox) and policy.scope == "cycle" and policy.limit == 0:
        yield "A call that fails is not repeated."
        return
    options = options_of(policy)
    if options is None:
        yield f"A call that fails is repeated: {policy_in_words(policy)}."
    else:
        count = None if isinstance(options.retries, Until) else options.retries
        often = "until the next poll" if count is None else "once" if count == 1 else f"up to {count} times"
        yield f"A call that fails is repeated {often}, {waits_in_words(options.backoff, count)}."
        yield f"Only these errors are repeated: {join_words([kind.__name__ for kind in options.kinds])}."
        if math.isfinite(options.within):
            within = write_duration(options.within)
            yield f"No call is repeated later than {within} after the first failure of an outage."
        if math.isfinite(options.budget):
            yield f"All waits of an outage take at most {write_duration(options.budget)}."
    if each.overrun:
        yield "A repeated call that comes late delays the next poll."
    else:
        yield "A repeated call that would come after the next poll is left out."


def _circuit_in_words(breaker: CircuitBreaker | None) -> Iterator[str]:
    if breaker is None:
        yield "It has no circuit breaker: it is polled however often it fails."
        return
    failures = f"{count_noun(breaker.threshold, 'poll')}{' in a row' if breaker.threshold > 1 else ''}"
    if breaker.window is not None:
        failures = f"{breaker.threshold} of the last {breaker.window} polls"
    match breaker.recovery:
        case None:
            pause = "the next poll is left out"
        case 0:
            pause = "each poll makes one call only"
        case float(seconds):
            pause = f"no poll is made for {write_duration(seconds)}"
        case strategy:
            pause = f"no poll is made for a while that grows with each opening: again {waits_in_words(strategy)}"
    yield f"When {failures} failed, the circuit opens, and {pause}."
    probes = "a single call probes" if breaker.probes == 1 else f"up to {breaker.probes} calls probe"
    closes = "one success closes" if breaker.successes == 1 else f"{breaker.successes} successes close"
    yield f"Then {probes} the device; {closes} the circuit."
    if breaker.shared is not None:
        yield f"It shares the circuit {breaker.shared} with other devices."
    if breaker.slow is not None:
        yield f"A call that takes longer than {write_duration(breaker.slow)} counts as failed for the circuit."
    if breaker.ignore:
        yield f"The circuit does not count {join_words([kind.__name__ for kind in breaker.ignore])}."


def _failing(each: Telemetry) -> Iterator[str]:
    if each.on_failure == "hold":
        yield "When a poll fails for good, it is held until a person releases it."
    elif each.on_failure == "stop":
        yield "When a poll fails for good, the app ends."
    elif not isinstance(each.on_failure, str):
        yield f"When a poll fails for good, {name_of(each.on_failure)} is called."


def _filtering(filters: "Filters | None") -> Iterator[str]:
    for chain in () if filters is None else filters.chains:
        if chain.filters:
            names = join_words([type(each).__name__ for each in chain.filters])
            yield f"The filters {names} make {chain.path} of {chain.source}."
    if filters is not None and filters.window is not None:
        shortest = write_duration(filters.window)
        yield f"It has a reading when a window of its filters is over, the shortest after {shortest}."


def _publishing_in_words(rule: PublishRule | None, delivery: Delivery, what: str = "reading") -> Iterator[str]:
    one = "A reading" if what == "reading" else "An event"
    yield f"Every {what} is published." if rule is None else f"{one} is published {_rule_in_words(rule)}."
    kept = "retained" if delivery.retain else "not retained"
    expiry = "" if delivery.expiry is None else f", and expire after {write_duration(delivery.expiry)}"
    yield f"Its messages have QoS {delivery.qos} and are {kept}{expiry}."
    if delivery.newest:
        yield f"Of {what}s that wait for the broker, its state topic gets the newest."
    if delivery.history is not None:
        forgotten = write_duration(delivery.history)
        yield f"Every {what} goes to its history topic too, not retained, and expires after {forgotten}."


def _rule_in_words(rule: PublishRule) -> str:
    match rule:
        case AnyOf():
            return f"{_rule_in_words(rule.left)}, or {_rule_in_words(rule.right)}"
        case AllOf():
            return f"{_rule_in_words(rule.left)} and {_rule_in_words(rule.right)}"
        case OnChange():
            by = f" by more than {_width_in_words(rule.deadband)}" if rule.deadband else ""
            own = [f"{name} by more than {_width_in_words(width)}" for name, width in rule.fields]
            return f"when a value changes{by}{f' ({join_words(own)})' if own else ''}"
        case Every() if rule.seconds is not None:
            return f"when {write_duration(rule.seconds)} have passed since"
        case Every():
            return f"once in {rule.n} readings"
        case _:
            return f"when {qualified_name(type(rule))} decides so"


def _width_in_words(deadband: Deadband) -> str:
    return deadband if isinstance(deadband, str) else f"{deadband:g}"
