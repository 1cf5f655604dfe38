"""What a command must be that sets a lamp, a thermostat or another control."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from leadsman import App, Climate, Cover, Fan, Light, Lock, Sensor, Siren, Valve
from leadsman.errors import InvalidType, InvalidValue


class Payload(BaseModel):
    on: bool
    level: Annotated[int, Field(le=100)] | None = None
    endless: int = 0
    target: float = 20.0
    kelvin: Annotated[float, Sensor("K")] = 293.15
    single: Annotated[int, Field(ge=0, le=1)] = 0
    mode: Literal["heat", "off"] = "off"
    program: Literal["heat", "party"] = "heat"


class Free(Payload):
    on: bool = False


class Narrow(BaseModel):
    always: Literal[True] = True
    maybe: Literal[True] | None = None
    on: bool = False
    late: Annotated[int, Field(ge=10, le=100)] = 10
    above: Annotated[int, Field(gt=0, le=100)] = 1
    share: Annotated[float, Field(gt=0, le=1)] = 1
    half: Annotated[float, Field(ge=0.5, le=1)] = 1
    tens: Annotated[int, Field(ge=0, le=100, multiple_of=10)] = 0
    ones: Annotated[int, Field(ge=0, le=100, multiple_of=1)] = 0
    tenths: Annotated[float, Field(ge=0, le=1, multiple_of=0.1)] = 0


def register(annotation):
    async def handle(payload): ...

    handle.__annotations__ = {"payload": annotation}
    App("house").add_command("device", handle)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[Payload, Light()],
        Annotated[Payload, Light(brightness="level")],
        Annotated[Free, Climate(mode="mode", current="whatever the readings have")],
        Annotated[Free, Cover(position="level", stop="on")],
        Annotated[Payload, Fan()],
        Annotated[Free, Fan(speed="level")],
        Annotated[Payload, Lock(locked="on")],
        Annotated[Payload, Siren()],
        Annotated[Free, Valve(position="level")],
        Annotated[Narrow, Cover(position="ones", stop="maybe")],
        Annotated[Narrow, Light(brightness="above")],
        Annotated[Narrow, Light(brightness="share")],
    ],
)
def test_a_payload_with_the_fields_is_taken(annotation):
    register(annotation)


@pytest.mark.parametrize(
    ("annotation", "error", "message"),
    [
        (Annotated[Free, Light(on="no")], InvalidValue, "on is 'no', which is not a field of Free; it has on, level"),
        (Annotated[int, Light()], InvalidValue, "which is not a field of int; it has no fields"),
        (Annotated[Payload, Light(on="level")], InvalidValue, "'on' of Payload is required; give it a default"),
        (Annotated[Free, Light(on="level")], InvalidType, "on is 'level', which must be a bool"),
        (Annotated[Payload, Light(brightness="mode")], InvalidType, "must be a number"),
        (Annotated[Payload, Light(brightness="endless")], InvalidValue, "'endless' has no largest value; write"),
        (Annotated[Payload, Climate()], InvalidValue, "'on' of Payload is required"),
        (Annotated[Free, Climate(target="mode")], InvalidType, "target is 'mode', which must be a number"),
        (Annotated[Free, Climate(target="kelvin")], InvalidValue, "'kelvin' is in K; it must be in °C or °F"),
        (Annotated[Free, Climate(mode="on")], InvalidType, "mode is 'on', which must be a Literal"),
        (Annotated[Free, Climate(mode="program")], InvalidValue, "'program' may be 'party'; take some of auto, off"),
        (Annotated[Free, Cover(position="endless")], InvalidValue, "Cover: 'endless' has no largest value; write"),
        (Annotated[Free, Cover(position="target")], InvalidType, "position is 'target', which must be a whole number"),
        (Annotated[Payload, Cover(position="level", stop="on")], InvalidValue, "'on' of Payload is required"),
        (Annotated[Payload, Fan(speed="level")], InvalidValue, "Fan: 'on' of Payload is required"),
        (Annotated[Free, Fan(on="level")], InvalidType, "Fan: on is 'level', which must be a bool"),
        (
            Annotated[Free, Fan(speed="single")],
            InvalidValue,
            "'single' is 1; it must be 2 or more, or",
        ),
        (Annotated[Free, Lock()], InvalidValue, "Lock: locked is 'locked', which is not a field of Free"),
        (Annotated[Narrow, Lock(locked="always")], InvalidType, "locked is 'always', which is always True; write bool"),
        (Annotated[Narrow, Siren(on="maybe")], InvalidType, "on is 'maybe', which is always True; write bool"),
        (Annotated[Narrow, Cover(position="late")], InvalidValue, "'late' does not take 0, which a controller sends"),
        (Annotated[Narrow, Valve(position="above")], InvalidValue, "'above' does not take 0, which a controller sends"),
        (Annotated[Narrow, Fan(speed="late")], InvalidValue, "'late' does not take 0, which a controller sends"),
        (Annotated[Narrow, Light(brightness="late")], InvalidValue, "'late' does not take 1, which a controller sends"),
        (Annotated[Narrow, Light(brightness="half")], InvalidValue, "'half' does not take 0, which a controller sends"),
        (
            Annotated[Narrow, Cover(position="tens")],
            InvalidValue,
            "'tens' accepts only multiples of 10, and",
        ),
        (Annotated[Narrow, Light(brightness="tenths")], InvalidValue, "'tenths' accepts only multiples of 0.1, and"),
        (Annotated[Free, Siren(on="mode")], InvalidType, "Siren: on is 'mode', which must be a bool"),
        (Annotated[Payload, Valve(position="level")], InvalidValue, "Valve: 'on' of Payload is required"),
    ],
)
def test_another_payload_is_refused_when_the_command_is_registered(annotation, error, message):
    with pytest.raises(error, match="command 'device': ") as raised:
        register(annotation)

    assert message in str(raised.value)


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(InvalidType, match="brightness is 100; write the name of a field"):
        Light(brightness=100)
