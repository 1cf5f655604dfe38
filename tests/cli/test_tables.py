"""What the command line prints drives no terminal."""

import json

from hypothesis import given
from hypothesis import strategies as st

from leadsman.cli.tables import json_text, table

TEXTS = st.text() | st.sampled_from(["\x1b[2J", "\x9b2J", "\x7f", "\u202eevil", "a\u200bb", "\u2028"])


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5))
def test_a_document_is_the_same_as_json_and_has_no_control_characters(document):
    text = json_text(document, indent=2)

    assert json.loads(text) == document
    assert not any(c < " " or "\x7f" <= c <= "\x9f" or "\u202a" <= c <= "\u202e" for c in text.replace("\n", ""))


@given(TEXTS)
def test_a_cell_of_a_table_is_one_line_without_control_characters(cell):
    assert [line for line in table(("head",), [(cell,)]).split("\n") if not line.isprintable()] == []
    assert len(table(("head",), [(cell,)]).split("\n")) == 3


def test_what_people_write_is_printed_as_it_is():
    assert json_text({"küche": "21,5 °C 🌡"}) == '{"küche": "21,5 °C 🌡"}'
