import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.text.identifiers import identifier, join_names, shorten

ALLOWED = re.compile(r"[a-zA-Z0-9_-]+")


@pytest.mark.parametrize("name", ["kitchen", "radon_24h", "living-room", "Wave2", "a" * 64])
def test_a_plain_name_is_its_own_identifier(name):
    assert identifier(name) == name


@pytest.mark.parametrize(
    ("name", "begin"),
    [("Küche", "Kuche-"), ("living room", "living_room-"), ("🔥", "x-"), ("a/b", "a_b-"), ("_x", "x-")],
)
def test_an_identifier_of_another_name_keeps_what_it_can(name, begin):
    assert identifier(name).startswith(begin)


@given(st.text())
def test_home_assistant_takes_any_identifier(name):
    assert ALLOWED.fullmatch(identifier(name))
    assert len(identifier(name)) <= 71
    assert "--" not in identifier(name)


@given(st.sets(st.text(), min_size=2, max_size=20))
def test_different_names_have_different_identifiers(names):
    assert len({identifier(name) for name in names}) == len(names)


@given(st.sets(st.lists(st.text(), min_size=1, max_size=3).map(tuple), min_size=2, max_size=10))
def test_different_paths_have_different_identifiers(paths):
    assert len({join_names(*path) for path in paths}) == len(paths)


def test_what_is_shortened_stays_the_same():
    assert shorten("house--kitchen--temperature") == "JT5tsTTt"


@given(st.sets(st.text(alphabet="abc-_", min_size=1), min_size=2, max_size=20))
def test_what_is_shortened_differs_and_has_8_characters(texts):
    found = {shorten(text) for text in texts}

    assert len(found) == len(texts)
    assert all(len(each) == 8 and ALLOWED.fullmatch(each) for each in found)
