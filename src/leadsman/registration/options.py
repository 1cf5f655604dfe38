"""Checks of what telemetry, sources and commands have in common: their names and their shared options."""

from collections.abc import Collection, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from leadsman.errors import InvalidType, InvalidValue
from leadsman.loop.durations import Duration, positive_seconds, whole
from leadsman.mqtt.message import STANDARD, Delivery
from leadsman.mqtt.topics import check_prefix, is_reserved_field
from leadsman.readings import publish
from leadsman.readings.publish import AllOf, AnyOf, OnChange, PublishRule
from leadsman.readings.reading import LAYOUTS, Layout
from leadsman.readings.sensor import NO_PRESENTATIONS, Presentations, check_fields
from leadsman.registration.injection import (
    Dependencies,
    Handler,
    annotated_result,
    beside,
    check_result,
    name_of,
    result_kinds,
)
from leadsman.registration.reading_type import ReadingType, reading_type, type_of
from leadsman.registration.result import FIELD, ValidateResult, result_validator, returns_one_value, value_field
from leadsman.resilience.backoff import DEFAULT_BACKOFF, BackoffStrategy, as_backoff
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.failure import exception_types
from leadsman.settings.sections import LONGEST_LABEL
from leadsman.text.suggestion import suggestion

if TYPE_CHECKING:
    from leadsman.readings.content import ContentField
    from leadsman.readings.filtering import Filters
    from leadsman.readings.filters import FilterList
    from leadsman.registration.finds import Finds

FOR_DEVICES = (
    *("interval", "schedule", "enabled", "timeout", "retry", "retry_on", "backoff", "policy", "circuit_breaker"),
    *("publish", "layout", "stale_after", "throttle", "offline_on", "expiry", "name", "area", "discoverable", "fields"),
)
"""The options that the settings may set for a device; ``name`` is its `title`. See
`leadsman.registration.device_settings`."""
TITLE, AREA = "a name for people, such as 'Bathroom'", "the name of a room or a place, such as 'Attic'"
"""What to write for these options."""
Options = Mapping[str, object]
OfflineOn = Literal["stale", "error"] | type[Exception] | Sequence[type[Exception]]
"""What makes a device offline, as a decorator takes it."""
Errors = tuple[type[BaseException], ...]
ANY_ERROR: Errors = (BaseException,)
"""What makes a device offline that is offline with each failure."""
T = TypeVar("T")


class DeviceOptions(TypedDict, total=False):
    """The options that everything with a device has."""

    needs: str | Sequence[str]
    """What a node of a cluster must have to run this: one label or several, such as ``"ble"`` or
    ``"serial:/dev/serial/by-id/…"``. Default: every node can. Without ``[cluster]`` it changes nothing."""
    title: str | None
    """The name of the device for people, in Home Assistant and introspection, such as ``"Bathroom"``. Its topics
    do not change. Of several devices, each has its own: ``Device(title="Bathroom")``. Default: its name."""
    area: str | None
    """The room or the place that Home Assistant suggests for the device, such as ``"Attic"``. Of several devices, each
    has its own: ``Device(area="Attic")``. Default None: it suggests none."""
    discoverable: bool
    """False: the device is not announced to Home Assistant. Default True."""
    fields: Mapping[str, Mapping[str, object]]
    """What people see of fields, by their names: ``{"flow": {"name": "Flow", "icon": "mdi:water"}}``. The options are
    ``name``, ``icon``, ``category``, ``discoverable`` and ``homeassistant`` of `leadsman.Sensor`, and each of them
    beats the one there. Of several devices, each may have its own: ``Device(fields=…)``. Default: as the
    types define."""
    enabled: bool
    """False registers the handler without running it. Default True."""
    fixed: Collection[str]
    """The options that the settings must not change for this device and those that its handler finds, by their names in
    the section ``devices``, such as ``{"interval"}``. Default: none."""


class PublishingOptions(DeviceOptions, total=False):
    """The options of what gives readings or events."""

    circuit_breaker: CircuitBreaker | None
    """Pause a device that fails repeatedly. Default None."""
    publish: PublishRule | None
    """Which readings are published. None: all of them. Default: all of them, or, where a `Sensor` of the readings has a
    deadband, those that changed by more than it. Of events all of them, whatever a `Sensor` has."""
    delivery: Delivery
    """The quality of service of readings, the retain flag, and which of those that wait arrive. Default ``Delivery()``:
    QoS 1, all of them, the newest retained. An event is never retained."""
    offline_on: OfflineOn
    """When the device's availability is ``offline``: with ``"stale"`` while no reading is expected soon, that is, while
    it is held, its circuit is open, or it is stale; with ``"error"`` also from its first failure on; with classes of
    errors, such as ``DeviceUnavailable``, also from its first failure with one of these on. The devices that it finds
    follow it. Default ``"stale"``; for events ``"error"``."""
    finds: "Finds | None"
    """Which devices the handler may find while the app runs; see `Context.device`. Default None: it finds none."""


