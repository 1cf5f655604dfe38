"""The options that telemetry, sources, events and commands have in common; and what follows from several of them, and
from what the handler is annotated to return."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from leadsman.core.loop.durations import whole
from leadsman.core.mqtt.message import STANDARD, Delivery
from leadsman.core.mqtt.topics import check_prefix, is_reserved_field
from leadsman.core.readings import publish
from leadsman.core.readings.publish import AllOf, AnyOf, OnChange, PublishRule
from leadsman.core.readings.reading import LAYOUTS, Layout
from leadsman.core.readings.sensor import NO_PRESENTATIONS, Presentations, check_fields
from leadsman.core.registration.annotation import result_of
from leadsman.core.registration.declaration import (
    POSITIVE_SECONDS,
    SWITCH,
    Check,
    Option,
    Options,
    as_given,
    instance_of,
    or_none,
)
from leadsman.core.registration.injection import ContextDependency, Dependencies, Handler, name_of
from leadsman.core.registration.reading_type import ReadingType, reading_type, type_of
from leadsman.core.registration.result import FIELD, check_result, result_validator, returns_one_value, value_field
from leadsman.core.resilience.backoff import DEFAULT_BACKOFF, as_backoff
from leadsman.core.resilience.breaker import CircuitBreaker
from leadsman.core.resilience.failure import exception_types
from leadsman.core.settings.sections import MAX_LABEL_CHARS
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from leadsman.core.readings.content import ContentField
    from leadsman.core.readings.filtering import Filters
    from leadsman.core.readings.filters import FilterList
    from leadsman.core.registration.finds import Finds

OfflineOn = Literal["stale", "error"] | type[Exception] | Sequence[type[Exception]]
"""What makes a device offline, as a decorator takes it."""
Errors = tuple[type[BaseException], ...]
ANY_ERROR: Errors = (BaseException,)
"""What makes a device offline that is offline with each failure."""


def _labels(given: object, name: str) -> frozenset[str]:
    """The labels that a node must have to run the handler, in a cluster."""
    labels = [given] if isinstance(given, str) else given
    if not isinstance(labels, list | tuple | set | frozenset) or not all(isinstance(each, str) for each in labels):
        raise InvalidType(f"{name} is {given!r}; write a label such as 'ble', or a list of them")
    for label in labels:
        if not 0 < len(label) <= MAX_LABEL_CHARS or not label.isprintable() or "," in label:
            raise InvalidValue(
                f"{name} has the label {label!r}; write 1 to {MAX_LABEL_CHARS} printable characters without a comma, "
                "such as 'ble' or 'serial:/dev/serial/by-id/…'"
            )
    return frozenset(labels)


def _for_people(example: str) -> Check:
    """A check of a text that people read; `example` is what to write."""

    def check(text: object, name: str) -> str:
        if isinstance(text, str) and text.strip() and text.isprintable():
            return text
        raise (InvalidValue if isinstance(text, str) else InvalidType)(f"{name} is {text!r}; write {example}")

    return or_none(check)


def check_fixed(given: object, name: str) -> frozenset[str]:
    """The names of options that the settings must not change. Raises `InvalidType`."""
    if not isinstance(given, set | frozenset | list | tuple) or not all(isinstance(each, str) for each in given):
        raise InvalidType(f"{name} is {given!r}; write a set of options, such as {{'interval'}}")
    return frozenset(given)


def _breaker(breaker: object, name: str) -> CircuitBreaker:
    if isinstance(breaker, CircuitBreaker):
        return breaker
    raise InvalidType(f"{name} is {breaker!r}; write CircuitBreaker(threshold=5), with brackets")


def _presentations(fields: object, _: str) -> Presentations:
    return check_fields(fields)


def _rule(rule: object, _: str) -> PublishRule:
    return publish.check_rule(rule)


def _layout(given: object, name: str) -> Layout:
    for layout in LAYOUTS:
        if layout == given:
            return layout
    raise InvalidValue(f"{name} is {given!r}; {suggestion(str(given), LAYOUTS)}")


def _offline_on(value: object, name: str) -> Errors:
    """The errors that make a device offline as soon as it fails; none of one that is only offline when no reading is
    expected soon."""
    if value == "stale":
        return ()
    if value == "error":
        return ANY_ERROR
    if isinstance(value, type | list | tuple):
        return exception_types(value, name)
    raise InvalidValue(
        f"{name} is {value!r}; it must be 'stale' or 'error', or classes of errors such as (DeviceUnavailable,)"
    )


def _finds(given: object, name: str) -> "Finds":
    from leadsman.core.registration.finds import Finds  # only handlers that find devices need it

    if not isinstance(given, Finds):
        raise InvalidType(f"{name} is {given!r}; write Finds(Model, most=100)")
    return given


def _filters(given: object, _: str) -> "Filters":
    from leadsman.core.readings.filtering import check_filters  # only handlers with filters need it

    return check_filters(given)


def _group(group: object, name: str) -> str:
    if isinstance(group, str) and group.strip():
        return group
    raise (InvalidValue if isinstance(group, str) else InvalidType)(f"{name} is {group!r}; write a name such as 'bus'")


def queue(default: int) -> Option:
    """How many messages may wait behind the one that is handled."""
    kind = f"write a whole number such as {default}"
    return Option(lambda given, name: whole(given, name, 1, kind=kind), default, as_it_is=True)


BACKOFF = Option(as_backoff, DEFAULT_BACKOFF, "backoff", replaces=("policy",))
GROUP = Option(or_none(_group), as_it_is=True)
TIMEOUT = Option(or_none(POSITIVE_SECONDS), notation="number or off", as_it_is=True)
STALE_AFTER = Option(or_none(POSITIVE_SECONDS), notation="number or off", of_found=True, as_it_is=True)
_ABOUT_DEVICE = Option(as_given, of_topics=True, of_found=True)


class DeviceOptions(TypedDict, total=False):
    """The options that everything with a device has."""

    needs: Annotated[str | Sequence[str], Option(_labels, frozenset())]
    """What a node of a cluster must have to run this: one label or several, such as ``"ble"`` or
    ``"serial:/dev/serial/by-id/…"``. Default: every node can. Without ``[cluster]`` it changes nothing."""
    title: Annotated[
        str | None,
        _ABOUT_DEVICE._replace(
            check=_for_people("a name for people, such as 'Bathroom'"), notation="text", setting="name"
        ),
    ]
    """The name of the device for people, in Home Assistant and introspection, such as ``"Bathroom"``. Its topics
    do not change. Of several devices, each has its own: ``Device(title="Bathroom")``. Default: its name."""
    area: Annotated[
        str | None,
        _ABOUT_DEVICE._replace(check=_for_people("the name of a room or a place, such as 'Attic'"), notation="text"),
    ]
    """The room or the place that Home Assistant suggests for the device, such as ``"Attic"``. Of several devices, each
    has its own: ``Device(area="Attic")``. Default None: it suggests none."""
    discoverable: Annotated[bool, _ABOUT_DEVICE._replace(check=SWITCH, default=True, notation="switch")]
    """False: the device is not announced to Home Assistant. Default True."""
    fields: Annotated[
        Mapping[str, Mapping[str, object]],
        _ABOUT_DEVICE._replace(check=_presentations, default=NO_PRESENTATIONS, notation="presentations"),
    ]
    """What people see of fields, by their names: ``{"flow": {"name": "Flow", "icon": "mdi:water"}}``. The options are
    ``name``, ``icon``, ``category``, ``discoverable`` and ``homeassistant`` of `leadsman.Sensor`, and each of them
    beats the one there. Of several devices, each may have its own: ``Device(fields=…)``. Default: as the
    types define."""
    enabled: Annotated[bool, Option(SWITCH, True, "switch", of_found=True, as_it_is=True)]
    """False registers the handler without running it. Default True."""
    fixed: Annotated[Collection[str], Option(check_fixed, frozenset(), of_settings=True)]
    """The options that the settings must not change for this device and those that its handler finds, by their names in
    the section ``devices``, such as ``{"interval"}``. Default: none."""


class PublishingOptions(DeviceOptions, total=False):
    """The options of what gives readings or events."""

    circuit_breaker: Annotated[CircuitBreaker | None, Option(or_none(_breaker), notation="breaker or off")]
    """Pause a device that fails repeatedly. Default None."""
    publish: Annotated[
        PublishRule | None,
        Option(or_none(_rule), notation="rule or off", of_topics=True, of_found=True),
    ]
    """Which readings are published. None: all of them. Default: all of them, or, where a `Sensor` of the readings has a
    deadband, those that changed by more than it. Of events all of them, whatever a `Sensor` has."""
    delivery: Annotated[Delivery, Option(instance_of(Delivery, "Delivery(keep='newest')"), STANDARD, of_topics=True)]
    """The quality of service of readings, the retain flag, and which of those that wait arrive. Default ``Delivery()``:
    QoS 1, all of them, the newest retained. An event is never retained."""
    offline_on: Annotated[OfflineOn, Option(_offline_on, (), "word or errors", of_topics=True)]
    """When the device's availability is ``offline``: with ``"stale"`` while no reading is expected soon, that is, while
    it is held, its circuit is open, or it is stale; with ``"error"`` also from its first failure on; with classes of
    errors, such as ``DeviceUnavailable``, also from its first failure with one of these on. The devices that it finds
    follow it. Default ``"stale"``; for events ``"error"``."""
    finds: Annotated["Finds | None", Option(or_none(_finds))]
    """Which devices the handler may find while the app runs; see `Context.device`. Default None: it finds none."""


class ReadingOptions(PublishingOptions, total=False):
    """The options of what gives readings."""

    field: Annotated[str, Option(as_given, of_topics=True)]
    """The name of the field of a handler that is annotated to return one value, such as ``-> float``: that is published
    as ``{"value": …}``. Default ``"value"``. Of one that returns a `Content`: the name of its topic. Default
    ``"content"``."""
    filters: Annotated["Mapping[str, FilterList | Mapping[str, FilterList]]", Option(or_none(_filters), of_topics=True)]
    """The filters of fields, in the order in which they are applied: ``{"temperature": [Median(5), Round(1)]}``. A dict
    in place of a list has several outputs: ``{"power": {"power_mean": [Mean("1m")], "power_max": [Maximum("1m")]}}``. A
    `Sensor` at the end of a list describes what the output measures. Nested fields have dots. Default: none."""
    layout: Annotated[Layout, Option(_layout, "json", "text", of_topics=True, of_found=True)]
    """``"json"`` publishes a reading as one object at ``{prefix}/{device}/state``, ``"fields"`` each of its values as
    plain text at ``{prefix}/{device}/{field}``, and ``"both"`` both. Default ``"json"``."""


def layout_for(layout: Layout, kind: ReadingType | None) -> Layout:
    """The layout of readings of a type. A field that is not known before is escaped.

    Raises:
        InvalidValue: a field of the type would have the topic of another meaning.
    """
    for name in kind.fields if kind is not None and layout != "json" else ():
        if is_reserved_field(name.split(".")):
            raise InvalidValue(
                f"layout is {layout!r}, and the topic of the field {name!r} would be one of leadsman's own; rename the"
                f" field, such as to {name + '_value'!r}, or write layout='json'"
            )
    return layout


def publish_for(rule: PublishRule | None, kind: ReadingType | None, *, given: bool) -> PublishRule | None:
    """The publish rule of readings of a type, with the deadbands that stand beside their fields.

    Args:
        rule: that of the registration; None publishes every reading.
        kind: the type of the readings; None if it is not known.
        given: whether somebody wrote it. Where None was written, every reading is published.

    Raises:
        InvalidValue: it names a field that the readings do not have.
    """
    if kind is None or (rule is None and given):
        return rule
    kind.check(publish.deadband_fields(rule), "publish")
    return publish.add_deadbands(rule, kind.deadbands)


def _field_of(options: Options, handler: Handler) -> str | None:
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
    return bytes in result_of(handler).kinds


def _content_of(options: Options, handler: Handler) -> "ContentField | None":
    """The content that a handler is annotated to return, with the name of its topic; None if it returns no bytes.

    Raises:
        InvalidType, InvalidValue: it does not name which, may return something else as well, or has options that are
            about values.
    """
    if not returns_bytes(handler):
        return None
    from leadsman.core.readings.content import Content, ContentField  # only handlers with a content need it

    result = result_of(handler)
    found = [each for each in result.beside if isinstance(each, Content)]
    if not found:
        raise InvalidType(
            f"the handler {name_of(handler)} is annotated to return bytes; say what they are: "
            "Annotated[bytes, Content('image/jpeg')]"
        )
    if len(found) > 1 or any(kind is not bytes for kind in result.kinds):
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
            own = found.union(None) if result_of(handler).kinds else found
    return own if own is None or filters is None else own.filtered(filters)


def reading_values(
    values: Mapping[str, Any], options: Options, handler: Handler, needs: Dependencies
) -> dict[str, Any]:
    """The fields of a registration that follow from several options, or from what its handler is annotated to return.

    Args:
        values: the values of all options.
        options: what of them is given.
        handler: gives the readings.
        needs: what it asks for.

    Raises:
        InvalidType, InvalidValue: an option does not fit what the handler returns or asks for, or that is no reading.
    """
    finds, filters = values["finds"], values["filters"]
    if finds is not None and not any(isinstance(need, ContextDependency) for _, need in needs):
        raise InvalidValue("finds needs context.device(…); give the handler a parameter of the type Context")
    field, kind, validate = None, None, None
    if (content := _content_of(options, handler)) is None:
        check_result(handler, one_value=True)
        field = _field_of(options, handler)
        kind = type_of_readings(handler, field, finds, filters)
        validate = result_validator(handler) if field is None else value_field(field, handler)
    return {
        "publish": publish_for(values["publish"], kind, given="publish" in options),
        "layout": layout_for(values["layout"], kind),
        "content": content,
        "field": field,
        "validate_result": validate,
    }
