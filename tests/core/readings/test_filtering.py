import copy
import json
import time
from fractions import Fraction
from numbers import Integral

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Clamp, LowPass, Maximum, Mean, Median, Minimum, Outlier, Round, Scale, Sensor
from leadsman.core.loop.clock import Clock
from leadsman.core.readings.reading import Reading
from leadsman.errors import InvalidType, InvalidValue, ResultError

CLOCK = Clock(time.monotonic, time.time)


def reading(fields, at=0.0, left_out=()):
    return Reading("d", fields, left_out, at, 1_767_225_600.0 + at)


def registered(filters):
    """The filters of a telemetry, as the app checked them."""
    app = App("house")
    app.add_telemetry("d", lambda: None, interval=1, filters=filters)
    return app.telemetries["d"].filters


def at_work(filters):
    return registered(filters).begin()


def fields(filters, *readings, step=1.0):
    """What comes out of readings; None where nothing does."""
    filtered = at_work(filters)
    found = [filtered.apply(reading(copy.deepcopy(each), at * step)) for at, each in enumerate(readings)]
    return [None if each is None else each.fields for each in found]


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=10), st.permutations([Scale(3, 1), Clamp(-9, 9), Round(0)])
)
def test_filters_are_applied_in_the_order_in_which_they_are_written(values, filters):
    expected = []
    for value in values:
        for each in filters:
            value = each.take(value, 0.0)
        expected.append({"t": value})

    assert fields({"t": filters}, *({"t": value} for value in values)) == expected


def test_the_other_fields_pass_as_they_are_and_the_reading_of_the_handler_is_not_changed():
    given = {"t": 20.04, "door": True, "air": {"co2": 401.4, "state": "good"}}

    found = at_work({"t": [Round(1)], "air.co2": [Round(0)]}).reading_of("d", given, CLOCK)

    assert found.fields == {"t": 20.0, "door": True, "air": {"co2": 401, "state": "good"}}
    assert given == {"t": 20.04, "door": True, "air": {"co2": 401.4, "state": "good"}}


def test_a_field_may_have_several_outputs_and_stays_only_if_it_is_one_of_them():
    several = {"mean": [Mean(2), Round(1)], "max": [Maximum(2)]}

    assert fields({"w": several}, {"w": 1}, {"w": 2}, {"w": 9}, {"w": 9}) == [None, None, {"mean": 1.5, "max": 2}, None]
    assert fields({"w": {"w": [], "low": [Clamp(high=5)]}}, {"w": 9}) == [{"w": 9, "low": 5}]
    assert fields({"a.w": {"kw": [Scale(0.001)]}}, {"a": {"w": 2000, "x": 1}}) == [{"a": {"kw": 2.0, "x": 1}}]


def test_a_reading_is_there_when_a_window_is_over_and_the_others_have_their_last_value():
    filters = {"t": {"t": [Mean(2)], "low": [Minimum(4)]}, "h": [Round(0)]}
    readings = [{"t": float(n), "h": n + 0.2} for n in range(6)]

    assert fields(filters, *readings) == [
        None,
        None,
        {"t": 0.5, "low": None, "h": 2},
        None,
        {"t": 2.5, "low": 0.0, "h": 4},
        None,
    ]


def test_a_field_that_is_not_there_has_no_output_and_one_that_is_none_has_none():
    assert fields({"t": [Round(1)]}, {"h": 1}, {"t": None, "h": 1}) == [{"h": 1}, {"t": None, "h": 1}]
    assert fields({"a.t": [Round(1)]}, {"a": None}, {}) == [{"a": None}, {}]
    assert fields({"a.t": [Mean(1)]}, {"a": {"t": 1}}, {"a": None}, step=2) == [None, {"a": {"t": 1.0}}]


def test_no_reading_waits_for_the_window_of_a_field_that_the_device_never_had():
    filters = {"t": [Mean(2)], "h": [Round(0)]}

    found = fields(filters, {"h": 1.2}, {"h": 2.2}, {"t": 5, "h": 3.2}, {"h": 4.2}, {"t": 7}, {"h": 1}, {"h": 1})

    assert found == [{"h": 1}, {"h": 2}, None, None, {"t": 5.0}, None, {"t": 7.0, "h": 1}]


def test_after_a_restart_a_reading_waits_for_the_window_of_a_field_that_the_device_had():
    before, after = at_work({"t": [Mean(9)]}), at_work({"t": [Mean(9)]})
    before.apply(reading({"t": 1}))
    after.restore(json.loads(json.dumps(before.to_json(1.0))), 1.0, 0.0)

    assert after.apply(reading({"h": 1}, 2.0)) is None