class ReadingOptions(PublishingOptions, total=False):
    """The options of what gives readings."""

    field: str
    """The name of the field of a handler that is annotated to return one value, such as ``-> float``: that is published
    as ``{"value": …}``. Default ``"value"``. Of one that returns a `Content`: the name of its topic. Default
    ``"content"``."""
    filters: "Mapping[str, FilterList | Mapping[str, FilterList]]"
    """The filters of fields, in the order in which they are applied: ``{"temperature": [Median(5), Round(1)]}``. A dict
    in place of a list has several outputs: ``{"power": {"power_mean": [Mean("1m")], "power_max": [Maximum("1m")]}}``. A
    `Sensor` at the end of a list describes what the output measures. Nested fields have dots. Default: none."""
    layout: Layout
    """``"json"`` publishes a reading as one object at ``{prefix}/{device}/state``, ``"fields"`` each of its values as
    plain text at ``{prefix}/{device}/{field}``, and ``"both"`` both. Default ``"json"``."""


_ELSEWHERE = {
    **dict.fromkeys(("every", "period", "seconds", "poll_interval", "scan_interval", "update_interval"), "interval"),
    **dict.fromkeys(("retries", "max_retries", "attempts", "max_attempts", "tries"), "retry"),
    **dict.fromkeys(("breaker", "circuit"), "circuit_breaker"),
}
"""What other frameworks call an option that decorators have here by another name."""


def check_options(options: Options, known: type, without: frozenset[str] = frozenset()) -> None:
    """Check that all options are known. Raises `InvalidType` with a suggestion."""
    names = [name for name in known.__annotations__ if name not in without]
    for option in options:
        if option not in names:
            meant = _ELSEWHERE.get(option)
            cure = f"did you mean {meant!r}?" if meant in names else suggestion(option, names)
            raise InvalidType(f"{option!r} is not an option of its decorator; {cure}")


def instance_of(options: Options, option: str, kind: type[T], default: T, example: str) -> T:
    """The value of an option, of one type. Raises `InvalidType`."""
    value = options.get(option, default)
    if not isinstance(value, kind):
        raise InvalidType(f"{option} is {value!r}; write {example}")
    return value


def is_second(options: Options, option: str, first: str, second: str) -> bool:
    """Whether an option has the second of two values; the first is the default. Raises `InvalidValue`."""
    value = options.get(option, first)
    if value not in (first, second):
        raise InvalidValue(f"{option} is {value!r}; it must be {first!r} or {second!r}")
    return value == second


def length_of(options: Options, option: str, default: Duration | None) -> float | None:
    """Seconds of an option that may be None. Raises `InvalidValue`, `InvalidType`."""
    length: Any = options.get(option, default)
    return None if length is None else positive_seconds(length, option)


def queue_of(options: Options, default: int) -> int:
    """How many messages may wait behind the one that is handled. Raises `InvalidValue`, `InvalidType`."""
    return whole(options.get("queue", default), "queue", 1, kind=f"write a whole number such as {default}")


def enabled_of(options: Options) -> bool:
    """Whether the handler is enabled."""
    return instance_of(options, "enabled", bool, True, "True or False")


def fixed_of(options: Options) -> frozenset[str]:
    """The options that the settings must not change. Raises `InvalidType`, `InvalidValue`."""
    given = options.get("fixed", ())
    if not isinstance(given, set | frozenset | list | tuple) or not all(isinstance(each, str) for each in given):
        raise InvalidType(f"fixed is {given!r}; write a set of options, such as {{'interval'}}")
    for option in given:
        if option not in FOR_DEVICES:
            raise InvalidValue(
                f"fixed has {option!r}, which the settings cannot change; {suggestion(option, FOR_DEVICES)}"
            )
    return frozenset(given)


def _for_people(options: Options, option: str, example: str) -> str | None:
    return None if options.get(option) is None else check_for_people(options[option], option, example)


def check_for_people(text: object, what: str, example: str) -> str:
    """Check a text that people read; `what` is its name in the message. Raises `InvalidType`, `InvalidValue`."""
    if isinstance(text, str) and text.strip() and text.isprintable():
        return text
    raise (InvalidValue if isinstance(text, str) else InvalidType)(f"{what} is {text!r}; write {example}")


