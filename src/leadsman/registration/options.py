"""Checks of what telemetry, sources and commands have in common: their names and their shared options."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.mqtt.message import STANDARD, Delivery
from leadsman.mqtt.topics import check_name
from leadsman.readings import publish
from leadsman.readings.publish import PublishRule
from leadsman.registration.injection import Dependencies
from leadsman.resilience.backoff import DEFAULT_BACKOFF, BackoffStrategy, as_backoff
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.text import suggestion

if TYPE_CHECKING:
    from leadsman.registration.finds import Finds

LONGEST_LABEL = 128
"""Characters of a label of a node; as `leadsman.settings.sections.LONGEST_LABEL`."""
Options = Mapping[str, object]
T = TypeVar("T")


def labelled(kind: str, name: object, make: Callable[[str], T]) -> T:
    """Check the device name, and pass it to `make`, which checks the rest. Errors of `make` begin with `kind` and the
    name."""
    device = check_name(name)
    try:
        return make(device)
    except ConfigurationError as error:
        raise type(error)(f"{kind} {device!r}: {error}") from None


def check_options(options: Options, known: type, without: frozenset[str] = frozenset()) -> None:
    """Check that all options are known. Raises `InvalidType` with a suggestion."""
    names = [name for name in known.__annotations__ if name not in without]
    for option in options:
        if option not in names:
            raise InvalidType(f"{option!r} is not an option of its decorator; {suggestion(option, names)}")


def instance_of(options: Options, option: str, kind: type[T], default: T, example: str) -> T:
    """The value of an option, of one type. Raises `InvalidType`."""
    value = options.get(option, default)
    if not isinstance(value, kind):
        raise InvalidType(f"{option} is {value!r}; write {example}")
    return value


def enabled_of(options: Options) -> bool:
    """Whether the handler is enabled."""
    return instance_of(options, "enabled", bool, True, "True or False")


def title_of(options: Options) -> str | None:
    """The name of the device for people; None if that is its name in topics."""
    title = options.get("title")
    if title is None or (isinstance(title, str) and title.strip() and title.isprintable()):
        return title
    raise (InvalidValue if isinstance(title, str) else InvalidType)(
        f"title is {title!r}; write a name for people, such as 'Bathroom'"
    )


def delivery_of(options: Options) -> Delivery:
    """How readings are delivered."""
    return instance_of(options, "delivery", Delivery, STANDARD, "Delivery(keep='newest')")


def publish_of(options: Options) -> PublishRule | None:
    """The publish rule; None publishes every reading."""
    return None if options.get("publish") is None else publish.checked(options["publish"])


def backoff_of(options: Options) -> BackoffStrategy:
    """The backoff."""
    return as_backoff(options["backoff"]) if "backoff" in options else DEFAULT_BACKOFF


def breaker_of(options: Options) -> CircuitBreaker | None:
    """The circuit breaker, if there is one."""
    breaker = options.get("circuit_breaker")
    if breaker is None or isinstance(breaker, CircuitBreaker):
        return breaker
    raise InvalidType(f"circuit_breaker is {breaker!r}; write CircuitBreaker(threshold=5), with brackets")


def offline_on_error_of(options: Options) -> bool:
    """Whether a device is offline as soon as it fails, and not only when no reading is expected soon."""
    given = options.get("offline_on", "stale")
    if given not in ("stale", "error"):
        raise InvalidValue(f"offline_on is {given!r}; it must be 'stale' or 'error'")
    return given == "error"


def finds_of(options: Options, needs: Dependencies) -> "Finds | None":
    """Which devices the handler may find at run time; None if it finds none."""
    if options.get("finds") is None:
        return None
    from leadsman.registration.finds import checked_finds  # only handlers that find devices pay for it

    return checked_finds(options["finds"], needs)


def labels_of(options: Options) -> frozenset[str]:
    """What a node must have to run the handler, in a cluster."""
    given = options.get("needs", ())
    labels = [given] if isinstance(given, str) else given
    if not isinstance(labels, list | tuple | set | frozenset) or not all(isinstance(each, str) for each in labels):
        raise InvalidType(f"needs is {given!r}; write a label such as 'ble', or a list of them")
    for label in labels:
        if not 0 < len(label) <= LONGEST_LABEL or not label.isprintable() or "," in label:
            raise InvalidValue(
                f"needs has the label {label!r}; write 1 to {LONGEST_LABEL} printable characters without a comma, such"
                " as 'ble' or 'serial:/dev/serial/by-id/…'"
            )
    return frozenset(labels)


def group_of(options: Options) -> str | None:
    """The name of the group, if the handler is in one."""
    group = options.get("group")
    if group is None or (isinstance(group, str) and group.strip()):
        return group
    raise (InvalidValue if isinstance(group, str) else InvalidType)(f"group is {group!r}; write a name such as 'bus'")


def is_everywhere(registration: object) -> bool:
    """Whether a handler is called on each node of a cluster that has its labels."""
    finds = getattr(registration, "finds", None)
    return finds is not None and finds.everywhere
