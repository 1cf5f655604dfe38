"""What `@app.telemetry` records: read once, checked once, frozen.

Every wrong word is told here, at registration, with what to write instead. Nothing wrong waits for the first failure
in production. The options are listed once, in `TelemetryOptions`; the decorator and `add_telemetry` take the same ones.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from leadsman import publish as publishing
from leadsman.adapters.adapter import ManagedAdapter
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.mqtt.message import STANDARD, Delivery
from leadsman.mqtt.topics import check_name
from leadsman.publish import PublishRule
from leadsman.registration.injection import Dependencies, Dependency, Handler, check_result, is_async, needs_of
from leadsman.resilience import backoff as backing_off
from leadsman.resilience.backoff import DEFAULT_BACKOFF, BackoffStrategy
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.environment import GuardSpec
from leadsman.resilience.failure import exception_types
from leadsman.resilience.from_options import DEFAULT_RETRY_ON, UNTIL_NEXT_POLL, Until, from_options
from leadsman.resilience.policy import Policy, policy
from leadsman.text import suggestion
from leadsman.timing.durations import Duration, positive_seconds, seconds
from leadsman.timing.schedule import Cron, spread_offset

if TYPE_CHECKING:
    from leadsman.resilience.catalogue import Catalogue

LONGEST_TIMEOUT = 60.0
"""Seconds; the default timeout is the interval, but at most this: four attempts that hang must not take a morning."""
SHORTEST_INTERVAL = 0.01
"""Seconds; below this a loop in the handler is the better tool."""
UNSET: Any = object()
RETRYING = ("retry", "retry_on", "backoff", "budget", "within")
"""Options that make a policy."""
JOBLESS = frozenset({"publish", "delivery", "throttle"})
"""Options about topics, which a side job does not have."""


Fallback = Callable[[BaseException], Awaitable[Any]]
"""What may be done after a poll that failed for good, with its error; the reading to publish, or None."""


class TelemetryOptions(TypedDict, total=False):
    """The options of `@app.telemetry`. Durations are seconds, text such as ``"5m"``, or `timedelta`."""

    interval: Duration
    """Poll at this fixed rate, 10 ms or more. Either this or `schedule`."""
    schedule: str | Cron
    """Poll by cron, five fields; ``Cron(…, zone="Europe/Berlin")`` for a zone other than the host's."""
    retry: int | Until
    """Retries after the first call of a poll: ``retry=3`` is at most four calls. `UNTIL_NEXT_POLL`: as many as the backoff
    makes until the next poll. Default 0."""
    retry_on: type[Exception] | Sequence[type[Exception]]
    """What is retried, in place of the default: `OSError`, `TransientError` and the adapters' `transient_errors`."""
    backoff: BackoffStrategy
    """How long to wait before a retry. Default ``ExponentialBackoff()``."""
    budget: Duration
    """At most this long for all waits of an outage together; calls do not count. Default: no bound."""
    within: Duration
    """No retry later than this after the first failure of an outage, calls included. Default: no bound."""
    policy: Policy | str
    """A policy of the algebra, or the name of a family or of a policy in the settings, in place of `retry`, `retry_on`, `backoff`, `budget` and `within`. Default None."""
    circuit_breaker: CircuitBreaker | None
    """Rest a device that fails poll after poll. Default None."""
    overrun: Literal["next-poll", "finish"]
    """Whether a retry that would start at or after the next poll is dropped (default), or delays that poll."""
    on_failure: Literal["continue", "hold", "stop"] | Fallback
    """After a poll that failed for good. ``"continue"`` (default) polls on; ``"hold"`` keeps still until it is released; ``"stop"``
    ends the app with exit code 69; an ``async def (error)`` is called, and what it returns is published as the state."""
    timeout: Duration | None
    """Bound on one call. Default the interval, at most 60 s; cron 60 s; None for none."""
    publish: PublishRule | None
    """Which readings are told. Default None: all of them."""
    delivery: Delivery
    """How a reading travels. Default ``Delivery()``: QoS 1, retained."""
    group: str | None
    """Handlers of one group poll on common ticks, one call at a time. Default None."""
    spread: Duration
    """Start within this time instead of at once, always at the same point of it. Default 0."""
    stale_after: Duration | None
    """Without a successful poll for this long the device is stale. Default 3 intervals and the timeout; cron: twice
    the largest gap."""
    throttle: Duration
    """At the least this long between two polls that somebody asked for at ``{prefix}/{device}/get``. Default 1 s."""
    enabled: bool
    """False registers the handler without polling it. Default True."""


