"""Named policies and families of operations: from the code, a file and the environment.

A **family** sets how often and how soon an operation of a kind is repeated: calls at most, the shortest and the
longest wait, the jitter, and which errors pass. Each value comes from the call, else the environment
(``RETRY__API_MAX_ATTEMPTS=6``), else the file (``[retry.api]``), else is built in; a value that is present always wins.

A **named policy** has a priority and a predicate as well: it is asked for by its name, or, by handlers that set nothing
about retries themselves, chosen for each failure: the highest priority whose predicate matches; among equals, the first
name.
"""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import NamedTuple

from leadsman.core.loop.durations import Duration, seconds
from leadsman.core.resilience.failure import Property
from leadsman.core.resilience.notation import duration_of, named_of
from leadsman.core.resilience.policy import DEFAULT_RETRY_ON, Choice, Named, Policy, exponential, immediate
from leadsman.core.resilience.predicate import Constant, Predicate, is_a, prop, simplify
from leadsman.core.resilience.retry_after import TRANSIENT
from leadsman.core.settings.entry import KNOBS, RETRY, Origins, told_origin
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, PermanentError, raise_together

_STATUS = prop("status-code")
_PASSING = (_STATUS >= 500) | _STATUS.in_(*TRANSIENT)
_REFUSED = _STATUS.exists() & (_STATUS >= 400) & (_STATUS < 500) & ~_STATUS.in_(*TRANSIENT)
"""The other 4xx (RFC 9110 §15.5): asking again changes nothing."""
_BASES = prop("error-bases")
_TRANSIENT = is_a(*DEFAULT_RETRY_ON)
_GARBLED = _BASES.in_("json.decoder.JSONDecodeError", "builtins.UnicodeDecodeError", "httpx.DecodingError") | (
    (_BASES == "pydantic_core._pydantic_core.ValidationError") & prop("error-message").contains("Invalid JSON")
)
"""An answer that broke off, or the page of a proxy in place of one."""
_HTTP = (
    _TRANSIENT
    | _BASES.in_("httpx.TransportError", "aiohttp.client_exceptions.ClientConnectionError")
    | _PASSING
    | _GARBLED
)
_DAV_NEVER = is_a(PermanentError) | _BASES.in_("caldav.lib.error.AuthorizationError", "caldav.lib.error.NotFoundError")


class RetryFamily(NamedTuple):
    """How operations of one kind are repeated. Waits in seconds; `jitter` is a fraction, or a mode of `Jitter`."""

    max_attempts: int
    """Calls, the first one included."""
    min_wait: float
    max_wait: float
    jitter: float | str
    passing: Predicate = _TRANSIENT
    """Which errors are worth another attempt."""
    obeys_retry_after: bool = False
    """Whether a server may ask for longer waits."""


FAMILIES: Mapping[str, RetryFamily] = {
    "worker": RetryFamily(3, 1.0, 10.0, "equal"),
    "storage": RetryFamily(5, 0.5, 5.0, 0.0),
    "scheduler": RetryFamily(3, 1.0, 8.0, "equal"),
    "api": RetryFamily(4, 1.0, 15.0, "equal"),
    "ble": RetryFamily(4, 2.0, 60.0, 0.2, _TRANSIENT | (_BASES == "bleak.exc.BleakError")),
    "serial": RetryFamily(5, 0.5, 5.0, 0.0),
    "http": RetryFamily(4, 1.0, 15.0, "equal", ~_REFUSED & _HTTP, obeys_retry_after=True),
    "caldav": RetryFamily(
        4, 1.0, 15.0, "equal", ~_REFUSED & ~_DAV_NEVER & (_HTTP | (_BASES == "caldav.lib.error.DAVError"))
    ),
}
"""Built in. A local bus has no jitter: nobody else is there to collide with, and it is easier to reason about."""


