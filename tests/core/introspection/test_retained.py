"""What a registry lists as retained, and what of it an app no longer has."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.introspection.retained import (
    APP,
    MAX_FOREIGN_TOPICS,
    MAX_PAGES,
    RETAINED,
    Listed,
    Retained,
    compare,
    listed_for,
    ours,
)
from leadsman.core.mqtt.topics import Topics

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
        (f"house/registry/{MAX_PAGES + 1}", b'{"devices":{}}'),
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

    assert listed_for(page | {"others": [topic]}) == ["house/a/availability"]


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


TOPICS, ROOTED = Topics("house"), Topics("house", root="b")
CONFIGURATION = "homeassistant/device/house/a/config"
OURS = {CONFIGURATION: b'{"o":{"name":"leadsman house"}}'}
MAYBE = [
    *(topic for name in "abc" for topic in (*of(name), f"house/{name}/map", f"house/{name}/map/floor")),
    *("house/state", "house/ledger", "house/map", CONFIGURATION, "homeassistant/device/house/c/config"),
]
SOME = st.lists(st.sampled_from(MAYBE), unique=True)
DEVICES = st.dictionaries(st.sampled_from("abc"), st.builds(Retained, SOME.map(frozenset), st.booleans()))
PLACES = st.sampled_from([TOPICS, ROOTED])


@given(SOME, PLACES, DEVICES, st.frozensets(st.sampled_from(MAYBE)))
def test_only_what_was_listed_and_nothing_wants_goes_away(listed, topics, now, described):
    gone, adopted = compare(listed, topics, now.get, described.__contains__)
    kept = [topic for _, topic in adopted]

    assert {*gone} <= {*listed}
    assert not {*gone} & {*kept}
    for topic in listed:
        owner = now.get(topics.device_of(topic))
        if not topic.startswith("house/"):
            assert (topic in gone) == (topic not in described)
        elif owner is None:
            assert topic in gone, "there is no such device"
        elif topic in owner.topics:
            assert topic not in gone
        elif not owner.adds or topic.rsplit("/", 1)[-1] in RETAINED:
            assert topic in gone, "a topic of leadsman's own that is no longer retained goes"
        elif topic.startswith("house/b/") and topics is ROOTED:
            assert topic in gone, "the root device publishes to no topics of several levels"
        else:
            assert topic in kept, "a handler may use it again"


@given(SOME, PLACES, DEVICES, st.frozensets(st.sampled_from(MAYBE)), st.randoms())
def test_what_goes_away_depends_on_no_order_and_is_found_once(listed, topics, now, described, random):
    gone, adopted = compare(listed, topics, now.get, described.__contains__)
    again = random.sample(listed * 2, 2 * len(listed))

    found = compare(again, topics, now.get, described.__contains__)
    assert (sorted(found.gone), sorted(found.adopted)) == (sorted(gone), sorted(adopted))
    left = [topic for topic in listed if topic not in gone]
    assert compare(left, topics, now.get, described.__contains__).gone == []
    assert compare(listed, topics, lambda _: None, lambda _: False).gone == listed, "an app that is no longer used"


@given(SOME, PLACES, DEVICES, st.sampled_from("abc"))
def test_a_device_more_removes_nothing_more(listed, topics, now, name):
    fewer = {each: found for each, found in now.items() if each != name}

    assert {*compare(listed, topics, now.get, bool).gone} <= {*compare(listed, topics, fewer.get, bool).gone}


@pytest.mark.parametrize(
    ("topic", "owner"),
    [("house/state", "b"), ("house/map", "b"), ("house/set/result", "b"), ("house/a/state", "a"), ("house/b/map", "b")],
)
def test_each_topic_of_one_level_is_that_of_the_root_device(topic, owner):
    assert ROOTED.device_of(topic) == owner


def test_what_is_outside_the_prefix_is_ours_if_its_description_says_so():
    found = [CONFIGURATION, "house/a/state"]

    assert ours(found, "house", {}) == ["house/a/state"]
    assert ours(found, "house", {CONFIGURATION: b'{"o":{"name":"leadsman house2"}}'}) == ["house/a/state"]
    assert ours(found, "house", OURS) == found


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

    topics = ours((topic for _, each in found.topics() for topic in each), "house", kept)
    assert not set(topics) & set(OTHER_PEOPLES)
    for topic in topics:
        assert topic.startswith("house/") or b'leadsman house"' in kept[topic]


def test_the_topics_elsewhere_that_are_looked_at_are_bounded():
    topics = [f"{place}/device/house/a/config" for place in range(MAX_FOREIGN_TOPICS + 1)]

    assert len(listed({**HEAD, "devices": {}, "others": topics}).elsewhere) == MAX_FOREIGN_TOPICS
