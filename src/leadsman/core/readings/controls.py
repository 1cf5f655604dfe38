"""Declares that the payload of a command sets a lamp, a thermostat, a cover, a fan, a lock, a siren or a valve, beside
its type; or that a reading shows the versions of a program. Home Assistant then shows one control instead of an entity
for each field.

::

    class Lamp(BaseModel):
        on: bool
        brightness: Annotated[int, Field(ge=0, le=100)] | None = None

    @app.command("lamp")
    async def lamp(payload: Annotated[Lamp, Light(brightness="brightness")]) -> Lamp: ...
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

CONTROL = "control"
"""The key in the JSON Schema of a payload: an object with the ``kind`` and the names of the fields."""
MODES = ("auto", "off", "cool", "heat", "dry", "fan_only")
"""Of climate controls in Home Assistant's MQTT integration, without those that need two targets."""


_Schema = Mapping[str, Any]
"""A JSON Schema."""


class _Role(NamedTuple):
    """The requirements of a field of a control."""

    wanted: str
    types: Collection[str]
    """Of JSON Schema."""
    largest: float | None = None
    """Its largest value must be known, and be this or more; None: it need not be known."""
    least: int = 0
    """Of whole numbers with a largest value: a controller sends each from this one on."""
    both: bool = False
    """Whether a controller sends both values of a bool."""


_BUTTON = _Role("a bool", ("boolean",))
_SWITCH = _Role("a bool", ("boolean",), both=True)
_NUMBER = _Role("a number", ("integer", "number"))
_SHARE = _Role("a number", ("integer", "number"), largest=0, least=1)
_STEPS = _Role("a whole number", ("integer",), largest=1)
_SPEEDS = _Role("a whole number", ("integer",), largest=2)
_CHOICE = _Role("a Literal", ("string",))
_TEXT = _Role("text", ("string",))
KINDS: Mapping[str, Mapping[str, _Role]] = {
    "climate": {"target": _NUMBER, "mode": _CHOICE},
    "cover": {"position": _STEPS, "stop": _BUTTON},
    "fan": {"on": _SWITCH, "speed": _SPEEDS},
    "light": {"on": _SWITCH, "brightness": _SHARE},
    "lock": {"locked": _SWITCH},
    "siren": {"on": _SWITCH},
    "update": {"installed": _TEXT, "latest": _TEXT},
    "valve": {"position": _STEPS},
}
"""The kinds of controls, with the fields of each that a command sets; of ``update``, with those that a reading
shows."""


class _Control(Value):
    """A control. Its attributes are the names of its fields, by their roles."""

    __slots__: tuple[str, ...] = ()

    def _may_be_required(self, given: Sequence[str]) -> Sequence[str] | None:
        """The fields that every payload may have: the only one, since a controller sends each of several alone. None:
        any."""
        return given if len(given) == 1 else ()

    def _check(self, payload: "_Payload", found: Mapping[str, _Schema]) -> None:
        """Check what is particular to the kind; `found` has the schemas of the fields, by their roles."""

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Check the payload. Called by pydantic."""
        roles = KINDS[self._kind]
        given: dict[str, str | None] = {role: getattr(self, role) for role in roles}
        names = {role: name for role, name in given.items() if name is not None}
        payload = _Payload(type(self).__name__, source, self._may_be_required([*names.values()]))
        self._check(payload, {role: payload.check(role, name, roles[role]) for role, name in names.items()})
        return handler(source)

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add it to the JSON Schema of the payload. Called by pydantic."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return handler(core_schema) | {CONTROL: {"kind": self._kind, **fields}}

    @property
    def _kind(self) -> str:
        return type(self).__name__.lower()


class Light(_Control):
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

    def _may_be_required(self, given: Sequence[str]) -> Sequence[str]:
        return (self.on,)


class Climate(_Control):
    """A thermostat. A controller sends `target` or `mode` alone. The fields of the readings with the same names show
    its state.

    Args:
        target: the field with the temperature that is wanted: a number, with its limits as ``Field(ge=5, le=30)``. It
            is in °C, unless a `Sensor` has °F.
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

    def _check(self, payload: "_Payload", found: Mapping[str, _Schema]) -> None:
        unit = found["target"].get("unit", "°C")
        if unit not in ("°C", "°F"):
            raise InvalidValue(f"Climate: {self.target!r} is in {unit}; it must be in °C or °F")
        modes = found.get("mode", {"enum": []})
        wrong = [each for each in modes.get("enum", [modes.get("const")]) if each not in MODES]
        if wrong:
            raise InvalidValue(f"Climate: {self.mode!r} may be {wrong[0]!r}; take some of {', '.join(MODES)}")