def delivery_of(options: Options) -> Delivery:
    """How readings are delivered."""
    return instance_of(options, "delivery", Delivery, STANDARD, "Delivery(keep='newest')")


def layout_of(options: Options, kind: ReadingType | None) -> Layout:
    """How readings are laid out. Raises `InvalidValue` if a field of their type would have the topic of another
    meaning. A field that is not known before is escaped."""
    given = options.get("layout", "json")
    layout = next((each for each in LAYOUTS if each == given), None)
    if layout is None:
        raise InvalidValue(f"layout is {given!r}; {suggestion(str(given), LAYOUTS)}")
    for name in kind.fields if kind is not None and layout != "json" else ():
        if is_reserved_field(name.split(".")):
            raise InvalidValue(
                f"layout is {layout!r}, and the topic of the field {name!r} would be one of leadsman's own; rename the"
                f" field, such as to {name + '_value'!r}, or write layout='json'"
            )
    return layout


def publish_of(options: Options, kind: ReadingType | None) -> PublishRule | None:
    """The publish rule, with the deadbands that stand beside the fields of the reading; None publishes every reading,
    as it does where it is written. Raises `InvalidValue` if it names a field that the reading does not have."""
    rule = None if options.get("publish") is None else publish.check_rule(options["publish"])
    if kind is None or (rule is None and "publish" in options):
        return rule
    kind.check(publish.deadband_fields(rule), "publish")
    return publish.add_deadbands(rule, kind.deadbands)


def field_of(options: Options, handler: Handler) -> str | None:
    """The name of the field of a handler that returns one value; None if it returns readings with fields."""
    one = returns_one_value(handler)
    if "field" not in options:
        return FIELD if one else None
    field = options["field"]
    if not isinstance(field, str):
        raise InvalidType(f"field is {field!r}; write a name such as 'temperature'")
    if not field or "." in field or not field.isprintable():
        raise InvalidValue(f"field is {field!r}; write a name without dots, such as 'temperature'")
    if not one:
        raise InvalidValue(
            f"field is {field!r}, and the handler returns no single value; annotate it, such as -> float"
        )
    return field


def returns_bytes(handler: Handler) -> bool:
    """Whether a handler is annotated to return bytes, maybe beside others."""
    return any(kind is bytes for kind in result_kinds(handler))


def content_of(options: Options, handler: Handler) -> "ContentField | None":
    """The content that a handler is annotated to return, with the name of its topic; None if it returns no bytes.

    Raises:
        InvalidType, InvalidValue: it does not name which, may return something else as well, or has options that are
            about values.
    """
    if not returns_bytes(handler):
        return None
    from leadsman.readings.content import Content, ContentField  # only handlers with a content pay for it

    found = [each for each, _ in beside(annotated_result(handler, described=True)) if isinstance(each, Content)]
    if not found:
        raise InvalidType(
            f"the handler {name_of(handler)} is annotated to return bytes; say what they are: "
            "Annotated[bytes, Content('image/jpeg')]"
        )
    if len(found) > 1 or any(kind not in (bytes, NoneType) for kind in result_kinds(handler)):
        raise InvalidType(
            f"the handler {name_of(handler)} is annotated to return bytes and something else; write a handler for each"
        )
    for option in ("filters", "finds"):
        if options.get(option) is not None:
            raise InvalidValue(f"{option} is about values, and the handler returns bytes; leave it out")
    if options.get("layout", "json") != "json":
        raise InvalidValue("layout is about values, and the handler returns bytes, which have a topic; leave it out")
    if _has_deadband(options.get("publish")):
        raise InvalidValue("publish has a deadband, and the handler returns bytes, which are equal or not: OnChange()")
    return ContentField(found[0], _content_name(options.get("field", "content")))


def _content_name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidType(f"field is {name!r}; write the name of a topic such as 'image'")
    check_prefix(name)
    if "/" in name or is_reserved_field((name,)):
        raise InvalidValue(f"field is {name!r}, which is no name for a topic below a device; write one such as 'image'")
    return name


def _has_deadband(rule: object) -> bool:
    match rule:
        case OnChange():
            return bool(rule.fields) or rule.deadband not in (0.0, "0 %")
        case AnyOf() | AllOf():
            return _has_deadband(rule.left) or _has_deadband(rule.right)
    return False


def filters_of(options: Options) -> "Filters | None":
    """The filters of the fields; None if there are none."""
    if options.get("filters") is None:
        return None
    from leadsman.readings.filtering import check_filters  # only handlers with filters pay for it

    return check_filters(options["filters"])


def backoff_of(options: Options) -> BackoffStrategy:
    """The backoff."""
    return as_backoff(options["backoff"]) if "backoff" in options else DEFAULT_BACKOFF


