"""The content that a handler returns: bytes that are published as they are. Imported only where a handler does."""

from collections.abc import Mapping
from types import NoneType

from leadsman.errors import InvalidType, InvalidValue
from leadsman.mqtt.topics import check_prefix, is_reserved_field
from leadsman.readings.content import Content, ContentField
from leadsman.readings.publish import AllOf, AnyOf, OnChange
from leadsman.registration.injection import Handler, annotated_result, beside, name_of, result_kinds

NAME = "content"
"""The name of the topic, by default."""
_ABOUT_VALUES = ("filters", "finds")
"""Options that are about values, of which a content has none."""


def check_content(options: Mapping[str, object], handler: Handler) -> ContentField:
    """The content of a handler that is annotated to return bytes.

    Raises:
        InvalidType, InvalidValue: it does not say which, may return something else as well, or has options that are
            about values.
    """
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
    for option in _ABOUT_VALUES:
        if options.get(option) is not None:
            raise InvalidValue(f"{option} is about values, and the handler returns bytes; leave it out")
    if options.get("layout", "json") != "json":
        raise InvalidValue("layout is about values, and the handler returns bytes, which have a topic; leave it out")
    if _has_deadband(options.get("publish")):
        raise InvalidValue("publish has a deadband, and the handler returns bytes, which are equal or not: OnChange()")
    return ContentField(found[0], _name(options.get("field", NAME)))


def _name(name: object) -> str:
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
