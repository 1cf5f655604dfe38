"""The schema of what JSON itself has, which is made without pydantic, is the one that pydantic makes."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from leadsman import Sensor
from leadsman.core.introspection.schema import schema_of

SENSORS = (Sensor("W"), Sensor("°C", name="Tap", precision=1), Sensor(homeassistant={"expire_after": 5}))


def further(kinds):
    """Types that are made of these."""
    annotated = st.builds(lambda kind, beside: Annotated[kind, beside], kinds, st.sampled_from(SENSORS))
    objects = st.builds(lambda kind, of: of[str, kind], kinds, st.sampled_from((dict, Mapping)))
    unions = st.lists(kinds, min_size=2, max_size=4).map(lambda members: reduce(or_, members))
    return st.one_of(annotated, objects, unions, kinds.map(lambda kind: list[kind]))


KINDS = st.recursive(
    st.sampled_from((bool, int, float, str, type(None), Any, object, dict, list, Mapping)), further, max_leaves=6
)


def written(schema):
    """A schema as each pydantic writes it: before 2.11 it left out that an object may have any values."""
    if isinstance(schema, list):
        return [written(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {word: written(each) for word, each in schema.items() if (word, each) != ("additionalProperties", True)}


@given(KINDS, st.sampled_from(("validation", "serialization")))
def test_the_schema_of_what_json_has_is_that_of_pydantic(kind, mode):
    assert written(schema_of(kind, mode)) == written(TypeAdapter(kind).json_schema(mode=mode))
