"""The options of `@app.command`, and the conversion of a request to the argument of its handler.

A command is executed once and never repeated, since an attempt that failed may have moved the valve. So commands have
no retry and no breaker. The result is published at ``{prefix}/{device}/set/result``, separate from the device's state.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

from leadsman.core.loop.durations import Duration
from leadsman.core.mqtt.answers import Json, is_finite
from leadsman.core.readings.sensor import NO_PRESENTATIONS, Presentations
from leadsman.core.registration.annotation import read
from leadsman.core.registration.declaration import NO_VALUES, NONE, Option, Options, carried, checked, is_second
from leadsman.core.registration.injection import (
    Dependencies,
    Dependency,
    Handler,
    is_async,
    needs_and_payload,
    parameter_with_default,
)
from leadsman.core.registration.options import GROUP, TIMEOUT, DeviceOptions, queue
from leadsman.core.registration.result import ValidateResult, check_result, checks_of_reading, reasons, result_validator
from leadsman.core.text import describe
from leadsman.errors import InvalidType, InvalidValue, PayloadError

DEFAULT_TIMEOUT = 30.0
"""Seconds."""
DEFAULT_QUEUE = 16
"""Commands that may wait behind the running one."""

NO_OBJECT = frozenset({"model_type", "model_attributes_type", "dict_type", "dataclass_type"})
"""The types of pydantic's errors for a value that is no object, where one is needed."""

Validate = Callable[[Json], object]
"""Converts decoded JSON to the type of a parameter. Raises `PayloadError`."""


class CommandOptions(DeviceOptions, total=False):
    """The options of `@app.command`, with those of `DeviceOptions`."""

    timeout: Annotated[Duration | None, TIMEOUT._replace(default=DEFAULT_TIMEOUT)]
    """The longest time for one call. Default 30 s; None: no limit."""
    queue: Annotated[int, queue(DEFAULT_QUEUE)]
    """How many commands may wait behind the running one, 1 or more. Default 16."""
    when_full: Annotated[Literal["reject", "drop-oldest"], Option(is_second("reject", "drop-oldest"), False)]
    """Which command is refused when the queue is full: the new one (``"reject"``, default), or the one that has
    waited longest. Its sender gets an error."""
    group: Annotated[str | None, GROUP]
    """A group name. Commands take turns with the polls and commands of this group. Default None."""


class Command(NamedTuple):
    """One registered command."""

    name: str
    handler: Handler
    needs: Dependencies
    plain: bool
    payload: str | None
    """The parameter that gets the payload; None when the handler takes none."""
    annotation: object
    validate: Validate | None
    timeout: float | None
    queue: int
    drop_oldest: bool
    group: str | None
    enabled: bool
    validate_result: ValidateResult | None
    title: str | None = None
    """The name of its device for people; None if that is its name."""
    area: str | None = None
    """The area that is suggested for its device; None suggests none."""
    fields: Presentations = NO_PRESENTATIONS
    """How its fields are shown to people, where not as their types define."""
    discoverable: bool = True
    """Whether its device is announced to Home Assistant."""
    labels: frozenset[str] = frozenset()
    """The labels that a node must have to execute it, in a cluster."""
    of_extensions: Options = NO_VALUES
    """The options that extensions add."""

    @property
    def kind(self) -> Literal["command"]:
        """The decorator."""
        return "command"


def register_command(
    name: str,
    handler: Handler,
    options: CommandOptions,
    available: Sequence[Dependency],
    further: Mapping[str, Option] = NONE,
) -> Command:
    """Check one registration, which may have further options, of extensions. Raises `InvalidType`, `InvalidValue`."""
    values = checked(options, CommandOptions, further)
    plain = not is_async(handler)
    check_result(handler)
    needs, payload = needs_and_payload(handler, available)
    fields = {
        **carried(values, Command),
        "name": name,
        "handler": handler,
        "needs": needs,
        "plain": plain,
        "payload": payload.name if payload else None,
        "annotation": payload.annotation if payload else None,
        "validate": payload_validator(payload.annotation, payload.name) if payload else None,
        "drop_oldest": values["when_full"],
        "validate_result": result_validator(handler),
        "labels": values["needs"],
    }
    return Command(**fields)


def payload_validator(annotation: Any, parameter: str) -> Validate:
    """The function that converts a payload to the annotated type of a parameter.

    Raises:
        InvalidType: the annotation is no type of a payload.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError  # only apps with commands need it

    if checks_of_reading(read(annotation)):
        raise InvalidType(
            f"what stands beside the type of the parameter {parameter!r} is for readings; write it beside what the "
            "handler returns, such as -> Annotated[Release, Update()]"
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except PydanticUserError:
        name = getattr(annotation, "__name__", repr(annotation))
        raise InvalidType(
            f"the parameter {parameter!r} asks for {name}, which is neither an adapter of the app nor a type of a "
            "payload; add it to App(adapters=…), or annotate a pydantic model, int, float, bool, str or Literal"
        ) from None

    def validate(value: Json) -> object:
        try:
            valid = adapter.validate_python(value)
        except ValidationError as error:
            found = error.errors(include_url=False)
            no_object = not found[0]["loc"] and found[0]["type"] in NO_OBJECT
            raise PayloadError("send a JSON object" if no_object else reasons(found)) from None
        except Exception as error:  # a validator of the user's own
            raise PayloadError(f"{type(error).__name__}: {describe(error)}") from error
        if not is_finite(valid):  # pydantic reads the text "nan" as a number
            raise PayloadError("the payload contains NaN or an infinite number")
        return valid

    return validate


class RequestPayload(NamedTuple):
    """The payload that a handler that is polled takes from a request at ``get``. Its other polls have the default."""

    payload: str
    """The parameter that gets it."""
    annotation: object
    validate: Validate


def request_payload(handler: Handler, name: object) -> RequestPayload:
    """The parameter of this name as the payload of a request.

    Raises:
        InvalidType, InvalidValue: the handler has no such parameter, it has no default, its type is not that of a
        payload,
            or its default does not fit its type.
    """
    parameter, default = parameter_with_default(handler, name, "request")
    validate = payload_validator(parameter.annotation, parameter.name)
    try:
        validate(default)
    except PayloadError as error:
        raise InvalidValue(f"the default of the parameter {parameter.name!r} does not fit its type: {error}") from None
    return RequestPayload(parameter.name, parameter.annotation, validate)


def convert_payload(parameter: str | None, validate: Validate | None, value: Json, text: bytes) -> dict[str, object]:
    """Convert the payload to the handler's argument, by name; none without a parameter that takes it.

    If the handler wants text, and JSON decoded a number or a boolean, the handler gets the text as it was sent. If its
    type allows None, and no empty text, an empty message is None.

    Raises:
        PayloadError: the payload does not match the handler's annotation.
    """
    if parameter is None or validate is None:
        return {}
    try:
        return {parameter: validate(value)}
    except PayloadError:
        if text and isinstance(value, str | dict | list):
            raise
        with suppress(PayloadError):
            return {parameter: validate(text.decode() if text else None)}
        raise
