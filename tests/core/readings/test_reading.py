import dataclasses
import decimal
import enum
import json
import math
from datetime import UTC, date, datetime

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.topics import encode
from leadsman.core.readings.reading import fields_of, plain
from leadsman.errors import ResultError

nan, inf = math.nan, math.inf


class Air(pydantic.BaseModel):
    co2: int
    at: datetime


@dataclasses.dataclass
class Boiler:
    flow: float
    pumps: list[bool]


class Mode(enum.Enum):
    HEAT = "heat"


def test_a_plain_dict_is_taken_as_it_is():
    fields = {"t": 21.5, "n": 3, "on": True, "mode": "heat", "none": None}

    assert fields_of(fields) == (fields, ())


def test_a_model_and_a_dataclass_become_dicts():
    air = Air(co2=400, at=datetime(2026, 1, 1, tzinfo=UTC))

    assert fields_of(air) == ({"co2": 400, "at": "2026-01-01T00:00:00Z"}, ())
    assert fields_of(Boiler(55.0, [True, False])) == ({"flow": 55.0, "pumps": [True, False]}, ())


def test_dates_times_enums_and_nesting_are_written_plainly():
    fields, _ = fields_of(
        {
            "day": date(2026, 4, 8),
            "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
            "mode": Mode.HEAT,
            "in": {"a": [1, (2, 3)]},
            "Größe": "ü",
        }
    )

    assert fields == {
        "day": "2026-04-08",
        "at": "2026-01-01T12:00:00.000Z",
        "mode": "heat",
        "in": {"a": [1, [2, 3]]},
        "Größe": "ü",
    }


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_a_number_that_is_not_finite_is_left_out_and_named(number):
    assert fields_of({"t": number, "h": 45.0}) == ({"h": 45.0}, ("t",))
    assert fields_of({"in": {"t": number, "h": 1}}) == ({"in": {"h": 1}}, ("in.t",))
    assert fields_of({"l": [1, number], "h": 1}) == ({"h": 1}, ("l",))


def test_a_reading_of_nothing_but_nan_is_a_failure():
    with pytest.raises(ResultError, match="every field is NaN or infinite: t"):
        fields_of({"t": nan})


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"bytes",
        decimal.Decimal("1.5"),
        1j,
        object(),
        lambda: 1,
        2**70,
        -(2**70),
        "\ud800",
        datetime(2026, 1, 1),
    ],
)
def test_what_json_cannot_carry_is_a_failure_that_names_the_field(value):
    with pytest.raises(ResultError, match="'odd'"):
        fields_of({"fine": 1, "odd": value})


@pytest.mark.parametrize("result", [5, 2.5, "21.5", [1], (1,), {1}, True, Air, Boiler, object()])
def test_what_is_no_reading_is_a_failure_that_says_what_to_return(result):
    with pytest.raises(ResultError, match="return a dict"):
        fields_of(result)


@pytest.mark.parametrize("key", [1, None, (1,), "\udfff"])
def test_keys_are_text(key):
    with pytest.raises(ResultError):
        fields_of({key: 1})


def test_a_structure_that_contains_itself_is_a_failure():
    loop = {}
    loop["again"] = loop

    with pytest.raises(ResultError, match="contains itself"):
        fields_of(loop)


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(max_size=3),
        st.dates(),
        st.datetimes(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), anything, max_size=5))
def test_whatever_passes_is_valid_json_and_the_same_when_read_back(result):
    try:
        fields, _ = fields_of(result)
    except ResultError:
        return

    read = json.loads(encode(fields), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    assert read == fields


def test_a_forgotten_await_inside_a_dict_is_named_and_python_says_nothing_of_it():
    async def read(): ...

    with pytest.raises(ResultError, match=r"'v\[0\]' is a coroutine; write await before the call that makes it"):
        plain([read()], "v")
