"""The options of `@app.telemetry` and the registration made from them: checked once, then immutable.

A wrong option raises an error at registration, with what to write instead. No mistake waits for the first failure in
production. The options are listed once, in `TelemetryOptions`; the decorator and `add_telemetry` take the same ones.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from leadsman.adapters.managed import adapter_names, declared_errors
from leadsman.errors import InvalidType, InvalidValue, labelled
from leadsman.loop.durations import Duration, positive_seconds, seconds, whole
from leadsman.loop.schedule import Cron
from leadsman.loop.slots import offset_of
from leadsman.mqtt.message import Delivery
from leadsman.readings.publish import PublishRule
from leadsman.readings.reading import Layout
from leadsman.readings.sensor import NO_PRESENTATIONS, Presentations
from leadsman.registration.command import RequestPayload, request_payload
from leadsman.registration.injection import Dependencies, Dependency, Handler, is_async, needs_of
from leadsman.registration.options import (
    Errors,
    ReadingOptions,
    backoff_of,
    breaker_of,
    check_options,
    group_of,
    is_second,
    length_of,
    reading_values,
)
from leadsman.registration.result import ValidateResult
from leadsman.resilience.backoff import BackoffStrategy
from leadsman.resilience.environment import GuardSpec
from leadsman.resilience.failure import Property, exception_types
from leadsman.resilience.policy import DEFAULT_RETRY_ON, UNTIL_NEXT_POLL, Lookup, Policy, Until, as_policy, from_options

if TYPE_CHECKING:
    from leadsman.readings.content import ContentField
    from leadsman.readings.filtering import Filters
    from leadsman.registration.finds import Finds
    from leadsman.resilience.catalogue import Catalogue

LONGEST_TIMEOUT = 60.0
"""Seconds. The default timeout is the interval, but at most this: four calls that hang must not take hours."""
SHORTEST_INTERVAL = 0.01
"""Seconds. For shorter intervals, a loop in the handler is the better tool."""
THROTTLE = 1.0
"""Seconds between two requested polls, where no other time is given."""
SHORTEST_STALE_AFTER = 1.0
"""Seconds. A device that is polled many times a second is not stale at each moment in which the machine is busy."""
RETRYING = ("retry", "retry_on", "backoff", "budget", "within")
"""Options that together define a policy."""
JOBLESS = frozenset(
    {
        *("publish", "field", "fields", "filters", "delivery", "layout", "offline_on", "throttle", "request", "title"),
        *("area", "discoverable"),
    }
)
"""Options about topics and devices. They do not apply to side jobs."""


Fallback = Callable[[BaseException], Awaitable[object]]
"""A function that is called with the error after a poll that failed for good. It returns a reading to publish, or
None."""


class TelemetryOptions(ReadingOptions, total=False):
    """The options of `@app.telemetry`, with those of `ReadingOptions` and `DeviceOptions`. Durations are
    seconds, text such as ``"5m"``, or `timedelta`."""

    interval: Duration
    """Poll at this fixed interval, 10 ms or more. Give either this or `schedule`."""
    schedule: str | Cron
    """Poll at the times of a cron expression with five fields. ``Cron(…, zone="Europe/Berlin")`` uses another time
    zone than the host's."""
    retry: int | Until
    """Retries after the first call of a poll: ``retry=3`` is at most four calls. `UNTIL_NEXT_POLL`: as many as the
    backoff allows until the next poll. Default 0."""
    retry_on: type[Exception] | Sequence[type[Exception]]
    """The errors that are retried, in place of the default: `OSError`, `TransientError` and the adapters'
    `transient_errors`."""
    backoff: BackoffStrategy
    """How long to wait before a retry. Default ``ExponentialBackoff()``."""
    budget: Duration
    """The longest sum of all waits of one outage; the time of the calls is not counted. Default: no limit."""
    within: Duration
    """No retry starts later than this after the first failure of an outage; the time of the calls is counted.
    Default: no limit."""
    policy: Policy | str
    """A policy of the algebra, or the name of a family or of a policy in the settings. It replaces `retry`,
    `retry_on`, `backoff`, `budget` and `within`. Default None."""
    overrun: Literal["next-poll", "finish"]
    """``"next-poll"`` (default) drops a retry that would start at or after the next poll; ``"finish"`` makes it and
    delays that poll."""
    on_failure: Literal["continue", "hold", "stop"] | Fallback
    """What happens after a poll that failed for good. ``"continue"`` (default) goes on polling. ``"hold"`` stops
    polling the device until it is released. ``"stop"`` ends the app with exit code 69. An ``async def (error)`` is
    called, and its result is published as the state."""
    timeout: Duration | None
    """The longest time for one call. Default: the interval, at most 60 s; for cron 60 s. None: no limit."""
    group: str | None
    """A group name. Handlers of one group poll at common times, one call after the other. Default None."""
    spread: Duration
    """Delay the first poll by a fixed part of this time, the same one at every start. Default: the first poll comes at
    once, and later ones of more than 20 devices with one interval are spread over at most a second. 0: no spread."""
    stale_after: Duration | None
    """The device is stale after this time without a successful poll. Default: three intervals and the timeout, at
    least 1 s; for cron, twice the largest gap."""
    throttle: Duration
    """The shortest time between two polls that are requested at ``{prefix}/{device}/get``. A request that comes sooner
    is refused, with the time after which to ask again. Default 1 s."""
    request: str
    """The parameter that takes the payload of a request at ``{prefix}/{device}/get``, such as ``"days"``. Its type
    validates the payload. It has a default, which all other polls have. Default: requests have no payload, and one that
    is there is ignored."""


