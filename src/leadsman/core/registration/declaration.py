"""What an option of a decorator is. It is declared once, as the type of its field in the `TypedDict` of the decorator:
what it may be, what it is where it is left out, and how the settings of a device write it."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, cast

from leadsman.core.loop.durations import positive_seconds, seconds
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidType, InvalidValue

T = TypeVar("T")

Options = Mapping[str, object]
"""The options of a registration, as the code gives them."""
Check = Callable[[Any, str], object]
"""Called with the value that the code gives, and its name for messages; returns the value of the registration. Raises
`InvalidType`, `InvalidValue`; what that of an extension raises else becomes an `InvalidValue` that names the option."""
Notation = Literal[
    "number",
    "number or off",
    "switch",
    "text",
    "cron",
    "retries",
    "errors",
    "word or errors",
    "policy",
    "backoff",
    "breaker or off",
    "rule or off",
    "presentations",
]
"""How the settings write a value; `leadsman.core.registration.device_settings` reads them."""


class Option(NamedTuple):
    """One option of a decorator."""

    check: Check
    """Takes the value and the name of the option, for messages, and returns the value that is kept. Raises a
    `ConfigurationError`, such as `InvalidValue`, that says what to write."""
    default: object = None
    """The value of a registration whose code gives none. Where that follows from other options, they say so."""
    notation: Notation | None = None
    """How the settings of a device write it; None: they cannot have it."""
    setting: str | None = None
    """Its name in these settings; None: the same."""
    replaces: tuple[str, ...] = ()
    """The options that set the same in another way. The settings replace them all at once."""
    of_topics: bool = False
    """Whether it is about topics or the device, which side jobs do not have."""
    of_found: bool = False
    """Whether the settings of a device that a handler finds may have it."""
    of_settings: bool = False
    """Whether it lists options of its decorator, by their names in the settings."""
    as_it_is: bool = False
    """Whether introspection has its value as the registration has it, in a field of the same name; any other is written
    by `leadsman.core.introspection.registrations`."""
    extension: str = ""
    """The extension that adds it; leadsman sets that."""


_ELSEWHERE = {
    **dict.fromkeys(("every", "period", "seconds", "poll_interval", "scan_interval", "update_interval"), "interval"),
    **dict.fromkeys(("retries", "max_retries", "attempts", "max_attempts", "tries"), "retry"),
    **dict.fromkeys(("breaker", "circuit"), "circuit_breaker"),
}
"""What other frameworks call an option that decorators have here by another name."""


@functools.cache
def declared(decorator: type) -> Mapping[str, Option]:
    """The options of a decorator by their names, read from the `TypedDict` that lists them."""
    return MappingProxyType({name: _beside(kind) for name, kind in decorator.__annotations__.items()})


def _beside(kind: object) -> Option:
    """The option beside a type; of two, the outer one, which has another default."""
    *_, found = (each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Option))
    return found


@functools.cache
def _defaults(decorator: type) -> Mapping[str, object]:
    return {name: option.default for name, option in declared(decorator).items()}


NONE: Mapping[str, Option] = MappingProxyType({})


def checked(
    options: Options, decorator: type, further: Mapping[str, Option] = NONE, *, job: bool = False
) -> dict[str, Any]:
    """The values of all options of a decorator, by their names; those that extensions add are together in
    ``of_extensions``.

    Args:
        options: what the code and the settings give.
        decorator: the `TypedDict` of its options.
        further: the options that extensions add to it.
        job: whether it registers a side job, which has no options about topics.

    Raises:
        InvalidType, InvalidValue: an option is unknown, or its value is wrong.
    """
    known = declared(decorator)
    if further:
        known = {**known, **further}
    if not known.keys() >= options.keys() or (job and any(known[name].of_topics for name in options)):
        names = [name for name, option in known.items() if not (job and option.of_topics)]
        unknown = next(name for name in options if name not in names)
        meant = _ELSEWHERE.get(unknown)
        cure = f"did you mean {meant!r}?" if meant in names else suggestion(unknown, names)
        raise InvalidType(f"{unknown!r} is not an option of its decorator; {cure}")
    values = dict(_defaults(decorator))
    of_extensions = {name: option.default for name, option in further.items()}
    values["of_extensions"] = of_extensions or NO_VALUES
    for name, value in options.items():
        into = of_extensions if name in further else values
        into[name] = known[name].check(value, name)
        if known[name].of_settings:
            more = (other for other, option in further.items() if option.notation is not None)
            _check_settable(cast("frozenset[str]", into[name]), name, {*settable(decorator), *more})
    return values


NO_VALUES: Options = MappingProxyType({})
"""The options of extensions that a registration has where no extension adds one."""


def own_options(of_extensions: Options, kind: type[T]) -> T:
    """The options that an extension has added to a registration, with their types.

    Args:
        of_extensions: those of a `Telemetry`, a `Source` or a `Command` of `leadsman.extension.Plan.registry`.
        kind: the `TypedDict` of the extension.

    Returns:
        All of its options; empty if the app does not have the extension.
    """
    return cast("T", {name: of_extensions[name] for name in kind.__annotations__ if name in of_extensions})


@functools.cache
def settable(decorator: type) -> Mapping[str, str]:
    """The options of a decorator that the settings of a device may set: their names there, and those in the code."""
    known = declared(decorator).items()
    return MappingProxyType({each.setting or name: name for name, each in known if each.notation is not None})


def _check_settable(listed: Iterable[str], name: str, known: Collection[str]) -> None:
    for option in listed:
        if option not in known:
            raise InvalidValue(f"{name} has {option!r}, which the settings cannot change; {suggestion(option, known)}")


def carried(values: Mapping[str, object], registration: type) -> dict[str, Any]:
    """The values of the options that a registration has as fields of the same names."""
    return {name: values[name] for name in _carried(tuple(values), registration)}


@functools.cache
def _carried(names: tuple[str, ...], registration: type) -> tuple[str, ...]:
    return tuple(name for name in names if name in registration._fields)  # type: ignore[attr-defined]  # a NamedTuple


@functools.cache
def described_as_they_are(decorator: type, registration: type, *, job: bool) -> tuple[str, ...]:
    """The options whose values introspection has as a registration has them; of a side job without those about
    topics."""
    options = {name: option for name, option in declared(decorator).items() if option.as_it_is}
    return tuple(name for name in _carried(tuple(options), registration) if not (job and options[name].of_topics))


def as_given(value: T, name: str) -> T:
    """The value itself: what it may be depends on the handler, and is checked with that."""
    return value


def instance_of(kind: type[T], example: str) -> Check:
    """A check that a value is of one type. `example` is what to write."""

    def check(value: object, name: str) -> T:
        if not isinstance(value, kind):
            raise InvalidType(f"{name} is {value!r}; write {example}")
        return value

    return check


def is_second(first: str, second: str) -> Check:
    """A check that a value is one of two words; it gives whether it is the second."""

    def check(value: object, name: str) -> bool:
        if value not in (first, second):
            raise InvalidValue(f"{name} is {value!r}; it must be {first!r} or {second!r}")
        return value == second

    return check


def or_none(check: Check) -> Check:
    """A check of what may be None as well."""
    return lambda value, name: None if value is None else check(value, name)


POSITIVE_SECONDS: Check = positive_seconds
"""A duration above zero, in seconds."""
SECONDS: Check = seconds
"""A duration, in seconds."""
SWITCH = instance_of(bool, "True or False")
