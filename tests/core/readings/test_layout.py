"""Readings as plain values, and the topics of these."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.topics import MAX_TOPIC_BYTES, RESERVED, Topics, is_topic, topic_matches
from leadsman.core.readings.reading import plain_values

KEYS = st.one_of(
    st.text(max_size=12), st.sampled_from(sorted(RESERVED)), st.sampled_from(["+", "#", "a/b", "$SYS", ""])
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
READINGS = st.dictionaries(KEYS, VALUES, max_size=5)


def leaves(fields, path=()):
    for key, value in fields.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


@given(READINGS)
def test_each_value_comes_once_in_its_order_and_can_be_read_back(fields):
    found = list(plain_values(fields, nested=True))

    assert [path for path, _ in found] == [path for path, _ in leaves(fields)]
    for (_, payload), (_, value) in zip(found, leaves(fields), strict=True):
        if value is None:
            assert payload == b""
        elif isinstance(value, str):
            assert payload.decode() == value
        else:
            back = json.loads(payload)
            assert back == value
            assert type(back) is type(value)
            assert not isinstance(back, float) or math.copysign(1, back) == math.copysign(1, value)


@given(READINGS)
def test_an_object_within_a_reading_is_one_value_where_there_is_one_level(fields):
    assert [path for path, _ in plain_values(fields, nested=False)] == [(key,) for key in fields]


PATHS = st.lists(KEYS, min_size=1, max_size=6).map(tuple)


@given(PATHS, PATHS, st.booleans())
def test_a_topic_of_a_field_means_nothing_else_and_is_that_of_no_other_field(path, other, root):
    topics = Topics("app", root="d" if root else None)
    topic = topics.field("d", path)

    if topic is None:
        assert (root and len(path) > 1) or any(not key or len(key) > 10 for key in path)
        return
    assert is_topic(topic)
    assert len(topic.encode()) <= MAX_TOPIC_BYTES
    first = topic.removeprefix(topics.below("d")).split("/")[0]
    assert first not in RESERVED
    for listened in ("app/+/set", "app/+/+/set", "app/+/get", "app/set", "app/get", "app/introspect"):
        assert not topic_matches(listened, topic)
    if path != other:
        assert topics.field("d", other) != topic


def test_names_that_need_it_are_escaped_and_the_others_stay():
    field = Topics("app").field

    assert field("d", ("air", "co2")) == "app/d/air/co2"
    assert field("d", ("relay", "state")) == "app/d/relay/state"
    assert field("d", ("a/b",)) == "app/d/a%2Fb"
    assert field("d", ("state",)) == "app/d/%73tate"
    assert field("d", ("x" * 201,)) is None
    assert field("d", ("x" * 150, "y" * 150, "z" * 150)) is None


def test_values_look_as_programs_without_a_parser_read_them():
    values = [21.5, 3, True, False, None, "on", [1, "a"], {}]

    shown = [b"21.5", b"3", b"true", b"false", b"", b"on", b'[1,"a"]', b"{}"]
    assert [text for value in values for _, text in plain_values({"it": value}, nested=False)] == shown