def breaker_of(options: Options) -> CircuitBreaker | None:
    """The circuit breaker, if there is one."""
    breaker = options.get("circuit_breaker")
    if breaker is None or isinstance(breaker, CircuitBreaker):
        return breaker
    raise InvalidType(f"circuit_breaker is {breaker!r}; write CircuitBreaker(threshold=5), with brackets")


def offline_on_of(options: Options) -> Errors:
    """The errors that make a device offline as soon as it fails; none of one that is only offline when no reading is
    expected soon. Raises `InvalidValue`, `InvalidType`."""
    value = options.get("offline_on", "stale")
    if value == "stale":
        return ()
    if value == "error":
        return ANY_ERROR
    if isinstance(value, type | list | tuple):
        return exception_types(value, "offline_on")
    raise InvalidValue(
        f"offline_on is {value!r}; it must be 'stale' or 'error', or classes of errors such as (DeviceUnavailable,)"
    )


def write_offline_on(errors: Errors) -> "Literal['stale', 'error'] | list[str]":
    """The same as the settings write it."""
    return "stale" if not errors else "error" if errors == ANY_ERROR else [kind.__name__ for kind in errors]


def type_of_readings(
    handler: Handler, field: str | None, finds: "Finds | None", filters: "Filters | None"
) -> ReadingType | None:
    """The type of the readings of a handler and of the devices that it finds, as they come out of its filters; None if
    it is not known."""
    own = reading_type(handler, field)
    if finds is not None:
        found = type_of(finds.readings)
        if own is not None:
            own = own.union(found)
        elif found is not None:
            gives_none = all(kind in (None, NoneType) for kind in result_kinds(handler))
            own = found if gives_none else found.union(None)
    return own if own is None or filters is None else own.filtered(filters)


def finds_of(options: Options, needs: Dependencies) -> "Finds | None":
    """Which devices the handler may find at run time; None if it finds none."""
    if options.get("finds") is None:
        return None
    from leadsman.registration.finds import check_finds  # only handlers that find devices pay for it

    return check_finds(options["finds"], needs)


def labels_of(options: Options) -> frozenset[str]:
    """The labels that a node must have to run the handler, in a cluster."""
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


class DeviceValues(TypedDict):
    """The values of the options of everything with a device, as the fields of its registration."""

    enabled: bool
    title: str | None
    area: str | None
    discoverable: bool
    fields: Presentations
    labels: frozenset[str]


def device_values(options: Options) -> DeviceValues:
    """Check `DeviceOptions`, but for `fixed`. Raises `InvalidType`, `InvalidValue`."""
    return {
        "enabled": enabled_of(options),
        "title": _for_people(options, "title", TITLE),
        "area": _for_people(options, "area", AREA),
        "discoverable": instance_of(options, "discoverable", bool, True, "True or False"),
        "fields": check_fields(options["fields"]) if "fields" in options else NO_PRESENTATIONS,
        "labels": labels_of(options),
    }


class ReadingValues(DeviceValues):
    """The values of the options of everything that gives readings, as the fields of its registration."""

    publish: PublishRule | None
    delivery: Delivery
    layout: Layout
    offline_on: Errors
    finds: "Finds | None"
    filters: "Filters | None"
    content: "ContentField | None"
    field: str | None
    validate_result: ValidateResult | None
    fixed: frozenset[str]


def reading_values(options: Options, handler: Handler, needs: Dependencies) -> ReadingValues:
    """Check `ReadingOptions`, and what the handler is annotated to return.

    Raises:
        InvalidType, InvalidValue: an option is wrong, or does not fit what the handler returns, or that is no reading.
    """
    finds, filters = finds_of(options, needs), filters_of(options)
    field, kind, validate = None, None, None
    if (content := content_of(options, handler)) is None:
        check_result(handler, one_value=True)
        field = field_of(options, handler)
        kind = type_of_readings(handler, field, finds, filters)
        validate = result_validator(handler) if field is None else value_field(field, handler)
    return {
        **device_values(options),
        "publish": publish_of(options, kind),
        "delivery": delivery_of(options),
        "layout": layout_of(options, kind),
        "offline_on": offline_on_of(options),
        "finds": finds,
        "filters": filters,
        "content": content,
        "field": field,
        "validate_result": validate,
        "fixed": fixed_of(options),
    }


def group_of(options: Options) -> str | None:
    """The name of the group, if the handler is in one."""
    group = options.get("group")
    if group is None or (isinstance(group, str) and group.strip()):
        return group
    raise (InvalidValue if isinstance(group, str) else InvalidType)(f"group is {group!r}; write a name such as 'bus'")
