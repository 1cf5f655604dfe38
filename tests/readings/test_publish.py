import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Every, OnChange
from leadsman.errors import InvalidType, InvalidValue
from leadsman.readings.publish import LastPublished, checked

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


def changed(old, new, **words):
    return OnChange(**words).wants(LastPublished(old, 0.0), new, 1.0)


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

    assert [OnChange(0.5).wants(told, {"t": 20.0 + n / 10}, 1.0) for n in (1, 3, 5, 6)] == [False, False, False, True]


def test_every_n_tells_every_nth_reading():
    assert [Every(n=3).wants(LastPublished({}, 0.0, since), {}, 0.0) for since in range(4)] == [
        False,
        False,
        True,
        True,
    ]


def test_every_by_time_tells_when_it_has_passed():
    rule = Every("1m")

    assert [rule.wants(LastPublished({}, 100.0), {}, now) for now in (100.0, 159.0, 160.0, 161.0)] == [
        False,
        False,
        True,
        True,
    ]


def test_every_by_time_is_not_late_by_the_last_bit_of_a_float():
    assert Every(0.3).wants(LastPublished({}, 0.1 + 0.2), {}, 0.6)


@given(rules, rules, tolds, readings, st.floats(0, 30))
def test_or_tells_what_either_and_and_what_both_want(left, right, told, fields, now):
    one, other = left.wants(told, fields, now), right.wants(told, fields, now)

    assert (left | right).wants(told, fields, now) == (one or other)
    assert (left & right).wants(told, fields, now) == (one and other)


@given(rules, tolds, readings, st.floats(0, 30))
def test_asking_changes_nothing(rule, told, fields, now):
    assert rule.wants(told, fields, now) == rule.wants(told, fields, now)


@pytest.mark.parametrize("words", [{"deadband": -1}, {"deadband": float("nan")}, {"fields": {"a": -1}}])
def test_an_impossible_deadband_is_refused(words):
    with pytest.raises(InvalidValue):
        OnChange(**words)


@pytest.mark.parametrize("words", [{"deadband": "1"}, {"deadband": True}, {"fields": [1]}, {"fields": {"a": None}}])
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
        checked(thing)


def test_a_rule_joins_only_with_a_rule():
    with pytest.raises(InvalidType):
        OnChange() | 5
