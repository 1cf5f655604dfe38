"""Says that the payload of a command sets a lamp or a thermostat, beside its type. Home Assistant then shows one light
or one climate control instead of an entity for each field.

::

    class Lamp(BaseModel):
        on: bool
        brightness: Annotated[int, Field(ge=0, le=100)] | None = None

    @app.command("lamp")
    async def lamp(payload: Annotated[Lamp, Light(brightness="brightness")]) -> Lamp: ...
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leadsman.errors import InvalidType, InvalidValue
from leadsman.value import Value

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

CONTROL = "control"
"""The key in the JSON Schema of a payload: an object with the ``kind`` and the names of the fields."""
MODES = ("auto", "off", "cool", "heat", "dry", "fan_only")
"""Of climate controls in Home Assistant's MQTT integration, without those that need two targets."""


class Light(Value):
    """A lamp. A controller sends `on` alone, or with `brightness`. The fields of the readings with the same names
    show its state.

    Args:
        on: the field that is true while it is on: a bool.
        brightness: the field with its brightness, a number from 0 that may be left out, with its largest value as
            ``Field(le=100)``. A whole number is 1 at least in a lamp that is switched on. None: it cannot be dimmed.

    Raises:
        InvalidType, InvalidValue: when the command is registered: its payload has no such field, the field has another
            type, or another field is required.
    """

    __slots__ = ("brightness", "on")
    on: str
    brightness: str | None

    def __init__(self, *, on: str = "on", brightness: str | None = None) -> None:
        self._hold(**_names(on=on, brightness=brightness))

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Check the payload. Called by pydantic."""
        payload = _Payload("Light", source, [self.on])
        payload.check("on", self.on, "a bool", {"boolean"})
        if self.brightness is not None:
            node = payload.check("brightness", self.brightness, "a number", {"integer", "number"})
            if not node.get("maximum", 0) > 0:
                raise InvalidValue(
                    f"Light: {self.brightness!r} has no largest value; write Annotated[int, Field(ge=0, le=100)]"
                )
        return handler(source)

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add it to the JSON Schema of the payload. Called by pydantic."""
        return handler(core_schema) | {CONTROL: {"kind": "light", "on": self.on, "brightness": self.brightness}}


class Climate(Value):
    """A thermostat. A controller sends `target` or `mode` alone. The fields of the readings with the same names show
    its state.

    Args:
        target: the field with the temperature that is wanted: a number, with its limits as ``Field(ge=5, le=30)``. It
            is in °C, unless a `Sensor` says °F.
        mode: the field with what it does: a ``Literal`` of some of ``"auto"``, ``"off"``, ``"cool"``, ``"heat"``,
            ``"dry"`` and ``"fan_only"``. None: it heats.
        current: the field of the readings with the temperature that is measured. None: it is not shown with the target.

    Raises:
        InvalidType, InvalidValue: when the command is registered: its payload has no such field, the field has another
            type, or it cannot be left out.
    """

    __slots__ = ("current", "mode", "target")
    target: str
    mode: str | None
    current: str | None

    def __init__(self, *, target: str = "target", mode: str | None = None, current: str | None = None) -> None:
        self._hold(**_names(target=target, mode=mode, current=current))

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Check the payload. Called by pydantic."""
        payload = _Payload("Climate", source, [self.target] if self.mode is None else [])
        node = payload.check("target", self.target, "a number", {"integer", "number"})
        if node.get("unit", "°C") not in ("°C", "°F"):
            raise InvalidValue(f"Climate: {self.target!r} is in {node['unit']}; it must be in °C or °F")
        if self.mode is not None:
            modes = payload.check("mode", self.mode, "a Literal", {"string"})
            wrong = [each for each in modes.get("enum", [modes.get("const")]) if each not in MODES]
            if wrong:
                raise InvalidValue(f"Climate: {self.mode!r} may be {wrong[0]!r}; take some of {', '.join(MODES)}")
        return handler(source)

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add it to the JSON Schema of the payload. Called by pydantic."""
        fields = {"target": self.target, "mode": self.mode, "current": self.current}
        return handler(core_schema) | {CONTROL: {"kind": "climate", **fields}}


def _names(**fields: str | None) -> dict[str, str | None]:
    for role, name in fields.items():
        if name is not None and not isinstance(name, str):
            raise InvalidType(f"{role} is {name!r}; write the name of a field")
    return fields


class _Payload:
    """The JSON Schema of a payload. Raises `InvalidValue` if fields but those in `may_be_required` are required."""

    def __init__(self, control: str, source: Any, may_be_required: Iterable[str]) -> None:
        from pydantic import TypeAdapter  # only payloads with a control pay for it

        self._control = control
        self._name = getattr(source, "__name__", repr(source))
        schema: Mapping[str, Any] = TypeAdapter(source).json_schema(mode="validation")
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        schema = self._resolved(schema)
        self._fields: Mapping[str, Any] = schema.get("properties", {})
        required = [each for each in schema.get("required", []) if each not in may_be_required]
        if required:
            raise InvalidValue(
                f"{control}: {required[0]!r} of {self._name} is required; give it a default, such as None"
            )

    def check(self, role: str, name: str, wanted: str, types: set[str]) -> Mapping[str, Any]:
        """The schema of a field, of one type besides None."""
        if name not in self._fields:
            known = ", ".join(self._fields) or "no fields"
            raise InvalidValue(
                f"{self._control}: {role} is {name!r}, which is not a field of {self._name}; it has {known}"
            )
        outer = self._resolved(self._fields[name])
        found = [self._resolved(each) for each in outer.get("anyOf", [outer])]
        found = [each for each in found if each.get("type") != "null"]
        if len(found) != 1 or found[0].get("type") not in types:
            raise InvalidType(f"{self._control}: {role} is {name!r}, which must be {wanted} in {self._name}")
        return {**found[0], **{key: value for key, value in outer.items() if key != "anyOf"}}

    def _resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" not in node:
            return node
        inner = self._definitions[node["$ref"].rsplit("/", 1)[-1]]
        return {**inner, **{key: value for key, value in node.items() if key != "$ref"}}
