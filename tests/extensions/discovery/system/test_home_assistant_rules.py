"""What an app announces keeps the rules of the installed Home Assistant, whatever its types say: its own schemas and
tables judge. A rule that our tables lack costs an entity."""

import re
from datetime import date, datetime
from typing import Annotated, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, create_model

from leadsman import App, Sensor
from leadsman.core.readings.sensor import STATE_CLASSES
from leadsman.errors import InvalidValue
from leadsman.testing import Harness
from leadsman_rigs.examples import examples
from leadsman_rigs.home_assistant_rules import Rules
from leadsman_rigs.homeassistant import WHY_NOT

pytestmark = pytest.mark.home_assistant

PATTERNS = (
    r"^\p{L}+( \p{L}+)*$",
    r"\A[A-Z]+\z",
    r"^(?i-u:abc)$",
    r"^(?<name>a)$",
    r"^[[:alpha:]]+$",
    r"^[a-z&&[^aeiou]]$",
    r"^\x{41}$",
    r"^a$|b",
    r"abc",
    r"^[A-Z]{2}[0-9]+$",
)
TEXTS = st.builds(
    lambda low, more, pattern: Annotated[str, Field(min_length=low, max_length=low + more, pattern=pattern)],
    st.integers(0, 400),
    st.integers(0, 400),
    st.none() | st.sampled_from(PATTERNS),
)


def ranges(kind, numbers, steps):
    """Numbers of a kind, with limits and a step."""
    limits = st.none() | st.sampled_from(numbers)
    return st.builds(
        lambda low, high, step: Annotated[kind, Field(ge=low, le=high, multiple_of=step)],
        *(limits, limits, st.none() | st.sampled_from(steps)),
    )


RANGES = ranges(float, [-1e300, -40.0, 0.0, 0.5, 100.0, 1e15, 1e300], [1e-9, 0.1, 5.0])
RANGES |= ranges(int, [-(10**30), -40, 0, 100, 10**15], [1, 5, 10**12])
WORDS = st.lists(st.text(max_size=12) | st.sampled_from(["off", "on", "None", "x" * 300]), min_size=1, max_size=4)
KINDS = st.one_of(
    *(TEXTS, RANGES, st.sampled_from([bool, date, datetime, list[str], dict[str, int], str, int, float])),
    WORDS.map(lambda words: Literal[tuple(dict.fromkeys(words))]),
)


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    if WHY_NOT.exists():
        pytest.skip(WHY_NOT.read_text().strip())
    with Rules(tmp_path_factory.mktemp("home-assistant")) as rules:
        yield rules


def sensor_of(**options):
    """The description of a field; None for one that is refused."""
    try:
        return Sensor(**options)
    except InvalidValue:
        return None


@pytest.fixture(scope="module")
def sensors(rules):
    """Descriptions as people write them: each class with each unit, and what goes beside it."""
    units = st.none() | st.sampled_from(sorted({unit for each in rules.tables()["units"].values() for unit in each}))
    return st.builds(
        sensor_of,
        unit=units,
        device_class=st.none() | st.sampled_from(rules.tables()["classes"]),
        state_class=st.none() | st.sampled_from(STATE_CLASSES),
        precision=st.none() | st.integers(0, 9),
        icon=st.none() | st.sampled_from(["mdi:water", "water", "x:"]),
        category=st.none() | st.sampled_from(["config", "diagnostic"]),
        name=st.none() | st.text(min_size=1, max_size=8),
        homeassistant=st.none()
        | st.sampled_from([{"expire_after": 0}, {"entity_picture": "https://x/y.png"}, {"force_update": True}]),
    )


def announced(kinds, described):
    """The configuration of a device that reads such fields, and is set by them."""
    fields = {
        f"f{number}": (Annotated[kind, sensor] | None if sensor else kind | None, None)
        for number, (kind, sensor) in enumerate(zip(kinds, described, strict=True))
    }
    payload = create_model("Payload", **fields)
    app = App("a", discovery="homeassistant")

    @app.telemetry("d", interval="30s")
    async def read() -> payload:
        return payload()

    @app.command("d")
    async def write(payload: payload) -> None: ...

    with Harness(app) as harness:
        harness.run("10s")
        return harness.broker.messages("homeassistant/device/a/d/config")[-1].json


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_types_say_home_assistant_takes_each_entity(rules, sensors, data):
    kinds = data.draw(st.lists(KINDS, min_size=1, max_size=6))
    described = [data.draw(sensors) for _ in kinds]

    assert rules.complaints(announced(kinds, described)) == []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_announced_only_if_all_read_it_alike(rules, pattern):
    payload = announced([Annotated[str, Field(pattern=pattern)]], [None])
    text = next(each for each in payload["cmps"].values() if each["p"] == "text")

    assert rules.complaints(payload) == []
    assert ("ptrn" in text) == (pattern == r"^[A-Z]{2}[0-9]+$")


def test_the_tables_agree_with_those_of_home_assistant(rules):
    """On each class that both know; a class that is newer than the installed release is ours alone."""
    found = rules.tables()
    wrong = []
    for kind in found["classes"]:
        assert sensor_of(device_class=kind) is not None, f"{kind} is new"
        for state in STATE_CLASSES:
            unit = "°" if state == "measurement_angle" else None
            ours = sensor_of(device_class=kind, state_class=state, unit=unit) is not None
            ours = ours or (unit is not None and takes_state(kind, state))
            if ours != (state in found["states"].get(kind, ())):
                wrong.append((kind, state, ours))
        wrong += [
            (kind, unit) for unit in found["units"].get(kind, ()) if sensor_of(device_class=kind, unit=unit) is None
        ]

    assert wrong == []


def takes_state(kind, state):
    """Whether the class takes the state class, where it takes no degrees."""
    try:
        Sensor("°", device_class=kind, state_class=state)
    except InvalidValue as error:
        return re.search("state_class", str(error)) is None
    return True
