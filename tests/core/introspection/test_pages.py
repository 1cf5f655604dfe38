"""Pages: together they are the whole document, and none is larger than it may be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.introspection.pages import (
    ENVELOPE,
    MAX_PAGE_BYTES,
    MIN_PAGE_BYTES,
    PIECE,
    DocumentWriter,
    around,
    merge,
    page_size,
)
from leadsman.core.mqtt.topics import encode

values = st.recursive(
    st.none() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
sections = st.one_of(
    st.tuples(st.just("value"), values),
    st.tuples(st.just("object"), st.dictionaries(st.text(max_size=8), values, max_size=12)),
    st.tuples(st.just("list"), st.lists(values, max_size=12)),
)
documents = st.dictionaries(st.text(min_size=1, max_size=8), sections, max_size=5)


def paged(document, largest):
    pages = DocumentWriter(largest)
    for name, (kind, content) in document.items():
        if kind == "value":
            pages.value(name, content)
        elif kind == "object":
            pages.begin(name, b"{}")
            for key, value in content.items():
                pages.member(key, value)
        else:
            pages.begin(name, b"[]")
            for value in content:
                pages.member(None, value)
    return pages.end()


@given(documents, st.integers(10, 400))
def test_the_pages_together_are_the_document(document, largest):
    found = [json.loads(page) for page in paged(document, largest)]

    whole = merge(found)
    assert whole == {name: content for name, (_, content) in document.items()}
    assert list(whole) == list(document)
    for name, (kind, content) in document.items():
        if kind == "object":
            assert list(whole[name]) == list(content)


@given(documents, st.integers(10, 400))
def test_a_page_is_too_large_only_for_the_one_thing_that_is_on_it(document, largest):
    for page in paged(document, largest):
        if len(page) > largest:
            found = json.loads(page)
            assert len(found) == 1
            assert all(document[name][0] == "value" or len(content) <= 1 for name, content in found.items())


@given(documents)
def test_without_a_limit_the_document_is_one_text(document):
    whole = json.loads(b"".join(paged(document, None)))

    assert whole == {name: content for name, (_, content) in document.items()}


def test_a_long_text_comes_in_pieces_of_some_kilobytes_and_they_part_where_a_member_ends():
    content = {f"d{number:05}": "x" * 90 for number in range(3000)}

    pieces = paged({"devices": ("object", content), "jobs": ("value", 1)}, None)

    assert len(pieces) == 5
    assert all(PIECE <= len(piece) < PIECE + 200 for piece in pieces[:-1])
    assert json.loads(b"".join(pieces)) == {"devices": content, "jobs": 1}


@given(documents)
def test_a_document_that_fits_is_one_page(document):
    whole = {name: content for name, (_, content) in document.items()}

    assert [json.loads(page) for page in paged(document, len(encode(whole)) + 10)] == [whole]


def test_pages_are_as_full_as_they_may_be():
    pages = paged({"devices": ("object", {f"d{number:03}": "x" * 90 for number in range(100)})}, 1000)

    assert len(pages) == 12
    assert all(900 < len(page) <= 1000 for page in pages[:-1])


def test_a_page_is_put_into_a_message():
    assert json.loads(around({"page": 1}, b'{"devices":{}}')) == {"page": 1, "devices": {}}
    assert json.loads(around({"page": 1}, b"{}")) == {"page": 1}
    assert json.loads(around({"app": "house"}, b'{"devices":{}}', 2, 3)) == {
        "app": "house",
        "page": 2,
        "pages": 3,
        "devices": {},
    }
    assert json.loads(around({"app": "house"}, b"{}", 1, 1)) == {"app": "house"}


@pytest.mark.parametrize(
    ("limit", "besides", "size"),
    [
        (None, 0, MAX_PAGE_BYTES),
        (10**9, 0, MAX_PAGE_BYTES),
        (50_000, 0, 50_000 - ENVELOPE),
        (50_000, 1000, 49_000 - ENVELOPE),
        (None, 1000, MAX_PAGE_BYTES - 1000),
        (100, 0, MIN_PAGE_BYTES),
    ],
)
def test_a_page_leaves_room_for_the_rest_of_the_packet(limit, besides, size):
    assert page_size(limit, besides) == size
