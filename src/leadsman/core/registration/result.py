"""The result of a handler, where its annotation names a pydantic model or one value: a dict that it returns must be
such a model, and a value, which must be as it is annotated, becomes the one field of a reading.

A type checker finds a wrong dict only where it sees its parts. Subscribers rely on the schema of the topic, which is
made from the annotation.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal, get_origin

from leadsman.core.readings.sensor import Sensor
from leadsman.core.registration.annotation import Annotation, kept, result_of
from leadsman.core.registration.injection import Handler, name_of
from leadsman.core.text import clean, describe
from leadsman.errors import InvalidType, ResultError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

ValidateResult = Callable[[object], object]
"""Converts a dict to the model that the handler is annotated to return; leaves anything else as it is. Raises
`ResultError`."""


FIELD = "value"
"""The name of the field of a reading of one value, by default."""
ONE_VALUE = (float, int, str, bool)
"""The types of a reading of one value."""
_NO_READING = (bytes, complex, list, tuple, set, frozenset)


@kept
def check_result(handler: Handler, *, one_value: bool = False) -> None:
    """Check the annotated result of a handler: it must be a possible reading. An annotation that cannot be evaluated
    is accepted.

    Args:
        handler: the handler.
        one_value: whether a number, a boolean or text is a possible reading, too.

    Raises:
        InvalidType: the annotation is something else, such as a list.
    """
    result = result_of(handler)
    for kind in result.kinds:
        bare = get_origin(kind) or kind
        if bare in _NO_READING or (bare in ONE_VALUE and not one_value):
            name = getattr(bare, "__name__", repr(bare))
            raise InvalidType(
                f"the handler {name_of(handler)} is annotated to return {name}; "
                "return a dict such as {'value': 21.5}, a dataclass, a pydantic model, or None"
            )
    for check in checks_of_reading(result):
        check(result.whole)


def checks_of_reading(annotation: Annotation) -> list[Callable[[object], None]]:
    """The checks of what stands beside the type of a reading, such as `leadsman.Update`. They take the annotation, and
    raise `InvalidType`."""
    checks = []
    for each in annotation.beside:
        if hasattr(each, "check_reading"):
            if isinstance(each, type):
                raise InvalidType(f"a class stands beside a type; write it with brackets: {each.__name__}()")
            checks.append(each.check_reading)
    return checks


@kept
def returns_one_value(handler: Handler) -> bool:
    """Whether a handler is annotated to return or to yield a number, a boolean or text, and nothing else but None."""
    kinds = result_of(handler).kinds
    return bool(kinds) and all(
        kind in ONE_VALUE or get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum))
        for kind in kinds
    )


@kept
def value_field(field: str, handler: Handler) -> ValidateResult:
    """A function that makes a reading with one field of the values of a handler, which must be as it is annotated."""
    one = (*ONE_VALUE, Enum)
    result_type = result_of(handler)
    limited = any(not isinstance(each, Sensor) for each in result_type.beside)
    plain = () if limited else tuple(kind for kind in result_type.kinds if isinstance(kind, type))
    adapters: list[TypeAdapter[object]] = []

    def validate(result: object) -> object:
        if isinstance(result, plain) and (type(result) is not bool or bool in plain):
            return {field: result}
        kind = type(result).__name__
        if not isinstance(result, one):
            raise ResultError(
                f"the handler returned a {kind}, and {name_of(handler)} is annotated to return one value; fix one of"
                " them"
            )
        if type(result) is int and float in plain:
            return {field: result}
        from pydantic import TypeAdapter  # only limits, choices and wrong values need it

        if not adapters:
            adapters.append(TypeAdapter(result_type.whole))
        value, found = _validated(adapters[0], result)
        if found:
            raise ResultError(
                f"the handler returned a {kind} that is not what {name_of(handler)} is annotated to return: {found};"
                " fix one of them"
            )
        return {field: value}

    return validate


def _validated(adapter: "TypeAdapter[object]", result: object) -> tuple[object, str]:
    """What pydantic makes of a result, and what it found wrong with it; empty if it is right."""
    from pydantic import ValidationError

    try:
        return adapter.validate_python(result), ""
    except ValidationError as error:
        return None, reasons(error.errors(include_url=False))
    except Exception as error:  # a validator of the user's own
        return None, f"{type(error).__name__}: {describe(error)}"


@kept
def result_validator(handler: Handler) -> ValidateResult | None:
    """The function that validates the dicts that a handler returns or yields; None if its annotation does not name
    pydantic models, or names something else beside them."""
    models: tuple[Any, ...] = result_of(handler).kinds
    if not models or not all(isinstance(kind, type) and hasattr(kind, "model_validate") for kind in models):
        return None
    return _validator(reduce(or_, models), " or ".join(str(kind.__name__) for kind in models))


def _validator(annotation: Any, names: str) -> ValidateResult:
    from pydantic import TypeAdapter  # an app with a model has it already

    adapter: TypeAdapter[object] = TypeAdapter(annotation)

    def validate(result: object) -> object:
        if not isinstance(result, Mapping):
            return result
        value, found = _validated(adapter, result)
        if found:
            raise ResultError(
                f"the handler returned a dict that is not a valid {names}: {found}; fix it, or annotate dict"
            )
        return value

    return validate


def reasons(errors: "Sequence[ErrorDetails]") -> str:
    """The errors that pydantic found, in one line."""
    lines = []
    for error in errors[:3]:
        where = ".".join(str(part) for part in error["loc"])
        lines.append(f"{where}: {error['msg']}" if where else str(error["msg"]))
    more = f" and {len(errors) - 3} more" if len(errors) > 3 else ""
    return clean("; ".join(lines) + more)
