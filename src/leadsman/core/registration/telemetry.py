"""The options of `@app.telemetry` and the registration made from them: checked once, then immutable.

A wrong option raises an error at registration, with what to write instead. No mistake waits for the first failure in
production. The options are listed once, in `TelemetryOptions`; the decorator and `add_telemetry` take the same ones.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from leadsman.core.adapters.managed import adapter_names, declared_errors, uses_adapters
from leadsman.core.loop.durations import Duration, positive_seconds, whole
from leadsman.core.loop.schedule import Cron
from leadsman.core.loop.slots import offset_of
from leadsman.core.mqtt.message import Delivery
from leadsman.core.readings.publish import PublishRule
from leadsman.core.readings.reading import Layout
from leadsman.core.readings.sensor import NO_PRESENTATIONS, Presentations
from leadsman.core.registration.annotation import alike
from leadsman.core.registration.declaration import (
    NO_VALUES,
    NONE,
    SECONDS,
    Option,
    Options,
    as_given,
    carried,
    checked,
    is_second,
    or_none,
)
from leadsman.core.registration.injection import Dependencies, Dependency, Handler, is_async, needs_of
from leadsman.core.registration.options import (
    BACKOFF,
    GROUP,
    STALE_AFTER,
    TIMEOUT,
    Errors,
    ReadingOptions,
    reading_values,
)
from leadsman.core.registration.result import ValidateResult
from leadsman.core.resilience.backoff import BackoffStrategy
from leadsman.core.resilience.environment import GuardSpec
from leadsman.core.resilience.failure import Property, exception_types
from leadsman.core.resilience.policy import (
    DEFAULT_RETRY_ON,
    UNTIL_NEXT_POLL,
    Lookup,
    Policy,
    Until,
    as_policy,
    from_options,
)
from leadsman.errors import InvalidType, InvalidValue, labelled

if TYPE_CHECKING:
    from leadsman.core.readings.content import ContentField
    from leadsman.core.readings.filtering import Filters
    from leadsman.core.registration.command import RequestPayload
    from leadsman.core.registration.finds import Finds
    from leadsman.core.resilience.catalogue import Catalogue

MAX_TIMEOUT_SECONDS = 60.0
"""Seconds. The default timeout is the interval, but at most this: four calls that hang must not take hours."""
MIN_INTERVAL_SECONDS = 0.01
"""Seconds. For shorter intervals, a loop in the handler is the better tool."""
THROTTLE = 1.0
"""Seconds between two requested polls, where no other time is given."""
MIN_STALE_AFTER_SECONDS = 1.0
"""Seconds. A device that is polled many times a second is not stale at each moment in which the machine is busy."""
RETRYING = ("retry", "retry_on", "backoff", "budget", "within")
"""Options that together define a policy."""
_ACTIONS = ("continue", "hold", "stop")
Fallback = Callable[[BaseException], Awaitable[object]]
"""A function that is called with the error after a poll that failed for good. It returns a reading to publish, or
None."""


def _interval(value: Duration, name: str) -> float:
    length = positive_seconds(value, name)
    if length < MIN_INTERVAL_SECONDS:
        raise InvalidValue(f"{name} is {value!r}; it must be at least {MIN_INTERVAL_SECONDS} s")
    return length


def _schedule(value: str | Cron, name: str) -> Cron:
    return value if isinstance(value, Cron) else Cron(value)


def _retries(value: object, name: str) -> int | Until:
    if isinstance(value, Until):
        return value
    kind = "it must be the number of retries after the first call, such as 3"
    return whole(value, name, 0, kind=kind, limits="it must be 0 or more retries after the first call")


def _policy(value: object, name: str) -> Policy:
    return Lookup(value) if isinstance(value, str) else as_policy(value)


def _on_failure(action: object, name: str) -> str | Fallback:
    if isinstance(action, str):
        if action not in _ACTIONS:
            raise InvalidValue(f"{name} is {action!r}; it must be 'continue', 'hold', 'stop' or an async function")
        return action
    if isinstance(action, type) or not (callable(action) and is_async(action)):
        raise InvalidType(
            f"{name} is {action!r}; write 'continue', 'hold', 'stop' or an 'async def' that takes the error"
        )
    return action


class TelemetryOptions(ReadingOptions, total=False):
    """The options of `@app.telemetry`, with those of `ReadingOptions` and `DeviceOptions`. Durations are
    seconds, text such as ``"5m"``, or `timedelta`."""

    interval: Annotated[Duration, Option(_interval, None, "number", replaces=("schedule",), as_it_is=True)]
    """Poll at this fixed interval, 10 ms or more. Give either this or `schedule`."""
    schedule: Annotated[str | Cron, Option(_schedule, None, "cron", replaces=("interval",))]
    """Poll at the times of a cron expression with five fields. ``Cron(…, zone="Europe/Berlin")`` uses another time
    zone than the host's."""
    retry: Annotated[int | Until, Option(_retries, 0, "retries", replaces=("policy",))]
    """Retries after the first call of a poll: ``retry=3`` is at most four calls. `UNTIL_NEXT_POLL`: as many as the
    backoff allows until the next poll. Default 0."""
    retry_on: Annotated[
        type[Exception] | Sequence[type[Exception]], Option(as_given, None, "errors", replaces=("policy",))
    ]
    """The errors that are retried, in place of the default: `OSError`, `TransientError` and the adapters'
    `transient_errors`."""
    backoff: Annotated[BackoffStrategy, BACKOFF]
    """How long to wait before a retry. Default ``ExponentialBackoff()``."""
    budget: Annotated[Duration, Option(SECONDS, math.inf)]
    """The longest sum of all waits of one outage; the time of the calls is not counted. Default: no limit."""
    within: Annotated[Duration, Option(SECONDS, math.inf)]
    """No retry starts later than this after the first failure of an outage; the time of the calls is counted.
    Default: no limit."""
    policy: Annotated[Policy | str, Option(or_none(_policy), None, "policy", replaces=RETRYING)]
    """A policy of the algebra, or the name of a family or of a policy in the settings. It replaces `retry`,
    `retry_on`, `backoff`, `budget` and `within`. Default None."""
    overrun: Annotated[Literal["next-poll", "finish"], Option(is_second("next-poll", "finish"), False)]
    """``"next-poll"`` (default) drops a retry that would start at or after the next poll; ``"finish"`` makes it and
    delays that poll."""
    on_failure: Annotated[Literal["continue", "hold", "stop"] | Fallback, Option(_on_failure, "continue")]
    """What happens after a poll that failed for good. ``"continue"`` (default) goes on polling. ``"hold"`` stops
    polling the device until it is released. ``"stop"`` ends the app with exit code 69. An ``async def (error)`` is
    called, and its result is published as the state."""
    timeout: Annotated[Duration | None, TIMEOUT]
    """The longest time for one call. Default: the interval, at most 60 s; for cron 60 s. None: no limit."""
    group: Annotated[str | None, GROUP]
    """A group name. Handlers of one group poll at common times, one call after the other. Default None."""
    spread: Annotated[Duration, Option(SECONDS, as_it_is=True)]
    """Delay the first poll by a fixed part of this time, the same one at every start. Default: the first poll comes at
    once, and later ones of more than 20 devices with one interval are spread over at most a second. 0: no spread."""
    stale_after: Annotated[Duration | None, STALE_AFTER]
    """The device is stale after this time without a successful poll. Default: three intervals and the timeout, at
    least 1 s; for cron, twice the largest gap."""
    throttle: Annotated[Duration, Option(SECONDS, THROTTLE, "number", of_topics=True, as_it_is=True)]
    """The shortest time between two polls that are requested at ``{prefix}/{device}/get``. A request that comes sooner
    is refused, with the time after which to ask again. Default 1 s."""
    request: Annotated[str, Option(as_given, of_topics=True)]
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
    """Seconds; None for the default, see `leadsman.core.loop.slots`."""
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
    of_extensions: Options = NO_VALUES
    """The options that extensions add."""

    @property
    def kind(self) -> Literal["telemetry", "periodic"]:
        """The decorator."""
        return "periodic" if self.job else "telemetry"

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
    name: str,
    handler: Handler,
    options: TelemetryOptions,
    available: Sequence[Dependency],
    further: Mapping[str, Option] = NONE,
    *,
    job: bool = False,
) -> Telemetry:
    """Check one registration, which may have further options, of extensions. Raises `InvalidType`, `InvalidValue`."""
    values = checked(options, TelemetryOptions, further, job=job)
    if ("interval" in options) == ("schedule" in options):
        raise InvalidValue("write either interval='60s' or schedule='0 */2 * * *', and not both")
    plain, read = not is_async(handler), alike(handler)
    request = None
    if options.get("request") is not None:
        from leadsman.core.registration.command import request_payload  # few requests for a poll have a payload

        request = request_payload(handler, options["request"])
    needs = needs_of(read, available)
    interval, cron = values["interval"], values["schedule"]
    timeout = values["timeout"] if "timeout" in options else min(interval or MAX_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
    fields = {
        **carried(values, Telemetry),
        "name": name,
        "handler": handler,
        "needs": needs,
        "plain": plain,
        "cron": cron,
        "guards": GuardSpec(
            _policy_of(values, options, needs), values["circuit_breaker"], timeout, adapters=uses_adapters(needs)
        ),
        "stale_after": values["stale_after"] or _stale_after(interval, cron, timeout or 0.0),
        "undecided": options.get("policy") is None and not any(option in options for option in RETRYING),
        "policy_name": named if isinstance(named := options.get("policy"), str) else None,
        "request": request,
        "job": job,
        "labels": values["needs"],
        **reading_values(values, options, read, needs),
    }
    return Telemetry(**fields)


def _policy_of(values: Mapping[str, Any], options: Mapping[str, object], needs: Dependencies) -> Policy:
    """One policy of the retry options, of which these are given."""
    if values["policy"] is not None:
        for option in RETRYING:
            if option in options:
                raise InvalidType(
                    f"policy and {option} both say what is retried; put {option} into the policy, or leave it out"
                )
        policy: Policy = values["policy"]
        return policy
    retry, kinds = values["retry"], values["retry_on"]
    if retry is UNTIL_NEXT_POLL and values["overrun"]:
        raise InvalidValue("retry=UNTIL_NEXT_POLL never ends with overrun='finish'; leave overrun out")
    # An empty list counts as not given beside retry=0: both may come from settings.
    by_default = "retry_on" not in options or ("retry" in options and retry == 0 and kinds in ((), []))
    kinds = _transient(needs) if by_default else exception_types(kinds, "retry_on")
    return from_options(retry, kinds, values["backoff"], values["budget"], values["within"])


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
    values, guards = checked(options, TelemetryOptions), telemetry.guards
    if "circuit_breaker" in options:
        guards = guards._replace(breaker=values["circuit_breaker"])
    if "overrun" in options:
        telemetry = telemetry._replace(overrun=values["overrun"])
    if not options.keys() & {"policy", *RETRYING}:
        return telemetry._replace(guards=guards)
    guards = guards._replace(policy=_policy_of(values, options, telemetry.needs))
    changed = telemetry._replace(guards=guards, undecided=False, policy_name=None)
    if not isinstance(options.get("policy"), str):
        return changed
    from leadsman.core.resilience.catalogue import Catalogue  # only apps with names for policies need it

    return with_policy(changed, catalogue or Catalogue())


def _transient(needs: Dependencies) -> tuple[type[Exception], ...]:
    """The errors that are retried by default."""
    declared = [kind for kind in declared_errors(needs) if kind not in DEFAULT_RETRY_ON]
    return exception_types((*DEFAULT_RETRY_ON, *declared), "transient_errors") if declared else DEFAULT_RETRY_ON


def _stale_after(interval: float | None, cron: Cron | None, timeout: float) -> float:
    if cron is not None:
        return 2 * cron.largest_gap()
    return max(MIN_STALE_AFTER_SECONDS, 3 * (interval or 0.0) + timeout)
