from typing import Annotated

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from leadsman import App, Every, LastPublished, OnChange, PublishRule, Sensor
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import published_by

values = st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.booleans(), st.text(max_size=2), st.none())
readings = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
rules = st.recursive(
    st.one_of(
        st.builds(OnChange, st.floats(0, 3)),
        st.builds(Every, st.floats(0.1, 10)),
        st.builds(Every, n=st.integers(1, 5)),
    ),
    lambda inner: st.builds(lambda a, b: a | b, inner, inner) | st.builds(lambda a, b: a & b, inner, inner),
    max_leaves=4,
)
tolds = st.builds(LastPublished, readings, st.floats(0, 10), st.integers(0, 5))


class Air(TypedDict):
    t: Annotated[float, Sensor("°C", deadband=0.2)]
    p: Annotated[float, Sensor("hPa", deadband=1.0)]


def registered(kind=dict[str, float], **words):
    """The rule of a telemetry whose handler returns such a reading."""

    async def read(): ...

    read.__annotations__["return"] = kind
    app = App("house")
    app.add_telemetry("d", read, interval=1, **words)
    return app.telemetries["d"].publish


def changed(old, new, **words):
    return OnChange(**words).decide(LastPublished(old, 0.0), new, 1.0)


def test_on_change_tells_any_difference():
    assert changed({"t": 20.0}, {"t": 20.1})
    assert not changed({"t": 20.0}, {"t": 20.0})


def test_a_deadband_must_be_exceeded():
    assert not changed({"t": 20.0}, {"t": 20.5}, deadband=0.5)
    assert changed({"t": 20.0}, {"t": 20.6}, deadband=0.5)
    assert changed({"t": 20.0}, {"t": 19.4}, deadband=0.5)


def test_a_field_may_have_a_deadband_of_its_own():
    words = {"deadband": 0.1, "fields": {"co2": 50, "air.voc": 10}}

    assert not changed({"co2": 400, "t": 1.0}, {"co2": 450, "t": 1.1}, **words)
    assert changed({"co2": 400, "t": 1.0}, {"co2": 451, "t": 1.0}, **words)
    assert not changed({"air": {"voc": 5}}, {"air": {"voc": 15}}, **words)
    assert changed({"air": {"voc": 5}}, {"air": {"voc": 16}}, **words)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"on": True}, {"on": False}),
        ({"s": "a"}, {"s": "b"}),
        ({"l": [1]}, {"l": [2]}),
        ({"a": 1}, {"a": None}),
        ({"a": 1}, {"a": True}),
    ],
)
def test_what_is_no_number_compares_exactly_whatever_the_deadband(old, new):
    assert changed(old, new, deadband=100)


def test_a_field_that_appears_or_goes_is_a_change():
    assert changed({"a": 1}, {"a": 1, "b": 2}, deadband=100)
    assert changed({"a": 1, "b": 2}, {"a": 1}, deadband=100)


def test_a_slow_drift_adds_up_against_what_was_last_told():
    told = LastPublished({"t": 20.0}, 0.0)

    assert [OnChange(0.5).decide(told, {"t": 20.0 + n / 10}, 1.0) for n in (1, 3, 5, 6)] == [False, False, False, True]


def test_every_n_tells_every_nth_reading():
    assert [Every(n=3).decide(LastPublished({}, 0.0, since), {}, 0.0) for since in range(4)] == [
        False,
        False,
        True,
        True,
    ]


def test_every_by_time_tells_when_it_has_passed():
    rule = Every("1m")

    assert [rule.decide(LastPublished({}, 100.0), {}, now) for now in (100.0, 159.0, 160.0, 161.0)] == [
        False,
        False,
        True,
        True,
    ]


def test_every_by_time_is_not_late_by_the_last_bit_of_a_float():
    assert Every(0.3).decide(LastPublished({}, 0.1 + 0.2), {}, 0.6)


@given(rules, rules, tolds, readings, st.floats(0, 30))
def test_or_tells_what_either_and_and_what_both_want(left, right, told, fields, now):
    one, other = left.decide(told, fields, now), right.decide(told, fields, now)

    assert (left | right).decide(told, fields, now) == (one or other)
    assert (left & right).decide(told, fields, now) == (one and other)


@given(rules, tolds, readings, st.floats(0, 30))
def test_asking_changes_nothing(rule, told, fields, now):
    assert rule.decide(told, fields, now) == rule.decide(told, fields, now)


def test_a_dict_has_the_deadbands_of_single_fields_and_the_others_are_exact():
    rule = OnChange({"temperature": 0.2, "pressure": 1.0})
    last = LastPublished({"temperature": 20.0, "pressure": 1013.0, "door": False}, 0.0)

    def decide(**changed):
        return rule.decide(last, {**last.fields, **changed}, 1.0)

    assert not decide(temperature=20.2, pressure=1014.0)
    assert decide(temperature=20.3)
    assert decide(pressure=1014.5)
    assert decide(door=True)


