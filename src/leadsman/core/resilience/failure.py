"""The description of a failed call that a policy decides about, and the properties that a predicate can ask for.

A failure has **properties**: the facts of the runner about the handler, what the error itself contains, and what an
exception carries in a mapping ``retry_properties``. They are looked up only when a policy asks for them, so that other
policies cost nothing extra.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from leadsman.core.loop.durations import Duration, unbounded_seconds
from leadsman.core.text import clean, text_of
from leadsman.errors import InvalidType, InvalidValue, LeadsmanError

Property = str | int | float | bool | tuple[str, ...]

Scope = Literal["cycle", "outage"]
"""Over what a policy counts: a poll with its retries, or everything until a success."""

PROPERTIES: Mapping[str, str] = {
    "handler": "name of the device",
    "adapter": "names and classes of the adapters that the handler asks for",
    "family": "the family of operations under which a call is made",
    "verb": "poll, or adhoc",
    "error-type": "qualified name of the error's class, such as builtins.TimeoutError",
    "error-bases": "qualified names of that class and all above it",
    "error-message": "what the error says",
    "errno": "of an OSError",
    "status-code": "of an HTTP answer that the error carries",
    "gatt-code": "of a Bluetooth ATT error (Core Specification, Vol 3, Part F, 3.4.1.1)",
    "attempts": "retries since the last success",
    "interval": "of the handler, in seconds",
    "breaker": "closed, open or half_open",
}
"""The properties, besides names that begin with ``x-``, which an exception defines in ``retry_properties``."""

NUMBERS = frozenset({"errno", "status-code", "gatt-code", "attempts", "interval"})
"""Properties that are numbers. They are not compared with text."""


class RetryRequested(LeadsmanError):
    """A handler or its adapter raises this to request a retry at a certain time. It is not counted as a failure, and is
    not published as an error.

    Before the next poll, the call is repeated after `delay`, as often as this is requested. A delay beyond the next
    poll defers the polls until then. Only ``budget`` and ``within`` limit it.

    Args:
        delay: from now, exactly as given, without jitter, but at least 100 ms and at most a year. None: as long as
            the backoff sets.
        reason: the reason, for readers of the trace.

    Attributes:
        delay: seconds, or None.
        reason: text, or None.
    """

    __module__ = "leadsman"  # as policies in files name it

    def __init__(self, delay: Duration | None = None, reason: str | None = None) -> None:
        asked = None if delay is None else unbounded_seconds(delay, "delay")
        self.delay = None if asked is None else min(max(MIN_REQUEST_SECONDS, asked), MAX_REQUEST_SECONDS)
        self.reason = None if reason is None else clean(str(reason))
        super().__init__(self.reason or "the device asks for another attempt")


MIN_REQUEST_SECONDS = 0.1
"""Seconds. A handler that requests an immediate retry again and again must not use the whole processor."""
MAX_REQUEST_SECONDS = 366 * 86_400.0
"""Seconds. What a device asks for in an answer may be any number, and has to be a date that can be written."""


def sift(error: Exception) -> Exception:
    """What a group of errors amounts to where requests are among them, as a task group makes one; any other error as it
    is.

    A group of nothing but requests is the one with the longest delay. Beside real failures the requests are left out:
    the device failed, and what failed decides.
    """
    if not isinstance(error, ExceptionGroup):
        return error
    requests, others = error.split(RetryRequested)
    if requests is None:
        return error
    return max(_leaves(requests), key=lambda request: request.delay or 0.0) if others is None else others


def _leaves(group: ExceptionGroup[RetryRequested]) -> Iterator[RetryRequested]:
    for each in group.exceptions:
        if isinstance(each, ExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


_PLAIN = (str, int, float, tuple)


def ignore_error(strategy: object, error: Exception) -> None:
    """Ignore that a user's strategy raised."""


class Failure(NamedTuple):
    """One failed call. `elapsed` is seconds since the first failure of the outage, also over a restart of the app."""

    error: Exception
    facts: Mapping[str, Property] = {}
    """The properties that the runner has, by name."""
    cycle: int = 0
    """Polls of this outage that failed before this one."""
    elapsed: float = 0.0
    attempts: int = 0
    """Retries since the last success."""
    resumed: bool = False
    """Whether the outage began before the app was restarted."""
    on_strategy_error: Callable[[object, Exception], None] = ignore_error
    """Called when a user's strategy raises; the default wait is then used."""
    wall: float = 0.0
    """When it failed, epoch seconds."""

    @property
    def request(self) -> RetryRequested | None:
        """The request that the handler raised, if it raised one."""
        return self.error if isinstance(self.error, RetryRequested) else None

    def get(self, name: str) -> Property | None:
        """A property, or None if the failure has none of that name."""
        known = _READ.get(name)
        found: Any
        if name == "attempts":
            found = self.attempts
        elif known is not None:
            found = known(self.error)
        else:
            found = self.facts.get(name)
        if found is None:
            carried = getattr(self.error, "retry_properties", None)
            found = carried.get(name) if isinstance(carried, Mapping) else None
        return found if isinstance(found, _PLAIN) else None  # a union would be created at each call


def qualified_name(kind: type) -> str:
    """``module.Class``, as a policy in a file names it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _bases(error: BaseException) -> tuple[str, ...]:
    """The names of the classes of an error. A group has those that all its leaves have in common."""
    if isinstance(error, BaseExceptionGroup):
        first, *others = (_bases(leaf) for leaf in error.exceptions)
        return tuple(name for name in first if all(name in other for other in others))
    return tuple(qualified_name(kind) for kind in type(error).__mro__ if kind is not object)


def _status(error: Exception) -> object:
    """The HTTP status that an error of httpx, requests, aiohttp or urllib carries."""
    response = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (error, "status"), (error, "status_code"), (error, "code")):
        found = getattr(holder, name, None)
        if isinstance(found, int) and not isinstance(found, bool) and 100 <= found <= 599:
            return found
    return None


_READ: Mapping[str, Callable[[Exception], object]] = {
    "error-type": lambda error: qualified_name(type(error)),
    "error-bases": _bases,
    "error-message": text_of,
    "errno": lambda error: getattr(error, "errno", None),
    "status-code": _status,
}


def matches(error: BaseException, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether an error is of one of `kinds`. An exception group is if all its leaves are."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


def exception_types(value: object, what: str) -> tuple[type[Exception], ...]:
    """Read a class, a list or a tuple of classes.

    Raises:
        InvalidType: something in it is not a subclass of `Exception`; `CancelledError`, `KeyboardInterrupt` and
            `SystemExit` are not, and are never retried nor counted.
        InvalidValue: it is empty.
    """
    kinds = tuple(value) if isinstance(value, Iterable) and not isinstance(value, type | str) else (value,)
    if not kinds:
        raise InvalidValue(f"{what} is empty, so nothing would match; leave it out for the default, or name the errors")
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            name = kind.__name__ if isinstance(kind, type) else repr(kind)
            raise InvalidType(
                f"{what} contains {name}, which is not a subclass of Exception; name exception classes only"
            )
    return kinds


def as_scope(value: object) -> Scope:
    """Check that a value is a scope. Raises `InvalidValue`."""
    if value == "cycle" or value == "outage":
        return value
    raise InvalidValue(
        f"scope is {value!r}; it must be 'cycle' (starts again with each poll) or 'outage' (until a success)"
    )
