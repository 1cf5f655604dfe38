"""Assertions about the figures of a day."""

import contextlib
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.errors import InvalidValue
from leadsman.loop.durations import human
from leadsman.tools.simulation.assertion import Assertion, show_figure
from leadsman.tools.simulation.outcome import DURATIONS, PERCENTAGES, Figures

FIGURES = Figures(1440, 1400, 40, 97.2222, 12, 2.3, 60.0, 540.0, 700.5, 1400.0, 1600, 210, 3, 0)
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
COUNTS = sorted(set(Figures._fields) - DURATIONS - PERCENTAGES)


@st.composite
def comparisons(draw):
    """An assertion and its truth."""
    kind = draw(st.sampled_from(["count", "duration", "percentage"]))
    sign = draw(st.sampled_from(sorted(SIGNS)))
    if kind == "count":
        name, value = draw(st.sampled_from(COUNTS)), draw(st.integers(0, 3000))
        written = str(value)
    elif kind == "duration":
        name, value = draw(st.sampled_from(sorted(DURATIONS))), draw(st.integers(1, 3000))
        written = human(value)
    else:
        name, value = "availability", draw(st.integers(1, 100))
        written = f"{value}%"
    return f"{name} {sign} {written}", SIGNS[sign](getattr(FIGURES, name), value)


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda each: (f"not ({each[0]})", not each[1])),
        st.tuples(inner, inner).map(lambda pair: (f"({pair[0][0]}) and ({pair[1][0]})", pair[0][1] and pair[1][1])),
        st.tuples(inner, inner).map(lambda pair: (f"({pair[0][0]}) or ({pair[1][0]})", pair[0][1] or pair[1][1])),
    ),
    max_leaves=8,
)


@given(CONDITIONS)
def test_an_assertion_holds_as_the_figures_say(written):
    text, truth = written

    assert Assertion(text).holds(FIGURES) is truth


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("gap_p99 < 10m and attempts < 4000", True),
        ("gap_p99<9m", False),
        ("lost == 0 or availability >= 97.2%", True),
        ("availability >= 97.2 and 98 > availability and availability > 0", True),
        ("availability >= 98", False),
        ("lost == 0 or lost > 1 and attempts < 1000", False),
        ("not lost > 40", True),
        ("NOT lost > 40 AND (gap_max > 11m or lost < 1)", True),
        ("gap_p50 != 0", True),
        ("0 < gap_p50", True),
        ("gap_p90 < gap_p99", True),
        ("gap_max <= 11m40s500ms", True),
    ],
)
def test_and_binds_closer_than_or_and_not_closer_than_both(text, holds):
    assert Assertion(text).holds(FIGURES) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the end is not expected here"),
        ("   ", "the end is not expected here"),
        ("gap_p99 <", "the end is not expected here"),
        ("gap_p99 10m", "'10m' at character 9 is not expected here"),
        ("gap_p99 < 10m attempts", "'attempts' at character 15 is not expected here"),
        ("gap_p98 < 10m", "'gap_p98' is not a figure; did you mean 'gap_p99'?"),
        ("zzz < 1", "the figures are slots, readings, lost"),
        ("gap_p99 < 10", "gap_p99 is a duration such as 10m, and 10 is a count"),
        ("attempts < 10m", "attempts is a count, and 10m is a duration"),
        ("availability > 0.99", "availability is a percentage such as 99.5%, and 0.99 is a count"),
        ("attempts > 99%", "99% is a percentage"),
        ("availability > lost", "a percentage"),
        ("(lost < 1", "the end is not ')'"),
        ("lost < 1)", "')' at character 9"),
        ("lost = 1", "'=' at character 6"),
        ("1 < 2", "1 < 2 compares no figure"),
        ("__import__('os').system('x')", "'__import__' is not a figure"),
        ("lost < 1; lost", "';' at character 9"),
        ("not", "the end"),
        ("gap_p99 < 5s10m", "5s10m"),
        ("(" * 1000 + "lost < 1", "more than 50 brackets"),
        ("not " * 1000 + "lost < 1", "more than 50 brackets"),
        ("lost", "'lost' at character 1 is not one comparison"),
        ("0 < lost < 5", "'0' at character 1 is not one comparison"),
        ("lost(lost) < 1", "'lost' at character 1 is not one comparison"),
        ("[lost for lost in lost]", "'[lost' at character 1 is not a name"),
        ("1and lost < 2", "'1and' at character 1"),
        ("lambda: lost", "'lambda' is not a figure"),
        ("gap_p99 < 10M", "'10M' at character 11"),
    ],
)
def test_what_is_no_assertion_is_refused_with_the_place_and_the_names(text, said):
    with pytest.raises(InvalidValue, match="assertion") as refused:
        Assertion(text)

    assert said in str(refused.value)


@given(st.text() | st.text("()<>=! andortl0123smh%."))
def test_no_text_does_anything_but_be_read_or_refused(text):
    with contextlib.suppress(InvalidValue):
        assert Assertion(text).holds(FIGURES) in (True, False)


def test_the_figures_of_an_assertion_are_shown_in_their_units():
    assertion = Assertion("not (lost < 1 or gap_p99 < 1m) and availability > 5% and lost < 3")

    assert assertion.figures == ("lost", "gap_p99", "availability")
    assert [show_figure(name, getattr(FIGURES, name)) for name in (*assertion.figures, "attempts")] == [
        "40",
        "9m",
        "97.2222%",
        "1,600",
    ]
