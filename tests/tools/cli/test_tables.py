"""What the command line prints drives no terminal."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman.tools.cli.tables import MAX_COLUMNS, fill, json_text, table

TEXTS = st.text() | st.sampled_from(["\x1b[2J", "\x9b2J", "\x7f", "\u202eevil", "a\u200bb", "\u2028", "\ud800"])


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5))
def test_a_document_is_the_same_as_json_and_has_no_control_characters(document):
    text = json_text(document, indent=2)

    assert json.loads(text.encode()) == document
    assert not any(c < " " or "\x7f" <= c <= "\x9f" or "\u202a" <= c <= "\u202e" for c in text.replace("\n", ""))


@given(TEXTS)
def test_a_cell_of_a_table_is_one_line_without_control_characters(cell):
    assert [line for line in table(("head",), [(cell,)]).split("\n") if not line.isprintable()] == []
    assert len(table(("head",), [(cell,)]).split("\n")) == 3


def test_what_people_write_is_printed_as_it_is():
    assert json_text({"küche": "21,5 °C 🌡"}) == '{"küche": "21,5 °C 🌡"}'


@pytest.fixture
def columns(monkeypatch):
    return lambda number: monkeypatch.setenv("COLUMNS", str(number))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.text("abc def", max_size=90), min_size=3, max_size=3), max_size=5), st.integers(34, 300))
def test_a_table_fits_and_loses_no_word(columns, rows, width):
    columns(width)
    words = sorted(word for row in rows for cell in row for word in cell.split() if len(word) <= 10)

    lines = table(("device", "link", "why"), rows).split("\n")

    assert max(map(len, lines)) <= min(width, MAX_COLUMNS)
    assert not [word for word in words if not any(word in line for line in lines)]


def test_the_longest_column_gives_way_and_the_others_stay(columns):
    columns(40)
    lines = table(("device", "why"), [("boiler", "no answer for six minutes and twenty polls in a row")]).split("\n")

    assert lines == [
        "device  why",
        "------  --------------------------------",
        "boiler  no answer for six minutes and",
        "        twenty polls in a row",
    ]


def test_a_row_is_one_line_where_the_output_is_no_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    assert len(table(("device", "why"), [("boiler", "no answer " * 30)]).split("\n")) == 3
    assert "\n" not in fill("no answer " * 30)


def test_a_text_is_broken_between_words_and_its_further_lines_are_indented(columns):
    columns(20)

    assert fill("no answer for six-minutes and more", "  ", "    ") == "  no answer for\n    six-minutes and\n    more"
