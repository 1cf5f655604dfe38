"""What a registry lists as retained, and what of it an app no longer has."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.introspection.retained import (
    APP,
    MOST_ELSEWHERE,
    MOST_PAGES,
    RETAINED,
    Listed,
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


def test_the_topics_elsewhere_that_are_looked_at_are_bounded():
    topics = [f"{place}/device/house/a/config" for place in range(MOST_ELSEWHERE + 1)]

    assert len(listed({**HEAD, "devices": {}, "others": topics}).elsewhere) == MOST_ELSEWHERE