class Telemetry(NamedTuple):
    """One registered handler."""

    name: str
    handler: Handler
    needs: Dependencies
    plain: bool
    interval: float | None
    cron: Cron | None
    guards: GuardSpec
    overrun: bool
    on_failure: str | Fallback
    publish: PublishRule | None
    delivery: Delivery
    group: str | None
    spread: float | None
    """Seconds; None for the default, see `leadsman.loop.slots`."""
    stale_after: float
    offline_on: Errors
    """The errors that make the device offline as soon as it fails."""
    throttle: float
    enabled: bool
    validate_result: ValidateResult | None
    undecided: bool = False
    """No option concerns retries, so the policies of the settings may apply."""
    policy_name: str | None = None
    """The name of the policy, if it has one; of several policies, all names in the order in which they are asked."""
    finds: "Finds | None" = None
    job: bool = False
    """Whether this is a side job: it has a schedule and a health record, but no topics."""
    title: str | None = None
    """Its name for people; None if that is its name."""
    area: str | None = None
    """The area that is suggested for it; None suggests none."""
    fields: Presentations = NO_PRESENTATIONS
    """How its fields are shown to people, where not as their types define."""
    discoverable: bool = True
    """Whether it is announced to Home Assistant."""
    field: str | None = None
    """The name of the field of its readings, if it returns one value."""
    filters: "Filters | None" = None
    content: "ContentField | None" = None
    """What it returns, if that is bytes with a topic of their own."""
    layout: Layout = "json"
    """Whether its readings are one JSON object, or each value is at a topic of its own."""
    request: "RequestPayload | None" = None
    """The payload that it takes from a request for a poll."""
    fixed: frozenset[str] = frozenset()
    """The options that the settings must not change, by their names there."""
    labels: frozenset[str] = frozenset()
    """The labels that a node must have to poll it, in a cluster."""

    @property
    def offset(self) -> float:
        """Seconds from the start of the app to the first poll. All members of a group have the same offset, and so
        common times."""
        return 0.0 if self.cron is not None or self.spread is None else offset_of(self.group or self.name, self.spread)

    @property
    def unit(self) -> str | None:
        """The name of those that are moved as one if the handler is spread by default: its group, or the handler
        itself. None if it sets how it is spread, and for cron."""
        return self.group or self.name if self.cron is None and self.spread is None else None


def register_telemetry(
    name: str, handler: Handler, options: TelemetryOptions, available: Sequence[Dependency], *, job: bool = False
) -> Telemetry:
    """Check one registration. Raises `InvalidType`, `InvalidValue`."""
    check_options(options, TelemetryOptions, JOBLESS if job else frozenset())
    plain = not is_async(handler)
    request = _request(options, handler)
    needs = needs_of(handler, available)
    interval, cron = _when(options)
    timeout = length_of(options, "timeout", min(interval or LONGEST_TIMEOUT, LONGEST_TIMEOUT))
    return Telemetry(
        name=name,
        handler=handler,
        needs=needs,
        plain=plain,
        interval=interval,
        cron=cron,
        guards=GuardSpec(_policy(options, needs), breaker_of(options), timeout),
        overrun=is_second(options, "overrun", "next-poll", "finish"),
        on_failure=_on_failure(options),
        group=group_of(options),
        spread=seconds(options["spread"], "spread") if "spread" in options else None,
        stale_after=_stale_after(options, interval, cron, timeout or 0.0),
        throttle=seconds(options.get("throttle", THROTTLE), "throttle"),
        undecided=options.get("policy") is None and not any(option in options for option in RETRYING),
        policy_name=named if isinstance(named := options.get("policy"), str) else None,
        request=request,
        job=job,
        **reading_values(options, handler, needs),
    )


def _request(options: TelemetryOptions, handler: Handler) -> "RequestPayload | None":
    if options.get("request") is None:
        return None
    return request_payload(handler, options["request"])


def _when(options: TelemetryOptions) -> tuple[float | None, Cron | None]:
    if ("interval" in options) == ("schedule" in options):
        raise InvalidValue("write either interval='60s' or schedule='0 */2 * * *', and not both")
    if "schedule" in options:
        schedule = options["schedule"]
        return None, schedule if isinstance(schedule, Cron) else Cron(schedule)
    interval = options["interval"]
    length = positive_seconds(interval, "interval")
    if length < SHORTEST_INTERVAL:
        raise InvalidValue(f"interval is {interval!r}; it must be at least {SHORTEST_INTERVAL} s")
    return length, None