def test_an_output_that_is_not_finite_is_left_out_by_name_and_the_next_one_is_not_harmed():
    filtered = at_work({"t": {"t": [], "big": [Scale(1e300), LowPass(10)]}})
    found = [filtered.apply(reading({"t": t}, float(at), ("x",))) for at, t in enumerate([1.0, 1e300, 1.0])]

    assert found[1].fields == {"t": 1e300}
    assert found[1].left_out == ("x", "big")
    assert found[2].fields["big"] == 1e300
    with pytest.raises(ResultError, match="every field is NaN or infinite: t"):
        at_work({"t": [Scale(1e300)]}).apply(reading({"t": 1e300}))


@pytest.mark.parametrize("value", [10**15, 1e15])
@pytest.mark.parametrize("more", [[], [LowPass(10)], [Round(0)]], ids=repr)
@pytest.mark.parametrize("offset", [0, 0.5])
def test_an_output_that_no_float_can_be_is_not_finite(value, more, offset):
    filtered = at_work({"t": {"t": [], "big": [Scale(10**300, offset), *more]}})
    found = [filtered.apply(reading({"t": each}, float(at))) for at, each in enumerate([1, value, value])]

    assert found[1].left_out == ("big",)
    assert found[1].fields == {"t": value}


@pytest.mark.parametrize("value", ["21", True, [1], {"a": 1}])
def test_a_field_with_filters_that_is_no_number_is_named(value):
    with pytest.raises(ResultError, match="'a.t' is .*filters take numbers"):
        at_work({"a.t": [Round(1)]}).apply(reading({"a": {"t": value}}))


CHAIN = {"t": {"t": [Outlier(5), LowPass(30), Round(2)], "mean": [Mean(10)]}}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 30), st.floats(0, 1e5))
def test_after_a_restart_it_goes_on_where_it_was(values, cut, away):
    through, before, after = (at_work(CHAIN) for _ in range(3))
    cut = min(cut, len(values))
    for at, value in enumerate(values[:cut]):
        before.apply(reading({"t": value}, float(at)))
    saved = json.loads(json.dumps(before.to_json(100.0)))
    after.restore(saved, 7.0 + away, away)  # another boot: 100 is 7 now

    expected = [through.apply(reading({"t": value}, float(at))) for at, value in enumerate(values)][cut:]
    found = [after.apply(reading({"t": value}, at - 93.0)) for at, value in enumerate(values) if at >= cut]

    assert [each is None for each in found] == [each is None for each in expected]
    for one, other in zip(found, expected, strict=True):
        if one is not None:
            for name, value in one.fields.items():
                before_it = other.fields[name]
                assert value is before_it if None in (value, before_it) else value == pytest.approx(before_it, abs=0.02)


def test_other_filters_than_before_begin_again_and_the_rest_goes_on():
    before = at_work({"t": [Median(3)], "h": [Median(3)]})
    for value in (1, 2):
        before.apply(reading({"t": value, "h": value}))
    after = at_work({"t": [Median(5)], "h": [Median(3)]})
    after.restore(before.to_json(0.0), 0.0, 0.0)

    assert after.apply(reading({"t": 9, "h": 9})).fields == {"t": 9, "h": 2}


def test_a_state_that_makes_no_sense_is_refused_and_no_half_of_it_stays():
    before, after = at_work(CHAIN), at_work(CHAIN)
    before.apply(reading({"t": 1.0}))
    saved = before.to_json(0.0)
    saved["outputs"]["t"]["steps"][1] = ["x", 1]

    with pytest.raises(TypeError):
        after.restore(saved, 0.0, 0.0)

    assert after.to_json(0.0)["outputs"]["t"] == at_work(CHAIN).to_json(0.0)["outputs"]["t"]


@pytest.mark.parametrize(
    ("filters", "error", "match"),
    [
        ([Round(1)], InvalidType, "write a dict such as"),
        ({}, InvalidType, "write a dict such as"),
        ({"t": Round(1)}, InvalidType, r"filters\['t'\] is Round.*write a list of filters"),
        ({"t": [Round]}, InvalidType, r"write Round\(…\) with brackets"),
        ({"t": [round]}, InvalidType, "is no filter"),
        ({"t": {}}, InvalidValue, "no output"),
        ({"t": {"a.b": [Round(1)]}}, InvalidType, "without dots"),
        ({5: [Round(1)]}, InvalidType, "the field 5"),
        ({"t": [Sensor("°C"), Round(1)]}, InvalidType, "write it last"),
        ({"t": [Round(1)] * 21}, InvalidValue, "20 are the most"),
        ({"t": {"x": [Round(1)]}, "u": {"x": [Round(1)]}}, InvalidValue, "two outputs 'x'"),
        (
            {"t": {"a": [Round(1)]}, "a.b": [Round(1)]},
            InvalidValue,
            "'a', which is the object of the field 'a.b'; rename",
        ),
    ],
)
def test_nonsense_is_named_with_what_to_write(filters, error, match):
    with pytest.raises(error, match=match):
        registered(filters)


