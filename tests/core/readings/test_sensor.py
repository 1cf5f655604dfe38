"""What a `Sensor` takes and refuses; `tests/extensions/discovery` has what becomes of it."""

from typing import Annotated

import pytest
from pydantic import TypeAdapter

from leadsman import Sensor
from leadsman.core.readings.sensor import check_fields
from leadsman.errors import InvalidType, InvalidValue


@pytest.mark.parametrize(
    ("given", "error", "advice"),
    [
        ({"homeassistant": {"expire_aftr": 5}}, InvalidValue, "did you mean 'expire_after'?"),
        ({"homeassistant": {"state_topic": "a"}}, InvalidValue, "homeassistant has 'state_topic'"),
        ({"homeassistant": {"expire_after": -1}}, InvalidValue, "write a whole number from 0"),
        ({"homeassistant": {"expire_after": True}}, InvalidValue, "write a whole number from 0"),
        ({"homeassistant": {"force_update": 1}}, InvalidValue, "write True or False"),
        ({"homeassistant": {"entity_picture": "meter.png"}}, InvalidValue, "an address that begins with http://"),
        ({"homeassistant": ["expire_after"]}, InvalidType, 'write a dict such as {"expire_after": 300}'),
        ({"discoverable": "no"}, InvalidType, "write True or False"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_write(given, error, advice):
    with pytest.raises(error) as raised:
        Sensor(**given)
    assert advice in str(raised.value)


def test_the_schema_has_what_was_given_and_nothing_else():
    plain = TypeAdapter(Annotated[int, Sensor("W")]).json_schema()
    more = TypeAdapter(Annotated[int, Sensor(discoverable=False, homeassistant={"expire_after": 5})]).json_schema()

    assert plain == {"type": "integer", "unit": "W"}
    assert more == {"type": "integer", "discoverable": False, "homeassistant": {"expire_after": 5}}


@pytest.mark.parametrize("field", [1, None, True])
def test_the_name_of_a_field_that_is_no_text_is_named(field):
    with pytest.raises(InvalidType, match=f"fields has {field}; write the name of a field in quotes"):
        check_fields({field: {"name": "Flow"}})
