"""What `leadsman clean` removes, as a function of the registry and of the devices that an app has now."""

import json

from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Context
from leadsman.core.introspection.registry import DeviceRegistry, declared
from leadsman.core.introspection.retained import RETAINED, Listed, retained_of
from leadsman.core.mqtt.topics import Identity, Topics
from leadsman.tools.cli.commands.clean import left_behind

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


async def read(): ...


async def publish(context: Context): ...


def registered(names, *, asking=None, others=None):
    """Devices, those that are `asking` with handlers that ask for their `Context`; all of them if that is None."""
    app = App("house")
    for name in names:
        app.add_telemetry(name, publish if asking is None or name in asking else read, interval=60)
    about = Identity("house", "1", "1", TOPICS, "house")
    return DeviceRegistry(about, declared(app.telemetries, {}, {}), others or {}, health=True)


def removal(former, now):
    """What is removed where the broker keeps descriptions that name this app."""
    return left_behind(former, TOPICS, dict.fromkeys(former.elsewhere, b'{"o":{"name":"leadsman house"}}'), now)


def test_a_device_that_publishes_nothing_else_any_more_loses_its_further_topics():
    former = registry({name: entry(name, ["house/{}/map", "ha/device/house/{}/config"]) for name in "ab"})

    assert removal(former, registered("ab", asking="b")).listed == ("house/a/map",)


def test_the_topics_of_devices_that_are_gone_are_removed_and_the_registry_is_not():
    former = registry({name: entry(name) for name in "abc"}, ["house/old/state", "ha/device/house/app/config"])
    found = removal(former, registered("ac"))

    assert sorted(found.topics) == sorted([*of("b"), "house/old/state"])
    assert found.devices == ("b",)
    assert found.pages == ()


def test_what_a_device_took_over_from_one_that_is_gone_stays():
    former = registry({"old": entry("old", ["ha/device/house/old/config"])})
    found = removal(former, registered(["new"], others={"new": ["ha/device/house/old/config"]}))

    assert {*found.listed} == {*of("old")}


def test_everything_goes_with_the_registry_last():
    found = removal(registry({name: entry(name) for name in "abc"}, ["ha/device/house/app/config"]), None)

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
    found = removal(registry(devices, apps), registered(now))

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
    found = removal(registry(devices), registered(names))

    assert (found.listed, found.devices) == ((), ())