class Telemetry(NamedTuple):
    """One registered handler."""

    name: str
    handler: Handler
    needs: Dependencies
    plain: bool
    interval: float | None
    cron: Cron | None
    rules: GuardSpec
    overrun: bool
    on_failure: str | Fallback
    publish: PublishRule | None
    delivery: Delivery
    group: str | None
    spread: float
    stale_after: float
    throttle: float
    enabled: bool
    undecided: bool = False
    """It says nothing about retries, so the policies of the settings may."""
    policy_name: str | None = None
    """Of the policy, where it has a name; of several, all names in the order in which they are asked."""
    job: bool = False
    """A side job: it has a schedule and a health, and no topics of its own."""

    @property
    def offset(self) -> float:
        """Seconds from the start of the app to the first poll. Members of a group have one, so that they stay on common ticks."""
        return 0.0 if self.cron is not None else spread_offset(self.group or self.name, self.spread)


def register(
    name: object, handler: Handler, options: TelemetryOptions, offers: Sequence[Dependency], *, job: bool = False
) -> Telemetry:
    """Check one registration.

    Raises:
        InvalidType, InvalidValue: the message begins with the device's name.
    """
    device = check_name(name)
    try:
        return _register(device, handler, options, offers, job)
    except ConfigurationError as error:
        raise type(error)(f"{'periodic' if job else 'telemetry'} {device!r}: {error}") from None


def _register(
    name: str, handler: Handler, options: TelemetryOptions, offers: Sequence[Dependency], job: bool
) -> Telemetry:
    check_options(options, TelemetryOptions, JOBLESS if job else frozenset())
    plain = not is_async(handler)
    check_result(handler)
    needs = needs_of(handler, offers)
    interval, cron = _when(options)
    timeout = _timeout(options, interval)
    return Telemetry(
        name=name,
        handler=handler,
        needs=needs,
        plain=plain,
        interval=interval,
        cron=cron,
        rules=GuardSpec(_policy(options, needs), breaker_of(options), timeout),
        overrun=_overrun(options),
        on_failure=_on_failure(options),
        publish=publish_of(options),
        delivery=instance_of(options, "delivery", Delivery, STANDARD, "Delivery(qos=1, retain=True)"),
        group=group_of(options),
        spread=seconds(options.get("spread", 0.0), "spread"),
        stale_after=_stale_after(options, interval, cron, timeout or 0.0),
        throttle=seconds(options.get("throttle", 1.0), "throttle"),
        undecided=not any(option in options for option in ("policy", *RETRYING)),
        enabled=instance_of(options, "enabled", bool, True, "True or False"),
        job=job,
    )


def check_options(options: Mapping[str, Any], known: type, without: frozenset[str] = frozenset()) -> None:
    """See that all options are in a list of options. Raises `InvalidType` with a suggestion."""
    names = [name for name in known.__annotations__ if name not in without]
    for option in options:
        if option not in names:
            raise InvalidType(f"{option!r} is no option that it takes; {suggestion(option, names)}")


def _when(options: TelemetryOptions) -> tuple[float | None, Cron | None]:
    interval, schedule = options.get("interval", UNSET), options.get("schedule", UNSET)
    if (interval is UNSET) == (schedule is UNSET):
        raise InvalidValue("say when: either interval='60s' or schedule='0 */2 * * *', one of the two")
    if schedule is not UNSET:
        return None, schedule if isinstance(schedule, Cron) else Cron(schedule)
    length = positive_seconds(interval, "interval")
    if length < SHORTEST_INTERVAL:
        raise InvalidValue(f"interval is {interval!r}; it must be at least {SHORTEST_INTERVAL} s")
    return length, None


def _timeout(options: TelemetryOptions, interval: float | None) -> float | None:
    timeout = options.get("timeout", UNSET)
    if timeout is None:
        return None
    if timeout is UNSET:
        return LONGEST_TIMEOUT if interval is None else min(interval, LONGEST_TIMEOUT)
    return positive_seconds(timeout, "timeout")


def publish_of(options: Any) -> PublishRule | None:
    """The publish rule among `options`."""
    return None if options.get("publish") is None else publishing.checked(options["publish"])


def _policy(options: TelemetryOptions, needs: Dependencies) -> Policy:
    """What the options say about retries, as one policy."""
    if "policy" in options:
        for option in RETRYING:
            if option in options:
                raise InvalidType(
                    f"policy and {option} both say what is retried; put {option} into the policy, or leave it out"
                )
        named = options["policy"]
        return lookup(named) if isinstance(named, str) else policy(named)
    retry: object = options.get("retry", 0)
    if retry is UNTIL_NEXT_POLL and options.get("overrun") == "finish":
        raise InvalidValue("retry=UNTIL_NEXT_POLL never ends with overrun='finish'; leave overrun out")
    if retry is not UNTIL_NEXT_POLL:
        if isinstance(retry, bool) or not isinstance(retry, int):
            raise InvalidType(f"retry is {retry!r}; it is the number of retries after the first call, such as 3")
        if retry < 0:
            raise InvalidValue(f"retry is {retry}; it is 0 or more retries after the first call")
    kinds = _transient(needs) if _left_out(options, retry) else exception_types(options["retry_on"], "retry_on")
    bounds = [seconds(options[option], option) if option in options else math.inf for option in ("budget", "within")]
    return from_options(retry, kinds, backoff_of(options), *bounds)


