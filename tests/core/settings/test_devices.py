"""Sections about single devices: which of them counts, and in which line a key is."""

import fnmatch
import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.settings.devices import DeviceSections, fold, is_pattern
from leadsman.core.settings.documents import line_of, toml_lines, yaml_lines
from leadsman.core.settings.load import load
from leadsman.core.settings.sources import SettingEntry, Where

NAMES = st.text("ab-1", min_size=1, max_size=4)
PATTERNS = st.text("ab-1*?", min_size=1, max_size=4)


def sections(*names, option="interval", rank=1, text=False):
    return {
        name: {option: SettingEntry(("devices", name, option), number, rank, "x", text)}
        for number, name in enumerate(names)
    }


def effective(found, name, option="interval"):
    values = [layer.entries[option] for layer in found.of(name) if option in layer.entries]
    return values[-1].path[1] if values else None


@given(st.lists(PATTERNS, unique=True, max_size=6), NAMES)
def test_a_name_wins_then_the_pattern_with_most_letters_then_the_one_written_later(patterns, name):
    found = effective(DeviceSections(sections(*patterns)), name)

    matching = [each for each in patterns if is_pattern(each) and fnmatch.fnmatchcase(name, each)]
    letters = {each: sum(letter not in "*?" for letter in each) for each in matching}
    best = [each for each in matching if letters[each] == max(letters.values())]
    assert found == (name if name in patterns else best[-1] if best else None)


@given(st.lists(PATTERNS, unique=True, max_size=6), st.lists(NAMES, unique=True, max_size=6))
def test_a_section_is_unmatched_if_it_is_about_no_device(patterns, names):
    found = DeviceSections(sections(*patterns))

    assert set(found.unmatched(names)) == {
        each for each in patterns if not any(layer.section == each for name in names for layer in found.of(name))
    }


def test_each_option_is_taken_by_itself():
    found = DeviceSections(sections("room-*") | sections("room-1", option="retry"))

    assert effective(found, "room-1") == "room-*"
    assert effective(found, "room-1", "retry") == "room-1"


def test_within_a_name_the_rank_counts_wherever_its_variable_put_it():
    found = DeviceSections(sections("living-room", rank=1) | sections("living_room", rank=3, text=True))

    assert effective(found, "living-room") == "living_room"
    assert fold("Living-Room") == "living_room"


def test_a_section_of_a_file_is_about_no_other_name_than_its_own():
    assert effective(DeviceSections(sections("living_room")), "living-room") is None


KEYS = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True), st.text("ab *.é#=[]'\"\\", max_size=4))
VALUES = st.one_of(
    st.integers(0, 9),
    st.sampled_from(
        ['"x"', "'a = 1'", '"""\n[no]\nkey = 1\n"""', "'''\n'''", "[\n1, # [\n2,\n]", "{ a = 1, b = { c = 2 } }"]
    ),
)


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4))
def test_each_key_of_toml_is_found_in_the_line_where_it_is(tables):
    lines, expected = [], {}
    for table, keys in tables.items():
        lines.append(f"[devices . {json.dumps(table, ensure_ascii=False)}] # a comment")
        expected.setdefault(("devices",), 1)
        expected["devices", table] = len(lines)
        for key, value in keys.items():
            expected["devices", table, key] = len(lines) + 1
            lines += f"{json.dumps(key, ensure_ascii=False)} = {value}".split("\n")
    text = "\n".join(lines)
    tomllib.loads(text)  # it is TOML

    assert toml_lines(text) == expected


def test_a_dotted_key_is_found_below_its_table_and_a_key_within_braces_in_its_line():
    lines = toml_lines("\n[devices.boiler]\ncircuit_breaker.threshold = 5\nbackoff = { linear = { step = 1 } }\n")

    assert line_of(lines, ("devices", "boiler", "circuit_breaker", "threshold")) == 3
    assert line_of(lines, ("devices", "boiler", "backoff", "linear", "step")) == 4
    assert line_of(lines, ("devices", "boiler", "retry")) == 2
    assert line_of(lines, ("mqtt", "url")) is None


def test_keys_of_yaml_are_found_too():
    text = "devices:\n  boiler: &same\n    interval: 1m\n  'room-*': {retry: 3}\n  oven: *same\n"

    lines = yaml_lines(text)

    assert [line_of(lines, ("devices", *path)) for path in (("boiler", "interval"), ("room-*", "retry"))] == [3, 4]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("leadsman.toml", "[devices.boiler]\ninterval = '1m'\n\n[env.lab.devices.boiler]\nretry = 3\n"),
        ("leadsman.yaml", "devices: {boiler: {\n  interval: 1m}}\n\nenv: {lab: {devices: {boiler: {\n  retry: 3}}}}\n"),
    ],
)
def test_the_origin_of_a_value_has_its_line_also_in_a_section_for_one_place(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    found = load("house", None, Where({"LEADSMAN_ENV": "lab"}, tmp_path, secrets=tmp_path / "none")).devices

    origins = {option: entry.origin.removeprefix(f"{tmp_path}/") for option, entry in found["boiler"].items()}
    assert origins == {"interval": f"{name} line 2", "retry": f"{name} [env.lab] line 5"}