class Catalogue:
    """The policies that have a name, and the families.

    Args:
        section: ``retry`` of the settings: families with their knobs, and ``policy``, the named policies, as a list
            or a mapping.
        origins: the entries of its values, by their paths.

    Raises:
        InvalidValue, InvalidType: it names the path, where it is from, and what to write.
    """

    def __init__(self, section: Mapping[str, object] | None = None, origins: Origins | None = None) -> None:
        self.families = dict(FAMILIES)
        self.named: dict[str, Named] = {}
        self._origins = origins or {}
        faults: list[ConfigurationError] = []
        for name, value in (section or {}).items():
            try:
                self._read(str(name), value)  # YAML has keys that are numbers
            except ConfigurationError as error:
                faults.append(error)
        raise_together(faults)

    def add(self, named: Named) -> None:
        """Add a policy of the code's; it wins over one of the same name in the file."""
        self.named[named.name] = named

    def policy(
        self,
        name: str,
        *,
        also: Iterable[type[Exception]] = (),
        max_attempts: int | None = None,
        min_wait: Duration | None = None,
        max_wait: Duration | None = None,
    ) -> Policy:
        """The policy of a name: a named one, else a family.

        Args:
            name: of either.
            also: more errors that are worth another attempt; for families.
            max_attempts: calls at most, in place of the family's.
            min_wait: the shortest wait, likewise.
            max_wait: the longest one.

        Raises:
            InvalidValue, InvalidType: nothing has that name, or a value makes no sense.
        """
        given = {"max_attempts": max_attempts, "min_wait": min_wait, "max_wait": max_wait}
        knobs = {knob: value for knob, value in given.items() if value is not None}
        if name in self.named:
            if knobs:
                raise InvalidValue(f"{name!r} is a policy and not a family; it does not accept {', '.join(knobs)}")
            return self.named[name].policy
        if name not in self.families:
            raise InvalidValue(f"no policy is called {name!r}; {suggestion(name, (*self.named, *self.families))}")
        return policy_of_family(_change(self.families[name], knobs), tuple(also))

    def choice(self, facts: Mapping[str, Property]) -> Choice | None:
        """The choice of a handler that sets nothing about retries; None where no named policy can apply to it.

        Args:
            facts: the properties of the handler that never change. Predicates are decided as far as these go.
        """
        among: list[Named] = []
        for each in Choice(self.named.values()).among:
            condition = simplify(each.condition, facts)
            if not (isinstance(condition, Constant) and not condition.value):
                among.append(each._replace(condition=condition))
            if isinstance(condition, Constant) and condition.value:
                break  # the ones after it are never asked
        return Choice(among) if among else None

    def _read(self, name: str, value: object) -> None:
        if name == "policy":
            self._read_named(value)
        elif name in FAMILIES and isinstance(value, Mapping):
            self.families[name] = self._family(name, value)
        else:
            self._refuse(name)

    def _read_named(self, value: object) -> None:
        keys: list[str] = []
        if isinstance(value, Mapping):
            keys = [str(name) for name in value]
            value = [
                {"name": name, **(each if isinstance(each, Mapping) else {"policy": each})}
                for name, each in value.items()
            ]
        if not isinstance(value, list):
            where = self._from("policy")
            raise InvalidType(f"retry.policy{where}: write a list of policies, or a mapping of them by name")
        faults: list[ConfigurationError] = []
        for number, each in enumerate(value):
            try:
                named = named_of(each, f"retry.policy[{number}]")
                if named.name in self.named:
                    raise InvalidValue(f"retry.policy[{number}]: there is another policy called {named.name!r}")
            except ConfigurationError as error:
                key = keys[number] if keys else str(number)
                faults.append(type(error)(f"{error}{self._from('policy', key, *error.inside)}"))
                continue
            self.named[named.name] = named
        raise_together(faults)

    def _family(self, name: str, value: Mapping[str, object]) -> RetryFamily:
        family = FAMILIES[name]
        for knob, given in ((str(key), each) for key, each in value.items()):
            if knob not in KNOBS:
                raise InvalidValue(f"retry.{name}.{knob}{self._from(name, knob)}: unknown; {suggestion(knob, KNOBS)}")
            try:
                family = _change(family, {knob: _number(given)}, ordered=False)
            except ConfigurationError as error:
                raise type(error)(f"retry.{name}.{error}{self._from(name, knob)}") from None
        try:
            return _change(family, {})
        except ConfigurationError as error:
            raise type(error)(f"retry.{name}: {error}{self._from(name)}") from None

    def _refuse(self, name: str) -> None:
        where = self._from(name)
        family = next((family for family in FAMILIES if name.startswith(f"{family}_")), None)
        if name in FAMILIES:
            raise InvalidValue(f"retry.{name}{where}: write a section with {', '.join(KNOBS)}")
        if family is not None:  # a variable whose end is no knob
            knob = name.removeprefix(f"{family}_")
            raise InvalidValue(f"retry.{family}.{knob}{where}: unknown; {suggestion(knob, KNOBS)}")
        raise InvalidValue(f"retry.{name}{where}: unknown; {suggestion(name, (*FAMILIES, 'policy'))}")

    def _from(self, *path: str) -> str:
        return told_origin((RETRY, *path), self._origins)


