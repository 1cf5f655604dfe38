"""How a simulated day looks: the picture and the lines on a terminal."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.simulation.drawing import WIDTH, Pen, axis, brief, lanes_of, picture, strips
from leadsman.tools.simulation.outcome import (
    FAILED,
    WRITTEN,
    DeviceDay,
    Lost,
    PolicyDay,
    Stage,
    figures_of,
)
from leadsman.tools.simulation.scenario import OUTAGES, plan_of

DAY = 86_400.0
DEVICES = tuple(f"device_{number}" for number in range(12))
ADAPTERS = ("SerialPort", "BleRadio 'a name that is much too long for its place'")


def stage(length=DAY, devices=DEVICES, adapters=ADAPTERS):
    begins = datetime(2026, 3, 29, tzinfo=UTC)
    plan = plan_of(OUTAGES, adapters, devices, length, 1)
    return Stage(
        "house", "a day", devices, adapters, (), (), (), plan, begins, length, 1, (3600.0,), "retry=3 <&> more"
    )


def outcome(policy, length=DAY, open_from=3000.0):
    failures = tuple(float(at) for at in range(1000, 9000, 500))
    records = [DeviceDay(name, length) for name in DEVICES]
    for each in records:
        each.calls.append(0.0)
        each.readings.append(0.0)
    failing = records[0]
    failing.calls += [*failures, 9000.0]
    failing.failures += failures
    failing.readings.append(9000.0)
    failing.lost.append(Lost(2000.0, FAILED, 70))
    failing.circuits += [(open_from, "open"), (8000.0, "closed")]
    return PolicyDay(policy, tuple(records), figures_of(records))


def test_a_picture_is_xml_with_a_strip_for_each_policy_and_words_for_those_who_do_not_see_it():
    drawn = picture(stage(), [outcome(WRITTEN), outcome("{a: 'b' & <c>}")], ["Do this & that."])

    root = ElementTree.fromstring(drawn)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "as written: retry=3 <&> more" in texts
    assert "{a: 'b' & <c>}" in texts
    assert "Do this & that." in texts
    assert "set back 45s" in texts
    assert "daylight saving" in texts
    described = root.find("{http://www.w3.org/2000/svg}desc").text
    assert "70 of 83 readings lost, longest gap 2h13m" in described


def test_the_same_day_is_the_same_picture():
    assert picture(stage(), [outcome(WRITTEN)], ["a"]) == picture(stage(), [outcome(WRITTEN)], ["a"])


def test_everything_lies_within_the_picture():
    drawn = picture(stage(), [outcome(WRITTEN)], ["word " * 200])

    root = ElementTree.fromstring(drawn)
    width, height = map(float, root.get("viewBox").split()[2:])
    places = [(float(each.get("x")), float(each.get("y"))) for each in root.iter() if each.get("x")]
    assert len(places) > 20
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


@pytest.mark.parametrize(("colour", "blocks"), [(True, True), (False, True), (False, False)])
def test_lines_fit_a_terminal_of_eighty_columns(colour, blocks):
    text = strips(
        stage(),
        [outcome(WRITTEN), outcome("{a: " + "b" * 100 + "}")],
        ["word " * 50],
        Pen(colour=colour, blocks=blocks),
    )

    bare = re.sub(r"\x1b\[\d+m", "", text)
    assert max(map(len, bare.splitlines())) <= WIDTH
    assert (bare != text) is colour
    assert text.isascii() is not (blocks or "…" in text)


def test_a_lane_shows_how_much_of_it_is_away():
    line = Pen(colour=False, blocks=True).lane("label", [0.0, 0.001, 0.01, 0.5, 1.0], "31")

    assert line == "  label      ··▁▄█"


def test_the_last_hour_of_the_axis_is_written_out():
    lines = strips(stage(), [outcome(WRITTEN)], [], Pen(colour=False, blocks=True)).splitlines()

    assert [line.split()[-2:] for line in lines if line.lstrip().startswith("0 h")] == [["24", "h"]] * 2


def test_a_strip_without_an_open_circuit_has_no_line_for_it():
    pen = Pen(colour=False, blocks=True)

    assert "circuit" in strips(stage(), [outcome(WRITTEN)], [], pen)
    assert "circuit" not in strips(stage(), [outcome(WRITTEN, open_from=8000.0)], [], pen)


def test_many_adapters_share_one_lane():
    adapters = tuple(f"SerialPort {number}" for number in range(9))

    names = [lane.name for lane in lanes_of(stage(adapters=adapters), 100)]

    assert names == ["adapters", "devices", "broker"]


@given(st.floats(0, 1e7))
def test_a_short_duration_has_two_parts_at_most(seconds):
    assert re.fullmatch(r"\d\.\ds|\d+s|\d+m\d\ds|\d+h\d\dm", brief(seconds))


@given(st.floats(60, 31 * DAY), st.integers(4, 12))
def test_an_axis_has_no_more_marks_than_fit(length, most):
    marks = axis(length, most)

    assert len(marks) <= most + 1 or marks[1][1] == "168 h"