class Cover(_Control):
    """A shutter, a blind, a garage door. A controller sends `position` or `stop` alone. The field of the readings with
    the name of `position` shows where it is; without it, it can only be opened and closed.

    Args:
        position: the field with its position, a whole number from 0, closed, to its largest value, open, as
            ``Field(ge=0, le=100)``.
        stop: the field that is true to stop it: a bool. None: it cannot be stopped.

    Raises:
        InvalidType, InvalidValue: as `Climate`.
    """

    __slots__ = ("position", "stop")
    position: str
    stop: str | None

    def __init__(self, *, position: str = "position", stop: str | None = None) -> None:
        self._hold(**_names(position=position, stop=stop))


class Fan(_Control):
    """A fan. A controller sends `on` or `speed` alone. The fields of the readings with the same names show its state.

    Args:
        on: the field that is true while it is on: a bool.
        speed: the field with its speed, a whole number from 1 to its largest value, 2 or more, as
            ``Field(ge=0, le=3)``; Home Assistant shows a percentage. None: it has one speed.

    Raises:
        InvalidType, InvalidValue: as `Climate`.
    """

    __slots__ = ("on", "speed")
    on: str
    speed: str | None

    def __init__(self, *, on: str = "on", speed: str | None = None) -> None:
        self._hold(**_names(on=on, speed=speed))


class Lock(_Control):
    """A lock. The field of the readings with the same name shows its state.

    Args:
        locked: the field that is true while it is locked: a bool.

    Raises:
        InvalidType, InvalidValue: as `Climate`.
    """

    __slots__ = ("locked",)
    locked: str

    def __init__(self, *, locked: str = "locked") -> None:
        self._hold(**_names(locked=locked))


class Siren(_Control):
    """A siren. The field of the readings with the same name shows its state.

    Args:
        on: the field that is true while it sounds: a bool.

    Raises:
        InvalidType, InvalidValue: as `Climate`.
    """

    __slots__ = ("on",)
    on: str

    def __init__(self, *, on: str = "on") -> None:
        self._hold(**_names(on=on))


class Update(_Control):
    """The versions of a program or a firmware, beside the type of a reading: ``-> Annotated[Release, Update()]``. Home
    Assistant shows whether there is a newer version. leadsman asks nobody for it: the handler does.

    Args:
        installed: the field with the version that runs: text.
        latest: the field with the newest version that there is: text, or None while that is not known.

    Raises:
        InvalidType, InvalidValue: when the handler is registered: its reading has no such field, or the field has
            another type. Also if it stands beside the payload of a command.
    """

    __slots__ = ("installed", "latest")
    installed: str
    latest: str

    def __init__(self, *, installed: str = "installed", latest: str = "latest") -> None:
        self._hold(**_names(installed=installed, latest=latest))

    def _may_be_required(self, given: Sequence[str]) -> None:
        return

    def check_reading(self, annotation: Any) -> None:
        """See that readings of this type have both fields. Called at the registration. Raises `InvalidType`,
        `InvalidValue`."""
        from pydantic import TypeAdapter  # only readings with versions need it

        TypeAdapter(annotation)