CATALOGUE: ContextVar[Catalogue | None] = ContextVar("leadsman_catalogue", default=None)
"""That of the running app, for whatever runs in it."""


def policy_of_family(family: RetryFamily, also: tuple[type[Exception], ...] = ()) -> Policy:
    """The policy of a family: exponential waits from its shortest to its longest one."""
    passing = family.passing | is_a(*also) if also else family.passing
    waits = _waits(family).obey_retry_after() if family.obeys_retry_after else _waits(family)
    return waits.only_when(passing).max_retries(family.max_attempts - 1)


def _waits(family: RetryFamily) -> Policy:
    """The waits are spread above the shortest one, the first wait too, so that callers who failed together ask again
    apart."""
    low, high, jitter = family.min_wait, family.max_wait, family.jitter
    if high == 0:
        return immediate()
    base = low or min(1.0, high)
    if jitter == "full" and low < high:
        return exponential(min(base, high - low), cap=high - low).jitter(mode="full").plus(low)
    if jitter == "decorrelated":
        return exponential(base, cap=high).jitter(mode="decorrelated", cap=high)
    if isinstance(jitter, str):
        return exponential(min(2 * low or base, high), cap=high).jitter(mode="equal").clamp(low, high)
    if jitter == 0:
        return exponential(base, cap=high)
    raised = low / (1 - jitter) if jitter < 0.5 else 2 * low
    return exponential(min(raised or base, high), cap=high).jitter(jitter).clamp(low, high)


def check_bounds(bounds: Mapping[str, object]) -> None:
    """See that bounds of a family make sense by themselves, where its own are not known yet; None is none.

    Raises:
        InvalidValue, InvalidType: a bound makes no sense.
    """
    given = {knob: value for knob, value in bounds.items() if value is not None}
    _change(FAMILIES["worker"], given, ordered="min_wait" in given and "max_wait" in given)


def _change(family: RetryFamily, knobs: Mapping[str, object], *, ordered: bool = True) -> RetryFamily:
    for knob, value in knobs.items():
        if knob == "max_attempts":
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidType(f"max_attempts: {value!r} is not a number of calls; write 1 or more")
            if value < 1:
                raise InvalidValue(f"max_attempts: it is {value}; write 1 or more calls, 1 for no retries")
            family = family._replace(max_attempts=value)
        elif knob == "jitter":
            family = family._replace(jitter=_jitter(value))
        else:
            wait = seconds(duration_of(value, knob), knob)
            family = family._replace(min_wait=wait) if knob == "min_wait" else family._replace(max_wait=wait)
    if ordered and family.min_wait > family.max_wait:
        raise InvalidValue(
            f"min_wait is {family.min_wait:g} s and max_wait {family.max_wait:g} s; the longer one is max_wait"
        )
    return family


def _number(value: object) -> object:
    """Text of the environment that is a number."""
    if isinstance(value, str):
        for read in (int, float):
            try:
                return read(value)
            except ValueError:
                pass
    return value


def _jitter(value: object) -> float | str:
    named: Mapping[str, float | str] = {
        "true": "equal",
        "yes": "equal",
        "false": 0.0,
        "no": 0.0,
        "full": "full",
        "equal": "equal",
        "decorrelated": "decorrelated",
    }
    if isinstance(value, bool | str):
        found = named.get(str(value).lower())
        if found is None:
            raise InvalidValue(
                f"jitter: {value!r}; write true, false, a fraction such as 0.2, or {', '.join(list(named)[4:])}"
            )
        return found
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidValue(f"jitter: it is {value!r}; write a fraction from 0 to 1")
    return float(value)