def _policy(options: TelemetryOptions, needs: Dependencies) -> Policy:
    """Make one policy of the retry options."""
    if (named := options.get("policy")) is not None:
        for option in RETRYING:
            if option in options:
                raise InvalidType(
                    f"policy and {option} both say what is retried; put {option} into the policy, or leave it out"
                )
        return Lookup(named) if isinstance(named, str) else as_policy(named)
    retry: object = options.get("retry", 0)
    if retry is UNTIL_NEXT_POLL and options.get("overrun") == "finish":
        raise InvalidValue("retry=UNTIL_NEXT_POLL never ends with overrun='finish'; leave overrun out")
    if retry is not UNTIL_NEXT_POLL:
        kind = "it must be the number of retries after the first call, such as 3"
        retry = whole(retry, "retry", 0, kind=kind, limits="it must be 0 or more retries after the first call")
    kinds = _transient(needs) if _left_out(options, retry) else exception_types(options["retry_on"], "retry_on")
    bounds = [seconds(options[option], option) if option in options else math.inf for option in ("budget", "within")]
    return from_options(retry, kinds, backoff_of(options), *bounds)


def _left_out(options: TelemetryOptions, retry: object) -> bool:
    """Whether `retry_on` is not given. An empty list counts as not given beside ``retry=0``: both may come from
    settings."""
    return "retry_on" not in options or ("retry" in options and retry == 0 and options["retry_on"] in ((), []))


def with_policy(telemetry: Telemetry, catalogue: "Catalogue") -> Telemetry:
    """Return the registration with its policy, if that comes from the settings.

    Raises:
        InvalidValue: no policy has that name.
    """
    found, guards = telemetry.guards.policy, telemetry.guards
    if isinstance(found, Lookup):
        with labelled(f"telemetry {telemetry.name!r}"):
            asked = catalogue.policy(found.name, also=declared_errors(telemetry.needs))
            return telemetry._replace(guards=guards._replace(policy=asked), policy_name=found.name)
    choice = catalogue.choice(facts_of(telemetry)) if telemetry.undecided else None
    if choice is None:
        return telemetry
    names = ", ".join(each.name for each in choice.among)
    return telemetry._replace(guards=guards._replace(policy=choice), policy_name=names)


def facts_of(telemetry: Telemetry) -> Mapping[str, Property]:
    """The properties of a handler that a policy may ask about; they never change."""
    facts: dict[str, Property] = {"handler": telemetry.name, "adapter": adapter_names(telemetry.needs), "verb": "poll"}
    return facts if telemetry.interval is None else facts | {"interval": telemetry.interval}


def with_options(telemetry: Telemetry, options: TelemetryOptions, catalogue: "Catalogue | None") -> Telemetry:
    """Return the registration with other options about failures: those of `RETRYING`, `policy`, `circuit_breaker` and
    `overrun`. The first five and `policy` replace each other; what is not given stays.

    Raises:
        InvalidValue, InvalidType: an option is wrong, or no policy has the name.
    """
    guards = telemetry.guards
    if "circuit_breaker" in options:
        guards = guards._replace(breaker=breaker_of(options))
    if "overrun" in options:
        telemetry = telemetry._replace(overrun=is_second(options, "overrun", "next-poll", "finish"))
    if not options.keys() & {"policy", *RETRYING}:
        return telemetry._replace(guards=guards)
    guards = guards._replace(policy=_policy(options, telemetry.needs))
    changed = telemetry._replace(guards=guards, undecided=False, policy_name=None)
    if not isinstance(options.get("policy"), str):
        return changed
    from leadsman.resilience.catalogue import Catalogue  # only apps with names for policies pay for it

    return with_policy(changed, catalogue or Catalogue())


def _transient(needs: Dependencies) -> tuple[type[Exception], ...]:
    """The errors that are retried by default."""
    declared = [kind for kind in declared_errors(needs) if kind not in DEFAULT_RETRY_ON]
    return exception_types((*DEFAULT_RETRY_ON, *declared), "transient_errors")


def _on_failure(options: TelemetryOptions) -> str | Fallback:
    action: object = options.get("on_failure", "continue")
    if isinstance(action, str):
        if action not in ("continue", "hold", "stop"):
            raise InvalidValue(f"on_failure is {action!r}; it must be 'continue', 'hold', 'stop' or an async function")
        return action
    if not (callable(action) and is_async(action)):
        raise InvalidType(
            f"on_failure is {action!r}; write 'continue', 'hold', 'stop' or an 'async def' that takes the error"
        )
    return action


def _stale_after(options: TelemetryOptions, interval: float | None, cron: Cron | None, timeout: float) -> float:
    if (given := length_of(options, "stale_after", None)) is not None:
        return given
    if cron is not None:
        return 2 * cron.largest_gap()
    return max(SHORTEST_STALE_AFTER, 3 * (interval or 0.0) + timeout)
