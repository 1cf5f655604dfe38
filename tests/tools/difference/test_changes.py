"""What a comparison finds: properties of pictures, and of what differs between two."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.errors import LeadsmanError
from leadsman.tools.difference.difference import SWAPPED, changes, unsteady
from leadsman.tools.difference.picture import MAX_VALUES, PublishedMessage, found, picture_in, steady
from leadsman.tools.difference.told import MAX_LINES, lines_of

WORDS = st.sampled_from(["a", "b", "c"])
LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([0.5, 1.0]) | WORDS
DOCUMENTS = st.recursive(LEAVES, lambda each: st.lists(each, max_size=2) | st.dictionaries(WORDS, each, max_size=2))
PAYLOADS = DOCUMENTS.map(lambda each: json.dumps(each).encode()) | st.sampled_from([b"", b"on", b"\xff"])
TOPICS = st.sampled_from(["h/a/state", "h/b/state", "h/b/error", "homeassistant/device/h/a/config"])
MESSAGES = st.lists(st.builds(PublishedMessage, TOPICS, PAYLOADS, st.booleans()), max_size=6)
SETTINGS = st.dictionaries(WORDS, WORDS, max_size=2)
PICTURES = st.builds(lambda messages, settings: found(messages, settings, ()), MESSAGES, SETTINGS)


def one(*payloads, versions=()):
    """The picture of these payloads on one topic."""
    return found([PublishedMessage("h/a/state", each, retain=False) for each in payloads], {}, versions)


def differences(before, after):
    """What differs between them, but for the number of messages."""
    return [(each.path[3:], *each[1:]) for each in changes(before, after) if each.path[2:] != ("messages",)]


def places(node, path=()):
    """The places below a node."""
    for name, each in node["fields"].items():
        yield (*path, name)
        yield from places(each, (*path, name))


@given(PICTURES)
def test_a_picture_does_not_differ_from_itself(picture):
    assert list(changes(picture, picture)) == []
    assert steady(picture, picture) == picture


@given(PICTURES, PICTURES)
def test_exchanged_sides_have_the_same_changes_the_other_way_round(before, after):
    there = [(each.path, each.how, each.before, each.after) for each in changes(before, after)]
    back = [(each.path, SWAPPED[each.how], each.after, each.before) for each in changes(after, before)]

    assert there == back


@given(PICTURES, PICTURES)
def test_each_place_is_named_once(before, after):
    paths = [each.path for each in changes(before, after)]

    assert len(set(paths)) == len(paths)


@given(PICTURES, st.sampled_from(["appears", "disappears", "type", "value"]), st.data())
def test_each_single_change_is_found_and_named_once(before, how, data):
    after = copy.deepcopy(before)
    all_places = list(places(before))
    if not all_places:
        return
    path = data.draw(st.sampled_from(all_places))
    above = after
    for name in path[:-1]:
        above = above["fields"][name]
    node = above["fields"][path[-1]]
    match how:
        case "appears":
            path = (*path[:-1], "new")
            above["fields"]["new"] = node
        case "disappears":
            del above["fields"][path[-1]]
        case "type":
            node["types"] = ["bytes", *node["types"]]
        case "value":
            node["digest"] = "another"

    assert [(each.path, each.how) for each in changes(before, after)] == [(path, how)]


@given(PICTURES, PICTURES)
def test_what_differs_from_run_to_run_is_not_compared(run, another):
    assert list(changes(steady(run, another), steady(another, run))) == []


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (b'{"t": 1}', b'{"t": 2}', (("t",), "value", 1, 2)),
        (b'{"t": 1}', b'{"t": "1"}', (("t",), "type", "number", "text")),
        (b'{"t": 1}', b'{"t": null}', (("t",), "type", "number", "null")),
        (b'{"t": [1, 1]}', b'{"t": [1]}', (("t",), "value", "2 elements", "1 element")),
        (b'{"t": {"u": 1}}', b'{"t": 1}', (("t",), "type", "object", "number")),
        (b'{"t": 1}', b"{}", (("t",), "disappears", "number", None)),
        (b'{"t": true}', b'{"t": 1}', (("t",), "type", "boolean", "number")),
        (b"on", b"off", ((), "value", "on", "off")),
        (b"on", b"", ((), "type", "text", "empty")),
    ],
)
def test_a_change_of_a_payload(before, after, change):
    assert differences(one(before), one(after)) == [change]


def test_a_field_that_is_no_longer_in_each_message_has_another_type():
    assert differences(one(b'{"t": 1}', b'{"t": 1}'), one(b'{"t": 1}', b"{}")) == [
        (("t",), "type", "number", "missing or number")
    ]


def test_the_number_of_messages_and_whether_the_broker_keeps_them_are_compared():
    before = found([PublishedMessage("h/a/state", b"1", retain=False)], {}, ())
    after = found([PublishedMessage("h/a/state", b"1", retain=True)] * 2, {}, ())

    assert [(each.path[2], each.before, each.after) for each in changes(before, after)] == [
        ("messages", 1, 2),
        ("retained", False, True),
    ]


def test_a_value_that_is_not_in_the_picture_is_found_by_the_digest():
    first = [str(number).encode() for number in range(MAX_VALUES)]

    assert differences(one(*first, b"1"), one(*first, b"2")) == [((), "value", None, None)]


def test_an_entity_is_compared_with_what_it_was():
    def described(**component):
        payload = json.dumps({"dev": {"name": "a"}, "cmps": {"t": component}}).encode()
        return found([PublishedMessage("homeassistant/device/h/a/config", payload, retain=True)], {}, ())

    (change,) = changes(described(unit="K"), described(unit="°C"))

    assert change == (("entities", "h/a t", "unit"), "value", "K", "°C")


def test_the_versions_of_the_app_and_of_leadsman_are_no_difference():
    assert differences(one(b'{"v": "1.0"}', versions={"1.0"}), one(b'{"v": "2.0"}', versions={"2.0"})) == []


def written(**changed):
    node = one(b"1")
    return {"picture": 1, "app": "h", "leadsman": "0.1.0", "length": 60.0, "found": node, **changed}


def test_a_picture_is_read_as_it_was_written():
    assert picture_in(json.dumps(written()), "x.json") == written()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "x.json is no picture of an app"),
        ("[1]", "x.json is no picture of an app"),
        (json.dumps(written(picture=2)), "x.json was written by a newer version of leadsman"),
        (json.dumps(written(picture="1")), "x.json has the format '1', and this leadsman reads 1"),
        (json.dumps(written(found={})), "x.json is damaged"),
        (json.dumps(written(app=None)), "x.json is damaged"),
    ],
)
def test_what_is_no_picture_is_a_sentence(text, said):
    with pytest.raises(LeadsmanError, match=said):
        picture_in(text, "x.json")


def test_a_group_has_so_many_lines_and_then_their_number():
    after = found([], {f"s{number:02}": "1" for number in range(MAX_LINES + 3)}, ())
    after["fields"]["settings"]["fields"] |= {"s": after["fields"]["settings"]["fields"]["s00"]}
    before = found([], {"other": "1"}, ())

    lines = list(lines_of(written(found=before), written(found=after), list(changes(before, after))))

    assert lines[2] == "settings:"
    assert lines[3 + MAX_LINES] == "  and 5 more, which --json prints"
    assert lines[-1].startswith("25 changes. ")


@given(PICTURES, PICTURES)
def test_each_change_is_told_in_one_line(before, after):
    found_ = list(changes(before, after))
    lines = list(lines_of(written(found=before), written(found=after), found_))

    assert sum(line.startswith(("  +", "  -", "  ~")) for line in lines) <= len(found_)
    assert unsteady(before) == 0
    assert not any("\n" in line for line in lines)
