"""What `leadsman clean` removes, as a function of the registry and of the devices that an app has now."""

import json

from hypothesis import given
from hypothesis import strategies as st

from leadsman.introspection.retained import RETAINED, Listed, retained_of
from leadsman.mqtt.topics import Topics
from leadsman.tools.cli.commands.clean import Remaining, everything, left_behind

TOPICS = Topics("house")
HEAD = {"app": "house", "client_id": "house"}


def entry(name, others=()):
    topics = {word: f"house/{name}/{word}" for word in (*RETAINED, "error")}
    return {
        "kinds": ["telemetry"],
        "topics": topics,
        "retained": list(RETAINED),
        "others": [each.format(name) for each in others],
    }


def listed(*pages):
    found = Listed("house")
    for number, page in enumerate(pages, 1):
        found.add("house/registry" if number == 1 else f"house/registry/{number}", json.dumps(page).encode())
    found.prove(dict.fromkeys(found.elsewhere, b'{"o":{"name":"leadsman house"}}'))
    return found


def registry(devices, others=(), size=2):
    """The pages of a registry with so many devices on each."""
    names = list(devices)
    pages = [names[first : first + size] for first in range(0, len(names), size)] or [[]]
    documents = [
        {**HEAD, "devices": {name: devices[name] for name in some}, "page": number, "pages": len(pages)}
        for number, some in enumerate(pages, 1)
    ]
    documents[0]["others"] = list(others)
    return listed(*documents)


def of(name):
    return [f"house/{name}/{word}" for word in RETAINED]


def registered(names):
    """Devices whose handlers ask for their `Context`."""
    return Remaining({name: of(name) for name in names}, set(names))


def test_a_device_that_publishes_nothing_else_any_more_loses_its_further_topics():
    former = registry({name: entry(name, ["house/{}/map", "ha/{}/config"]) for name in "ab"})
    now = Remaining({name: [*of(name), f"ha/{name}/config"] for name in "ab"}, {"b"})

    found = left_behind(former, TOPICS, now)

    assert found[:4] == (("house/a/map",), (), (), ())


def test_the_topics_of_devices_that_are_gone_are_removed_and_the_registry_waits_for_the_next_start():
    found = left_behind(
        registry({name: entry(name) for name in "abc"}, ["house/old/state", "ha/device/house/app/config"]),
        TOPICS,
        Remaining({"a": of("a"), "c": of("c")}, {"a", "c"}),
    )

    assert sorted(found.topics) == sorted([*of("b"), "house/old/state"])
    assert found.devices == ("b",)
    assert found.pages == ()


def test_what_a_device_took_over_from_one_that_is_gone_stays():
    former = registry({"old": entry("old", ["ha/device/house/old/config"])})
    found = left_behind(former, TOPICS, Remaining({"new": [*of("new"), "ha/device/house/old/config"]}, ()))

    assert set(found.topics) == set(of("old"))


def test_everything_goes_with_the_registry_last():
    found = everything(registry({name: entry(name) for name in "abc"}, ["ha/device/house/app/config"]), TOPICS)

    assert set(found.topics) == {*of("a"), *of("b"), *of("c"), "house/status"}
    assert found.elsewhere == ("ha/device/house/app/config",)
    assert found.pages == ("house/registry/2", "house/registry")


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)
OTHERS = st.lists(
    st.sampled_from(["house/{}/map", "ha/device/house/x/config", "ha/device/house/y/config"]), unique=True
)


@given(NAMES, NAMES, OTHERS, OTHERS)
def test_only_what_the_registry_lists_is_removed_and_nothing_of_a_device_that_is_there(before, now, others, apps):
    devices = {name: entry(name, others) for name in before}
    apps = [each.format("old") for each in apps]
    found = left_behind(registry(devices, apps), TOPICS, registered(now))

    all_listed = {topic for each in devices.values() for topic in retained_of(each)} | set(apps)
    gone = [*found.elsewhere, *found.topics]
    assert set(gone) <= all_listed
    assert len(set(gone)) == len(gone)
    assert all(topic.startswith("house/") for topic in found.topics)
    assert not any(topic.startswith("house/") for topic in found.elsewhere)
    assert not set(gone) & {topic for name in now for topic in of(name)}
    assert {topic for name in before if name not in now for topic in of(name)} <= set(found.topics)
    assert set(found.devices) == set(before) - set(now)
    assert found.pages == ()


@given(NAMES, OTHERS)
def test_nothing_changes_if_every_device_is_there(names, others):
    devices = {name: entry(name, others) for name in names}
    found = left_behind(registry(devices), TOPICS, registered(names))

    assert (found.topics, found.elsewhere, found.devices, found.pages) == ((), (), (), ())