class Valve(_Control):
    """A valve. The field of the readings with the same name shows its position.

    Args:
        position: the field with its position, a whole number from 0, closed, to its largest value, open, as
            ``Field(ge=0, le=100)``.

    Raises:
        InvalidType, InvalidValue: as `Climate`.
    """

    __slots__ = ("position",)
    position: str

    def __init__(self, *, position: str = "position") -> None:
        self._hold(**_names(position=position))


def _names(**fields: str | None) -> dict[str, str | None]:
    for role, name in fields.items():
        if name is not None and not isinstance(name, str):
            raise InvalidType(f"{role} is {name!r}; write the name of a field")
    return fields


class _Payload:
    """The JSON Schema of a payload. Raises `InvalidValue` if fields but those in `may_be_required` are required; None
    allows any."""

    def __init__(self, control: str, source: Any, may_be_required: Collection[str] | None) -> None:
        from pydantic import TypeAdapter  # only payloads with a control need it

        self._control = control
        self._name = getattr(source, "__name__", repr(source))
        schema: _Schema = TypeAdapter(source).json_schema(mode="validation")
        self._definitions: Mapping[str, _Schema] = schema.get("$defs", {})
        schema = self._resolved(schema)
        self._fields: Mapping[str, _Schema] = schema.get("properties", {})
        required = [
            each for each in schema.get("required", []) if may_be_required is not None and each not in may_be_required
        ]
        if required:
            raise InvalidValue(
                f"{control}: {required[0]!r} of {self._name} is required; give it a default, such as None"
            )

    def check(self, role: str, name: str, wanted: _Role) -> _Schema:
        """The schema of a field, of one type besides None."""
        if name not in self._fields:
            known = ", ".join(self._fields) or "no fields"
            raise InvalidValue(
                f"{self._control}: {role} is {name!r}, which is not a field of {self._name}; it has {known}"
            )
        outer = self._resolved(self._fields[name])
        found = [self._resolved(each) for each in outer.get("anyOf", [outer])]
        found = [each for each in found if each.get("type") != "null"]
        if len(found) != 1 or found[0].get("type") not in wanted.types:
            raise InvalidType(f"{self._control}: {role} is {name!r}, which must be {wanted.wanted} in {self._name}")
        if wanted.both and "const" in found[0]:
            raise InvalidType(f"{self._control}: {role} is {name!r}, which is always {found[0]['const']}; write bool")
        if wanted.largest is not None:
            self._check_limits(role, name, wanted, found[0])
        return {**found[0], **{key: value for key, value in outer.items() if key != "anyOf"}}

    def _check_limits(self, role: str, name: str, wanted: _Role, field: _Schema) -> None:
        """Check that a field takes all numbers that a controller sends."""
        largest = field.get("maximum", 0)
        if not largest > 0:
            raise InvalidValue(
                f"{self._control}: {name!r} has no largest value; write Annotated[int, Field(ge=0, le=100)]"
            )
        if wanted.largest is not None and largest < wanted.largest:
            raise InvalidValue(
                f"{self._control}: the largest value of {name!r} is {largest:g}; it must be {wanted.largest:g} or more,"
                f" or leave {role} out"
            )
        is_whole = field["type"] == "integer"
        least = wanted.least if is_whole else 0
        above = field.get("exclusiveMinimum", -1)
        if field.get("minimum", least) > least or (above >= least if is_whole else above > 0):
            raise InvalidValue(f"{self._control}: {name!r} does not take {least}, which a controller sends; write ge=0")
        if "multipleOf" in field and (field["multipleOf"] != 1 or not is_whole):
            raise InvalidValue(
                f"{self._control}: {name!r} accepts only multiples of {field['multipleOf']:g}, and a controller sends"
                " others; leave multiple_of out, and round in the handler"
            )

    def _resolved(self, node: _Schema) -> _Schema:
        if "$ref" not in node:
            return node
        inner = self._definitions[node["$ref"].rsplit("/", 1)[-1]]
        return {**inner, **{key: value for key, value in node.items() if key != "$ref"}}
