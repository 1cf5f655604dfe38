"""Which changes of the schemas of an app disturb those who read its topics, or send to them."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.errors import InvalidValue
from leadsman.introspection.compatibility import SchemaChanges, compare

TOPIC = "house/air/state"
LEAF = st.sampled_from(
    [
        {"type": "number", "unit": "°C"},
        {"type": "integer"},
        {"type": "string", "enum": ["eco", "off"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "number"}},
        {"$ref": "#/$defs/Point"},
        {},
    ]
)
NAMES = st.sampled_from(["t", "mode", "fault", "count"])
POINT = {"type": "object", "properties": {"lat": {"type": "number"}, "next": {"$ref": "#/$defs/Point"}}}


@st.composite
def topics(draw):
    """The schema of a topic with an object."""
    fields = draw(st.dictionaries(NAMES, LEAF, min_size=1))
    required = draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
    direction = draw(st.sampled_from([{}, {"direction": "in"}]))
    schema = {"type": "object", "properties": fields, "required": required, "$defs": {"Point": POINT}}
    return {TOPIC: schema | direction}


@given(topics())
def test_a_schema_is_compatible_with_itself(schemas):
    assert compare(schemas, copy.deepcopy(schemas)) == SchemaChanges([], [])


@given(topics(), LEAF)
def test_an_optional_field_that_is_new_disturbs_nobody_and_breaks_when_it_goes_again(schemas, leaf):
    more = copy.deepcopy(schemas)
    more[TOPIC]["properties"]["new"] = leaf

    assert compare(schemas, more).breaking == []
    assert f"{TOPIC}: new is new" in compare(schemas, more).compatible
    assert f"{TOPIC}: new is gone" in compare(more, schemas).breaking


@given(topics(), topics())
def test_what_is_only_new_one_way_is_gone_the_other_way(one, other):
    added = [each for each in compare(one, other).compatible if each.endswith(" is new")]

    assert {each.removesuffix(" is new") + " is gone" for each in added} <= set(compare(other, one).breaking)


def of(field, required=(), **more):
    return {TOPIC: {"type": "object", "properties": {"t": field}, "required": list(required), **more}}


def either(*fields):
    return {"anyOf": list(fields)}


def pair(*fields):
    return {"type": "array", "prefixItems": list(fields), "minItems": len(fields), "maxItems": len(fields)}


def inner(*names):
    return {"type": "object", "properties": dict.fromkeys(names, NUMBER), "required": list(names)}


TEXT, NULL = {"type": "string"}, {"type": "null"}
NUMBER, INTEGER, IN = {"type": "number"}, {"type": "integer"}, {"direction": "in"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (of(INTEGER), of(NUMBER), ["t was integer and is number"]),
        (of(NUMBER), of(INTEGER), []),
        (of(NUMBER, **IN), of(INTEGER, **IN), ["t was number and is integer"]),
        (of(INTEGER, **IN), of(NUMBER, **IN), []),
        (of(NUMBER), of({"anyOf": [NUMBER, {"type": "null"}]}), ["t was number and is null and number"]),
        (of({**NUMBER, "unit": "°C"}), of({**NUMBER, "unit": "K"}), ["t was in °C and is in K"]),
        (of({**NUMBER, "unit": "°C"}), of(NUMBER), ["t was in °C and is in no unit"]),
        (of({"enum": ["on"]}), of({"enum": ["on", "off"]}), ["t was 'on' and is 'off' and 'on'"]),
        (of({"enum": ["on", "off"]}), of({"enum": ["on"]}), []),
        (of({"enum": ["on", "off"]}, **IN), of({"enum": ["on"]}, **IN), ["t was 'off' and 'on' and is 'on'"]),
        (of(NUMBER, ["t"]), of(NUMBER), ["t may be missing"]),
        (of(NUMBER), of(NUMBER, ["t"]), []),
        (of(NUMBER, **IN), of(NUMBER, ["t"], **IN), ["t must be sent"]),
        (
            of({**NUMBER, "maximum": 30}, **IN),
            of({**NUMBER, "maximum": 20}, **IN),
            ["t took up to 30 and takes up to 20"],
        ),
        (of({**NUMBER, "maximum": 20}, **IN), of({**NUMBER, "maximum": 30}, **IN), []),
        (
            of({**NUMBER, "minimum": 0}, **IN),
            of({**NUMBER, "exclusiveMinimum": 0}, **IN),
            ["t took 0 and more and takes more than 0"],
        ),
        (
            of({**NUMBER, "minimum": 0, "maximum": 9}, **IN),
            of({**NUMBER, "minimum": 0, "exclusiveMaximum": 9}, **IN),
            ["t took 0 to 9 and takes 0 and more, less than 9"],
        ),
        (of({**NUMBER, "exclusiveMinimum": 0}, **IN), of({**NUMBER, "minimum": 0}, **IN), []),
        (
            of(either({**NUMBER, "maximum": 30}, NULL), **IN),
            of(either({**NUMBER, "maximum": 20}, NULL), **IN),
            ["t took up to 30 and takes up to 20"],
        ),
        (of(INTEGER, **IN), of({**INTEGER, "multipleOf": 5}, **IN), ["t takes only multiples of 5"]),
        (
            of({**INTEGER, "multipleOf": 2}, **IN),
            of({**INTEGER, "multipleOf": 4}, **IN),
            ["t takes only multiples of 4"],
        ),
        (of({**INTEGER, "multipleOf": 4}, **IN), of({**INTEGER, "multipleOf": 2}, **IN), []),
        (of({**INTEGER, "multipleOf": 4}, **IN), of(INTEGER, **IN), []),
        (of(INTEGER), of({**INTEGER, "multipleOf": 5}), []),
        (of(TEXT, **IN), of({**TEXT, "pattern": "^a"}, **IN), ["t takes only text that matches ^a"]),
        (
            of(either(TEXT, NULL), **IN),
            of(either({**TEXT, "pattern": "^a"}, NULL), **IN),
            ["t takes only text that matches ^a"],
        ),
        (of({**TEXT, "pattern": "^a"}, **IN), of(either({**TEXT, "pattern": "^a"}, TEXT), **IN), []),
        (
            of(pair(NUMBER, TEXT)),
            of(pair(TEXT, NUMBER)),
            ["t[0] was number and is string", "t[1] was string and is number"],
        ),
        (of(pair(NUMBER, TEXT)), of(pair(NUMBER)), ["t[1] is gone"]),
        (of(pair(NUMBER), **IN), of(pair(NUMBER, TEXT), **IN), ["t[1] must be sent"]),
        (of(inner("a", "b")), of(either(inner("a", "b"), inner("a"))), ["t.b may be missing"]),
        (of(inner("a", "b")), of(either(inner("a"), inner("a", "b"))), ["t.b may be missing"]),
        (of(either(inner("a", "b"), inner("a"))), of(inner("a", "b")), []),
        (of(either(inner("a"), NULL)), of(either(inner("a"), NULL)), []),
        (of(either(inner("a"), inner("b")), **IN), of(inner("a"), **IN), ["t.a must be sent", "t.b is gone"]),
        (of({}), of(NUMBER), []),
        (of(NUMBER), of({}), ["t was number and is anything"]),
    ],
)
def test_each_change_is_told_to_those_whom_it_disturbs(before, after, told):
    assert compare(before, after).breaking == [f"{TOPIC}: {each}" for each in told]


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": 5},
        {"anyOf": [5]},
        {"properties": {"t": 5}},
        {"properties": 5},
        {"type": 5},
        {"enum": 5},
        {"type": "number", "minimum": "low"},
        {"multipleOf": "five"},
        {"$defs": 5, "$ref": "#/$defs/Air"},
        {"prefixItems": 5},
    ],
)
def test_what_is_no_schema_is_named(schema):
    with pytest.raises(InvalidValue, match=f"{TOPIC} has no valid schema"):
        compare({TOPIC: schema}, of(NUMBER))


def test_topics_come_and_go():
    assert compare(of(NUMBER), {}) == SchemaChanges([f"{TOPIC} is gone"], [])
    assert compare({}, of(NUMBER)) == SchemaChanges([], [f"{TOPIC} is new"])