widths = st.floats(0, 500)
numbers = st.floats(-1e6, 1e6)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(numbers, numbers, widths, st.booleans()), max_size=3))
def test_a_reading_is_published_if_one_field_leaves_its_own_deadband(fields):
    """The plain definition. Differences that a float cannot tell from the width are left out."""
    old, new = ({name: each[n] for name, each in fields.items()} for n in (0, 1))
    allowed = {name: width / 100 * abs(old[name]) if share else width for name, (_, _, width, share) in fields.items()}
    rule = OnChange({name: f"{width!r} %" if share else width for name, (_, _, width, share) in fields.items()})
    beyond = {name: abs(new[name] - old[name]) - allowed[name] for name in fields}
    assume(all(abs(each) > 1e-5 for each in beyond.values()))

    assert rule.decide(LastPublished(old, 0.0), new, 1.0) == any(each > 0 for each in beyond.values())


def test_a_share_is_of_the_value_that_was_published_last():
    assert not changed({"w": 200.0}, {"w": 202.0}, deadband="1 %")
    assert changed({"w": 200.0}, {"w": 202.1}, deadband="1 %")
    assert changed({"w": -200.0}, {"w": -202.1}, deadband="1%")
    assert changed({"w": 0.0}, {"w": 0.001}, deadband="1 %")


def test_deadbands_beside_the_fields_join_each_on_change_that_has_none_for_them():
    beside = {"t": 0.2, "p": 1.0}

    assert registered(Air) == OnChange(beside)
    assert registered(Air, publish=OnChange(0.5, fields={"p": 3})) == OnChange(0.5, fields={"p": 3, "t": 0.2})
    assert registered(Air, publish=OnChange() | Every("10m")) == OnChange(beside) | Every("10m")
    assert registered(Air, publish=Every("10m")) == Every("10m")


class Rising:
    """A rule of a user, which knows nothing of ours."""

    def decide(self, previous, reading, now):
        return reading["t"] > previous.fields["t"]


def test_any_object_that_decides_is_a_rule_and_joins_from_both_sides():
    rule = Rising()

    assert isinstance(rule, PublishRule)
    assert registered(publish=rule) is rule
    assert published_by(rule | Every(n=3), [{"t": t} for t in (1, 0, 0, 0, 5)]) == [{"t": 1}, {"t": 0}, {"t": 5}]
    assert published_by(Every(n=3) & rule, [{"t": t} for t in (1, 2, 3, 4, 3)]) == [{"t": 1}, {"t": 4}]
    assert published_by(rule, [{"t": t} for t in (1, 0, 2, 2, 3)]) == [{"t": 1}, {"t": 2}, {"t": 3}]


@given(rules, st.lists(readings, max_size=8))
def test_the_rules_here_are_as_an_app_relies_on(rule, played):
    assert published_by(rule, played, "1s")[:1] == played[:1]


class Stateful:
    def __init__(self):
        self.asked = 0

    def decide(self, previous, reading, now):
        self.asked += 1
        return self.asked % 2 == 0


class Vague:
    def decide(self, previous, reading, now):
        return None


class Meddling:
    def decide(self, previous, reading, now):
        reading["t"] = 0
        return True


@pytest.mark.parametrize(
    ("rule", "reason"), [(Stateful(), "keeps nothing"), (Vague(), "True or False"), (Meddling(), "only compares")]
)
def test_the_kit_names_a_rule_on_which_no_app_can_rely(rule, reason):
    with pytest.raises(AssertionError, match=reason):
        published_by(rule, [{"t": 1}, {"t": 2}])


class Awaited:
    async def decide(self, previous, reading, now):
        return True


def test_a_rule_that_is_to_be_awaited_is_refused():
    with pytest.raises(InvalidType, match="write def"):
        registered(publish=Awaited())


@pytest.mark.parametrize(
    "words",
    [
        {"deadband": -1},
        {"deadband": float("nan")},
        {"fields": {"a": -1}},
        {"deadband": {"a": "-1 %"}},
        {"deadband": "much %"},
        {"deadband": "inf%"},
    ],
)
def test_an_impossible_deadband_is_refused(words):
    with pytest.raises(InvalidValue):
        OnChange(**words)


@pytest.mark.parametrize(
    "words",
    [{"deadband": "1"}, {"deadband": True}, {"fields": [1]}, {"fields": {"a": None}}, {"deadband": {}, "fields": {}}],
)
def test_a_deadband_of_the_wrong_type_is_refused(words):
    with pytest.raises(InvalidType):
        OnChange(**words)


@pytest.mark.parametrize("words", [{}, {"n": 0}, {"n": -1}, {"seconds": 0}, {"seconds": "5"}])
def test_an_impossible_every_is_refused(words):
    with pytest.raises(InvalidValue):
        Every(**words)


@pytest.mark.parametrize("thing", ["on_change", OnChange, Every, 5, True])
def test_what_is_no_rule_is_refused_with_what_to_write(thing):
    with pytest.raises(InvalidType, match=r"write (OnChange|Every)\("):
        registered(publish=thing)


def test_a_rule_joins_only_with_a_rule():
    with pytest.raises(InvalidType):
        OnChange() | 5
