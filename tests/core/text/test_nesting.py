"""How deep a JSON text is, before it is parsed."""

import json

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.text import is_nested_deeper

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('[]{}"\\ax', max_size=6),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text('[]{}"\\a', max_size=3), inside, max_size=3),
    max_leaves=20,
)


def depth(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


@given(JSON, st.integers(0, 6))
def test_what_is_counted_is_the_depth_of_the_value_whatever_its_texts_contain(value, levels):
    assert is_nested_deeper(json.dumps(value), levels) == (depth(value) > levels)


@given(st.text('[]{}"\\a', max_size=40), st.integers(0, 40))
def test_any_text_has_an_answer_and_is_less_deep_than_it_has_brackets(text, levels):
    assert not is_nested_deeper(text, levels) or text.count("[") + text.count("{") > levels


def test_brackets_in_a_text_that_does_not_end_are_no_depth():
    assert not is_nested_deeper('["' + "[" * 100, 20)
    assert is_nested_deeper("[" * 60_000, 20)