def test_a_window_that_an_infinite_value_closes_is_given_all_the_same():
    found = fields({"a": [Scale(1e300), Mean(60)]}, {"a": 1.0}, {"a": 1e300}, step=61.0)

    assert found == [None, {"a": 1e300}]


def test_a_window_is_not_lost_with_a_reading_that_is_refused():
    filtered = at_work({"a": [Mean(60)], "b": [Round(1)]})
    assert filtered.apply(reading({"a": 1.0, "b": 1})) is None
    with pytest.raises(ResultError, match="'b' is 'bad'"):
        filtered.apply(reading({"a": 9.0, "b": "bad"}, 61.0))

    assert filtered.apply(reading({"a": 9.0, "b": 1}, 62.0)).fields == {"a": 1.0, "b": 1.0}


# Filters of one's own


class Step:
    """The sum so far."""

    def __init__(self):
        self.sum = 0

    def take(self, value, now):
        self.sum += value
        return self.sum


class Own:
    def __init__(self, begin=Step):
        self.begin = begin


class Answers:
    """Answers always the same."""

    def __init__(self, answer):
        self.answer = answer

    def take(self, value, now):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_an_own_filter_works_between_others_and_each_field_and_device_has_its_own_state():
    filters = registered({"t": [Scale(2), Own(), Round(0)], "u": [Own()]})
    one, other = filters.begin(), filters.begin()

    found = [one.apply(reading({"t": 1.2, "u": 1})).fields for _ in range(3)]
    assert found == [{"t": 2, "u": 1}, {"t": 5, "u": 2}, {"t": 7, "u": 3}]
    assert other.apply(reading({"t": 1.2, "u": 1})).fields == {"t": 2, "u": 1}


def test_none_passes_an_own_filter_and_it_may_give_none():
    assert fields({"t": [Own()]}, {"t": 1}, {"t": None}, {"t": 2}) == [{"t": 1}, {"t": None}, {"t": 3}]
    assert fields({"t": [Own(lambda: Answers(None)), Round(0)]}, {"t": 1}) == [{"t": None}]


@Integral.register
class Int64:
    """As numpy.int64, which is no int. Both numpy.float32 and Fraction are a Real, and no float."""

    def __int__(self):
        return 7


@pytest.mark.parametrize(("answer", "published"), [(Fraction(1, 2), 0.5), (Int64(), 7)])
def test_an_own_filter_may_give_a_number_of_another_library(answer, published):
    (found,) = fields({"t": [Own(lambda: Answers(answer))]}, {"t": 1})

    assert found == {"t": published}
    assert type(found["t"]) is type(published)


@pytest.mark.parametrize("answer", ["1.0", True, [], object()])
def test_an_own_filter_that_gives_no_number_is_named(answer):
    with pytest.raises(ResultError, match=r"take of Own in filters\['t'\] returned .*; return a number or None"):
        fields({"t": [Own(lambda: Answers(answer))]}, {"t": 1})


@pytest.mark.parametrize("answer", [float("nan"), float("inf")])
def test_an_own_filter_that_gives_what_json_cannot_carry_leaves_the_field_out(answer):
    assert fields({"t": [Own(lambda: Answers(answer))], "u": []}, {"t": 1, "u": 1}) == [{"u": 1}]


async def later(value, now):
    return value


def fails():
    raise RuntimeError("no calibration")


class Awaited:
    take = staticmethod(later)


class Short:
    def take(self, value):
        return value


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (Own, r"has the class Own; write Own\(…\) with brackets"),
        (lambda value: value, r"is no filter; .* or an object with begin\(\)"),
        (Own(lambda: None), r"begin of Own in filters\['t'\] returns no object with take\(value, now\); return one"),
        (Own(fails), r"begin of Own in filters\['t'\] fails: no calibration; correct it"),
        (Own(Awaited), r"take of Own in filters\['t'\] is async; write def"),
        (Own(Short), r"take of Own in filters\['t'\] does not accept \(value, now\); add both parameters"),
    ],
)
def test_what_is_no_own_filter_is_refused_with_what_to_write(own, told):
    with pytest.raises(InvalidType, match=told):
        registered({"t": [own]})


def test_the_filters_beside_an_own_one_keep_their_state_over_a_restart():
    filters = {"t": [Median(3), Own()]}
    before, after = at_work(filters), at_work(filters)
    for value in (1, 9, 5):
        before.apply(reading({"t": value}))

    after.restore(before.to_json(0.0), 0.0, 0.0)

    assert after.apply(reading({"t": 9})).fields == {"t": 9}  # the median of 9, 5 and 9; the sum begins again