def _left_out(options: TelemetryOptions, retry: object) -> bool:
    """Whether nothing is said of what is retried. An empty list is nothing beside ``retry=0``: both may come of settings."""
    return "retry_on" not in options or ("retry" in options and retry == 0 and options["retry_on"] in ((), []))


def lookup(name: str) -> Policy:
    """A policy that is known by its name once the settings are loaded."""
    from leadsman.resilience.catalogue import Lookup  # only apps with names for policies pay for it

    return Lookup(name)


def decided(telemetry: Telemetry, catalogue: "Catalogue") -> Telemetry:
    """The registration with its policy, where that comes of the settings.

    Raises:
        InvalidValue: no policy has that name.
    """
    from leadsman.resilience.catalogue import Lookup

    found, rules = telemetry.rules.policy, telemetry.rules
    if isinstance(found, Lookup):
        declared = [
            kind for _, offer in telemetry.needs if isinstance(offer, ManagedAdapter) for kind in offer.transient_errors
        ]
        try:
            asked = catalogue.policy(found.name, also=declared)
            return telemetry._replace(rules=rules._replace(policy=asked), policy_name=found.name)
        except ConfigurationError as error:
            raise type(error)(f"telemetry {telemetry.name!r}: {error}") from None
    choice = catalogue.choice() if telemetry.undecided else None
    if choice is None:
        return telemetry
    names = ", ".join(each.name for each in choice.among)
    return telemetry._replace(rules=rules._replace(policy=choice), policy_name=names)


def _transient(needs: Dependencies) -> tuple[type[Exception], ...]:
    """What is retried unless told otherwise."""
    slots = [offer for _, offer in needs if isinstance(offer, ManagedAdapter)]
    declared = [kind for slot in slots for kind in slot.transient_errors if kind not in DEFAULT_RETRY_ON]
    return exception_types((*DEFAULT_RETRY_ON, *declared), "transient_errors")


def backoff_of(options: Any) -> BackoffStrategy:
    """The backoff among `options`."""
    return backing_off.checked(options["backoff"]) if "backoff" in options else DEFAULT_BACKOFF


def breaker_of(options: Any) -> CircuitBreaker | None:
    """The circuit breaker among `options`."""
    breaker: object = options.get("circuit_breaker")
    if breaker is None or isinstance(breaker, CircuitBreaker):
        return breaker
    raise InvalidType(f"circuit_breaker is {breaker!r}; write CircuitBreaker(threshold=5), with brackets")


def _overrun(options: TelemetryOptions) -> bool:
    overrun = options.get("overrun", "next-poll")
    if overrun not in ("next-poll", "finish"):
        raise InvalidValue(f"overrun is {overrun!r}; it is 'next-poll' or 'finish'")
    return overrun == "finish"


def _on_failure(options: TelemetryOptions) -> str | Fallback:
    action: object = options.get("on_failure", "continue")
    if isinstance(action, str):
        if action not in ("continue", "hold", "stop"):
            raise InvalidValue(f"on_failure is {action!r}; it is 'continue', 'hold', 'stop' or an async function")
        return action
    if not (callable(action) and is_async(action)):
        raise InvalidType(
            f"on_failure is {action!r}; write 'continue', 'hold', 'stop' or an 'async def' that takes the error"
        )
    return action


def group_of(options: Any) -> str | None:
    """The group among `options`."""
    group: object = options.get("group")
    if group is None or (isinstance(group, str) and group.strip()):
        return group
    raise (InvalidValue if isinstance(group, str) else InvalidType)(f"group is {group!r}; write a name such as 'bus'")


def instance_of(options: Any, option: str, kind: type, default: Any, example: str) -> Any:
    """The value of an option, of one type. Raises `InvalidType`."""
    value = options.get(option, default)
    if not isinstance(value, kind):
        raise InvalidType(f"{option} is {value!r}; write {example}")
    return value


def _stale_after(options: TelemetryOptions, interval: float | None, cron: Cron | None, timeout: float) -> float:
    given = options.get("stale_after")
    if given is not None:
        return positive_seconds(given, "stale_after")
    if cron is not None:
        return 2 * cron.largest_gap()
    return 3 * (interval or 0.0) + timeout
