"""What a registry lists as retained, what of it an app no longer has, and which removed descriptions it lists."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.introspection.retained import (
    APP,
    LISTED_FOR,
    MOST_PAGES,
    MOST_PLACES,
    MOST_REMOVED,
    RETAINED,
    Listed,
    RemovedDescription,
    RemovedDescriptions,
    no_longer,
    retained_of,
)

HEAD = {"app": "house", "client_id": "house", "version": "1"}


def entry(name, *, retained=RETAINED, others=()):
    topics = {word: f"house/{name}/{word}" for word in (*RETAINED, "error", "get")}
    return {"kinds": ["telemetry"], "topics": topics, "retained": list(retained), "others": list(others)}


def listed(*pages):
    found = Listed("house")
    for number, page in enumerate(pages, 1):
        found.add("house/registry" if number == 1 else f"house/registry/{number}", json.dumps(page).encode())
    return found


def of(name):
    return [f"house/{name}/{word}" for word in RETAINED]


def test_the_retained_topics_of_all_pages_are_listed():
    found = listed(
        {**HEAD, "devices": {"a": entry("a")}, "page": 1, "pages": 2},
        {**HEAD, "devices": {"b": entry("b", others=["house/b/map"])}, "others": ["house/old/state"], "page": 2},
    )

    assert [each for each in found.topics() if each[1]] == [
        ("a", tuple(of("a"))),
        ("b", (*of("b"), "house/b/map")),
        (APP, ("house/old/state",)),
    ]


def test_a_registry_is_complete_with_its_last_page():
    first = {**HEAD, "devices": {}, "page": 1, "pages": 3}

    assert not Listed("house").is_complete
    assert [listed(*[first] * pages).is_complete for pages in (1, 2, 3, 4)] == [False, False, True, True]
    assert listed({**HEAD, "devices": {}}).is_complete


def test_a_page_of_another_app_is_passed_over():
    stranger = {"app": "cellar", "client_id": "house", "devices": {"b": entry("b")}}

    found = listed({**HEAD, "devices": {"a": entry("a")}}, stranger)
    assert (found.app, found.client_id, set(found.pages)) == ("house", "house", {1, 2})
    assert [name for name, _ in found.topics()] == ["a", APP]


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("house/registry", b"online"),
        ("house/registry", b"[1]"),
        ("house/registry", b'{"devices":[]}'),
        ("house/registry", b"[" * 100_000),
        ("house/registry", b"\xff"),
        ("house/registry/1", b'{"devices":{}}'),
        ("house/registry/x", b'{"devices":{}}'),
        (f"house/registry/{MOST_PAGES + 1}", b'{"devices":{}}'),
        ("house/registry/" + "9" * 5000, b'{"devices":{}}'),
        ("house/registry/2/x", b'{"devices":{}}'),
    ],
)
def test_what_is_no_page_is_passed_over(topic, payload):
    found = Listed("house")
    found.add(topic, payload)

    assert (found.pages, found.app, found.is_complete) == ({}, None, False)


@pytest.mark.parametrize("topic", ["", "#", "house/+/state", "$SYS/x", "a\nb", "x" * 500, None, 5, ["a"]])
def test_what_can_be_no_topic_is_never_listed(topic):
    page = {"topics": {"state": topic, "availability": "house/a/availability"}, "retained": ["state", "availability"]}

    assert retained_of(page | {"others": [topic]}) == ["house/a/availability"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
)


@given(JSON, JSON, JSON, JSON)
def test_whatever_a_broker_keeps_is_read_without_an_error(page, devices, topics, words):
    documents = [
        page,
        {**HEAD, "devices": devices, "pages": page, "others": topics},
        {**HEAD, "devices": {"a": {"topics": topics, "retained": words, "others": page}}},
    ]
    for document in documents:
        found = listed(document, document)

        assert found.is_complete in (True, False)
        assert all(isinstance(topic, str) for _, topics in found.topics() for topic in topics)


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)
OTHERS = st.lists(st.sampled_from(["house/a/map", "house/a/log", "ha/a/config", "ha/a/old"]), unique=True)


@given(st.lists(st.sampled_from(of("a")), unique=True), OTHERS, st.lists(st.sampled_from(of("a")), unique=True), OTHERS)
def test_only_what_was_listed_and_is_no_longer_there_goes_away(before, others, now, others_now):
    gone = no_longer([*before, *others], [*now, *others_now], "house/a/")

    assert set(gone) <= {*before, *others} - {*now, *others_now}
    assert set(before) - set(now) <= set(gone), "a topic of leadsman's own that is no longer retained goes"
    assert {topic for topic in others if topic.startswith("ha/")} - set(others_now) <= set(gone)
    assert not [topic for topic in gone if topic in ("house/a/map", "house/a/log")], "a handler may use it again"
    assert sorted(no_longer([*before, *others], None, "house/a/")) == sorted([*before, *others])
    assert no_longer(before, before, "house/a/") == []


CONFIGURATION = "homeassistant/device/house/a/config"
OURS = {CONFIGURATION: b'{"o":{"name":"leadsman house"}}'}


def test_what_is_outside_the_prefix_is_listed_if_its_description_says_whose_it_is():
    found = listed({**HEAD, "devices": {"a": entry("a", retained=[], others=[CONFIGURATION])}})
    assert dict(found.topics()) == {"a": (), APP: ()}

    found.prove({CONFIGURATION: b'{"o":{"name":"leadsman house2"}}'})
    assert dict(found.topics()) == {"a": (), APP: ()}

    found.prove(OURS, found.places)
    assert dict(found.topics()) == {"a": (), APP: ()}, "it could not be read"

    found.prove(OURS)
    assert dict(found.topics()) == {"a": (CONFIGURATION,), APP: ()}


OTHER_PEOPLES = [
    *("zigbee2mqtt/bridge/state", "homeassistant/sensor/other/config", "other/app/state", "house2/x/state"),
    *("house", "hous/a/state", "House/a/state", "/house/a/state"),
    *("homeassistant/device/house2/a/config", "homeassistant/device/house/a/state", "homeassistant/status"),
    *("house/status", "house/registry", "house/registry/2", "house/lease", "house/error", "house/introspect"),
    *("house/a/set", "house/a/get", "house/a/hold/set", "house/set"),
    *("house/cellar/status", "house/cellar/registry"),
]
TOPIC = st.sampled_from([*OTHER_PEOPLES, *OURS, *of("a"), "house/a/map"]) | st.builds(
    "{}/{}".format, st.sampled_from(["house", "house2", "homeassistant/device/house"]), st.text(max_size=9)
)
PAGE = st.fixed_dictionaries(
    {"devices": st.dictionaries(st.text(max_size=3), st.lists(TOPIC, max_size=5), max_size=3)},
    optional={"others": st.lists(TOPIC, max_size=5)},
)


@given(
    PAGE, st.dictionaries(TOPIC, st.sampled_from([*OURS.values(), b"{}", b'{"o":{"name":"leadsman house2"}}', b"[1"]))
)
def test_whatever_a_registry_says_nothing_of_other_programs_is_listed(page, kept):
    devices = {name: {"others": topics} for name, topics in page["devices"].items()}
    found = listed({**HEAD, **page, "devices": devices})
    found.prove(kept)

    topics = [topic for _, each in found.topics() for topic in each]
    assert not set(topics) & set(OTHER_PEOPLES)
    for topic in topics:
        assert topic.startswith("house/") or b'leadsman house"' in kept[topic]


def test_descriptions_are_looked_at_in_few_places_only():
    topics = [f"{place}/device/house/a/config" for place in range(1000)]
    found = listed({**HEAD, "devices": {}, "others": topics})

    assert len(found.places) == MOST_PLACES
    assert len(found.claims) == MOST_PLACES


DESCRIPTION = json.dumps({"o": {"name": "leadsman house"}, "cmps": {}})
REMOVED = {"topic": "homeassistant/device/house/b/config", "payload": DESCRIPTION, "until": 5}


def test_the_descriptions_that_were_removed_are_read_with_the_page():
    page = {**HEAD, "devices": {}, "removed": [REMOVED]}

    (found,) = listed(page).pages[1].removed

    assert found == (REMOVED["topic"], DESCRIPTION.encode(), 5.0)


@pytest.mark.parametrize(
    "planted",
    [
        {"topic": "homeassistant/device/cellar/b/config"},
        {"topic": "house/b/set"},
        {"topic": "homeassistant/device/house/+/config"},
        {"payload": json.dumps({"o": {"name": "leadsman cellar"}})},
        {"payload": "\ud800"},
        {"payload": 5},
        {"until": float("nan")},
        {"until": True},
        {"until": "5"},
    ],
)
def test_what_cannot_have_been_a_description_of_this_app_is_passed_over(planted):
    page = {**HEAD, "devices": {}, "removed": [{**REMOVED, **planted}, "text", None]}

    assert listed(page).pages[1].removed == ()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda each: st.lists(each)))
def test_a_list_of_removed_descriptions_that_makes_no_sense_is_passed_over(value):
    assert listed({**HEAD, "devices": {}, "removed": value}).pages[1].removed == ()


DAY = 86400.0


def current(found, now):
    return [each.topic for each in found.current(now)]


def test_what_was_removed_is_listed_for_thirty_days():
    found = RemovedDescriptions()
    found.add("a", b"{}", 0.0)

    assert current(found, 30 * DAY - 1) == ["a"]
    assert current(found, 30 * DAY) == []


def test_what_this_run_removed_counts_and_not_what_an_earlier_run_listed_of_it():
    found = RemovedDescriptions()
    found.add("a", b"new", 5.0)

    found.take([RemovedDescription("a", b"old", 1.0), RemovedDescription("b", b"old", LISTED_FOR)], 5.0)

    assert {each.topic: each.payload for each in found.current(5.0)} == {"a": b"new", "b": b"old"}


def test_a_clock_that_was_far_ahead_lists_nothing_for_longer_than_thirty_days():
    found = RemovedDescriptions()
    found.take([RemovedDescription("a", b"{}", 1e11)], 0.0)

    assert current(found, 30 * DAY) == []


def test_what_readers_have_seen_is_listed_no_more():
    found = RemovedDescriptions()
    found.add("a", b"{}", 0.0)

    assert [found.forget("a"), found.forget("a")] == [True, False]
    assert current(found, 0.0) == []


removals = st.tuples(st.sampled_from("abcdef"), st.integers(1, MOST_REMOVED), st.floats(0, 60 * DAY))


@given(st.lists(removals, max_size=20))
def test_the_newest_are_listed_and_never_more_than_there_is_room_for(given_removals):
    found = RemovedDescriptions()
    for topic, size, at in sorted(given_removals, key=lambda each: each[2]):
        found.add(topic, bytes(size), at)

        now = found.current(at)
        assert now[-1] == (topic, bytes(size), at + LISTED_FOR)
        assert sum(len(each.payload) for each in now) <= MOST_REMOVED
        assert [each.until for each in now] == sorted(each.until for each in now)
