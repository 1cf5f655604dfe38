"""What `leadsman watch` makes of the messages of apps."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Received
from leadsman.core.loop.clock import rfc3339
from leadsman.core.monitoring.document import StatusWord
from leadsman.core.monitoring.health import WELL
from leadsman.tools.cli import fleet as fleet_module
from leadsman.tools.cli.fleet import ANSWERED, MAX_APPS, MAX_READING_CHARS, OVERDUE, Fleet, describe_reading

NOW = 1_795_338_000.0
ERROR = "DeviceTimeout: no answer"


def at(seconds):
    return rfc3339(NOW + seconds)


def heard(fleet, topic, payload, now=NOW, **options):
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return fleet.hear(Received(topic, data, options.pop("retain", False), **options), now)


def registry(*devices, **more):
    return {"app": "house", "introspect": "house/introspect", "devices": {each: {} for each in devices}, **more}


def status(devices=None, state="online", **more):
    return {"state": state, "session": 7, "at": at(0), "devices": devices or {}, **more}


def answer(**runtimes):
    devices = {name: {"registrations": [], "runtime": runtime} for name, runtime in runtimes.items()}
    return {"status": "ok", "data": {"app": {"prefix": "house"}, "devices": devices}}


FAILING = {
    "status": "error",
    "last_error": ERROR,
    "failing_since": at(-90),
    "consecutive_failures": 4,
    "attempts": 2,
    "next_poll_at": at(12),
    "circuit": "closed",
}


@pytest.fixture
def fleet():
    fleet = Fleet(())
    heard(fleet, "house/registry", registry("attic", "boiler"), retain=True)
    heard(fleet, "house/status", status({"attic": {"status": "ok"}, "boiler": FAILING}))
    return fleet


def row(fleet, device="boiler", now=NOW):
    return next(each for each in fleet.rows(now) if each.device == device)


def test_a_pattern_that_matches_no_app_is_told_apart_from_those_that_do():
    fleet = Fleet(("h*", "nonsense", "+"))
    assert fleet.unmatched == ["h*", "nonsense"]

    heard(fleet, "house/status", status())

    assert fleet.unmatched == ["nonsense"]
    assert Fleet(()).unmatched == []


def test_an_app_is_found_by_its_registry_or_its_status_and_reported_once():
    fleet = Fleet(())

    assert heard(fleet, "house/registry", registry("attic")) == "house"
    assert heard(fleet, "house/status", status()) is None
    assert heard(fleet, "garden/status", status({"pump": {"status": "ok"}})) == "garden"
    assert [(each.prefix, each.device) for each in fleet.rows(NOW)] == [("garden", "pump"), ("house", "attic")]


def test_a_device_that_sends_events_is_known_before_its_first_one():
    fleet = Fleet(())
    page = registry("bell", "meter")
    page["devices"]["bell"]["kinds"], page["devices"]["meter"]["kinds"] = ["event"], "event"
    heard(fleet, "house/registry", page)
    assert [row.value for row in fleet.rows(NOW)] == ["sends events", ""]
    heard(fleet, "house/bell/state", {"event_type": "single"})
    assert [row.value for row in fleet.rows(NOW)] == ["event_type single", ""]


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("zigbee2mqtt/status", {"state": "online"}),
        ("zigbee2mqtt/registry", b"not json"),
        ("a/b/status", {"state": "online", "session": 7}),
        ("house/state", {"state": "online", "session": 7}),
    ],
)
def test_what_is_no_app_of_ours_is_passed_over(topic, payload):
    fleet = Fleet(())

    assert heard(fleet, topic, payload) is None
    assert fleet.prefixes == []


@pytest.mark.parametrize(
    ("patterns", "filters"),
    [
        ((), ["+/status", "+/registry"]),
        (("house",), ["house/status", "house/registry"]),
        (("home/+", "g*"), ["home/+/status", "home/+/registry", "+/status", "+/registry"]),
    ],
)
def test_patterns_of_prefixes_become_topic_filters(patterns, filters):
    assert Fleet(patterns).filters == filters


def test_a_pattern_that_is_wider_at_the_broker_is_matched_again_here():
    fleet = Fleet(("g*", "home/+"))
    for prefix in ("garden", "house", "home/attic", "home/attic/deep"):
        heard(fleet, f"{prefix}/status", status())

    assert fleet.prefixes == ["garden", "home/attic"]


def test_a_broker_full_of_old_registries_is_not_kept_whole():
    fleet = Fleet(())
    for number in range(MAX_APPS + 5):
        heard(fleet, f"p{number}/status", status())

    assert len(fleet.prefixes) == MAX_APPS


def test_a_row_is_made_of_the_heartbeat_and_counts_down(fleet):
    heard(fleet, "house/boiler/state", {"t": 21.5, "mode": "eco"}, now=NOW - 30)

    found = row(fleet)

    assert (found.status, found.error, found.failures, found.attempts) == ("error", ERROR, 4, 2)
    assert (found.value, found.age, found.next_in, found.failing_for) == ("t 21.5, mode eco", 30, 12, 90)
    assert row(fleet, now=NOW + 5).next_in == 7
    assert not found.well
    assert row(fleet, "attic").well


def test_the_clock_of_the_app_may_differ_from_ours():
    fleet = Fleet(())
    heard(fleet, "house/status", status({"boiler": FAILING}), now=NOW - 1000)

    assert row(fleet, now=NOW - 1000).next_in == 12
    assert row(fleet, now=NOW - 1000).failing_for == 90


def test_a_retained_reading_is_as_old_as_it_says_and_of_unknown_age_without_that(fleet):
    heard(fleet, "house/attic/state", {"t": 1}, retain=True, taken_at=at(-600))
    heard(fleet, "house/boiler/state", {"t": 1}, retain=True)

    assert row(fleet, "attic").age == 600
    assert row(fleet).age is None


def test_an_answer_is_newer_than_the_heartbeat_until_the_status_changes(fleet):
    heard(fleet, "house/introspect/response", answer(attic={"status": "ok", "next_poll_at": at(30)}))
    assert row(fleet, "attic").next_in == 30

    heard(fleet, "house/status", status({"attic": {"status": "ok"}}, at=at(1)), now=NOW + 1)
    assert row(fleet, "attic", NOW + 1).next_in == 29
    heard(fleet, "house/status", status({"attic": FAILING}, at=at(2)), now=NOW + 2)
    assert row(fleet, "attic", NOW + 2).status == "error"


def test_an_old_answer_counts_no_more(fleet):
    heard(fleet, "house/introspect/response", answer(attic={"status": "stale"}), now=NOW + 1)

    assert row(fleet, "attic", NOW + 1).status == "stale"
    assert row(fleet, "attic", NOW + 2 + ANSWERED).status == "ok"


def test_an_app_that_is_offline_or_silent_says_that_of_its_devices(fleet):
    assert row(fleet, "attic", NOW + OVERDUE + 1).status == "silent"
    heard(fleet, "house/status", {"state": "offline", "session": 7})

    assert row(fleet, "attic").status == "offline"
    assert row(fleet, "attic").next_in is None
    assert [each.state for each in fleet.apps(NOW)] == ["offline"]


@pytest.mark.parametrize("word", get_args(StatusWord))
def test_a_device_is_in_trouble_where_the_health_of_its_app_counts_it(fleet, word):
    heard(fleet, "house/status", status({"attic": {"status": word, "deferred_reason": "it charges"}}))

    assert row(fleet, "attic").well is (word in WELL)


def test_an_app_that_answers_is_not_silent_however_seldom_it_sends_a_heartbeat(fleet):
    late = NOW + OVERDUE + 1
    assert fleet.apps(late)[0].state == "silent"
    assert "house" in fleet.requests([("house", "attic")])

    heard(fleet, "house/introspect/response", answer(attic={"status": "ok"}), now=late)

    assert fleet.apps(late)[0].state == "online"
    assert row(fleet, "attic", late).status == "ok"


def test_names_that_somebody_makes_up_and_long_payloads_are_not_kept_for_ever(fleet, monkeypatch):
    monkeypatch.setattr(fleet_module, "MAX_DEVICES", 3)
    heard(fleet, "house/attic/state", b"x" * 10 * MAX_READING_CHARS)
    for number in range(10):
        heard(fleet, f"house/d{number}/state", {"t": number})
        heard(fleet, f"house/d{number}/availability", "online")
        heard(fleet, "house/introspect/response", answer(**{f"d{number}": {}}))
    heard(fleet, "house/registry", registry(*map(str, range(10))))
    app = fleet._apps["house"]

    assert [len(each) for each in (app.values, app.availability, app.details, app.names)] == [3, 3, 3, 3]
    assert len(app.values["attic"].payload) == MAX_READING_CHARS


def test_the_row_of_an_app_has_its_outbox_and_its_connection(fleet):
    mqtt = {"outbox": {"messages": 7, "dropped": 1}, "protocol": "5.0", "connects": 3, "last_error": "refused"}
    heard(fleet, "house/status", status(mqtt=mqtt, uptime=60.0, nodes={"standby": 2, "active": 1}), now=NOW)

    (app,) = fleet.apps(NOW + 10)

    assert app.nodes == "1 active, 2 standby"
    assert (app.outbox, app.dropped, app.protocol, app.connects, app.error) == (7, 1, "5.0", 3, "refused")
    assert (app.heard, app.uptime) == (10, 70)


def test_only_visible_devices_of_apps_that_are_online_are_asked_about(fleet):
    heard(fleet, "garden/status", status({"pump": {"status": "ok"}}, state="offline"))

    asked = fleet.requests([("house", "boiler"), ("garden", "pump"), ("nobody", "x")])

    assert asked == {"house": {"sections": ["app", "mqtt", "adapters", "devices", "fields"], "devices": ["boiler"]}}


def test_a_value_has_the_unit_and_the_decimals_of_its_field_which_are_asked_for_once(fleet):
    heard(fleet, "house/boiler/state", {"volts": 231.23849487304688, "load": 231.23849487304688, "leak": 0.00123456})
    terms = {"volts": {"unit": "V", "precision": 1}, "leak": {"unit": "A"}, "load": "lies"}
    data = {"devices": {}, "fields": {"boiler": terms, "attic": 5}}

    assert row(fleet, "boiler").value == "volts 231.24, load 231.24, leak 0.00123"
    heard(fleet, "house/introspect/response", {"data": data})
    assert row(fleet, "boiler").value == "volts 231.2 V, load 231.24, leak 0.00123 A"
    assert "fields" not in fleet.requests([("house", "boiler")])["house"]["sections"]


def test_an_answer_is_complete_with_its_last_page(fleet):
    page = answer(attic={"status": "ok"})

    heard(fleet, "house/introspect/response", page | {"page": 1, "pages": 2})
    assert fleet.answers == {}
    heard(fleet, "house/introspect/response", page | {"page": 2, "pages": 2})
    assert fleet.answers == {"house": 1}


def test_pages_of_the_registry_that_are_left_from_an_earlier_run_are_passed_over():
    fleet = Fleet(())
    heard(fleet, "house/registry", registry("a", pages=2, page=1))
    heard(fleet, "house/registry/2", registry("b", pages=2, page=2))
    heard(fleet, "house/registry/3", registry("old", pages=3, page=3))

    assert [each.device for each in fleet.rows(NOW)] == ["a", "b"]
    heard(fleet, "house/registry", registry("c"))
    assert [each.device for each in fleet.rows(NOW)] == ["c"]


def test_a_device_that_a_large_heartbeat_does_not_list_is_well():
    fleet = Fleet(())
    heard(fleet, "house/registry", registry("a", "b"))
    heard(fleet, "house/status", status({"a": FAILING}, counts={"ok": 1, "error": 1}))

    assert [each.status for each in fleet.rows(NOW)] == ["error", "ok"]


def test_the_verdict_waits_for_an_answer_and_needs_none_of_an_app_that_is_offline(fleet):
    assert fleet.verdict("house", "boiler", NOW) is None
    heard(fleet, "house/introspect/response", {"data": {"devices": {"boiler": {"registrations": [{"odd": 1}]}}}})
    assert "of leadsman does not know" in fleet.verdict("house", "boiler", NOW)["summary"]
    heard(fleet, "house/introspect/response", {"data": {"devices": {"boiler": {"registrations": []}}}})
    assert fleet.verdict("house", "boiler", NOW)["link"] == "registration"
    heard(fleet, "house/status", {"state": "offline", "session": 7})
    assert fleet.verdict("house", "boiler", NOW)["link"] == "app"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ('{"co2":412,"air":{"t":21.5}}', "co2 412, air.t 21.5"),
        ("21.5", "21.5"),
        ("on\x1b[2J", "on\\x1b[2J"),
        ('{"name":"\\u001b[2J"}', "name \\x1b[2J"),
    ],
)
def test_a_reading_is_one_line_that_a_terminal_can_show(payload, text):
    assert describe_reading(payload) == text


@pytest.mark.parametrize("depth", [100, 500, 900, 3000, 100_000])
def test_a_reading_may_be_nested_as_deep_as_it_likes(depth):
    for payload in ('{"a":' * depth + "1" + "}" * depth, "[" * depth):
        assert 0 < len(describe_reading(payload)) <= 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(at(3)),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(
            st.sampled_from(["status", "at", "devices", "mqtt", "data", "pages", "boiler", "runtime"]), each
        )
    ),
    max_leaves=10,
)
TOPICS = ["status", "registry", "registry/2", "boiler/state", "boiler/availability", "introspect/response"]


@given(st.lists(st.tuples(st.sampled_from(TOPICS), JSON, st.booleans()), max_size=6))
def test_whatever_others_publish_the_board_is_drawn(messages):
    fleet = Fleet(())
    heard(fleet, "house/status", status({"boiler": FAILING}))
    for topic, payload, retain in messages:
        heard(fleet, f"house/{topic}", payload, retain=retain)

    for each in fleet.rows(NOW):
        assert each.value.isprintable()
        assert each.error.isprintable()
        fleet.verdict(each.prefix, each.device, NOW)
    assert len(fleet.apps(NOW)) == 1


def test_the_root_device_has_the_values_at_the_topics_without_its_level():
    fleet = Fleet(())
    heard(fleet, "gas/state", {"m3": 0})  # no app is known there
    heard(fleet, "gas/registry", registry("gas", "attic", root="gas"), retain=True)
    heard(fleet, "gas/status", status({"gas": {"status": "ok"}, "attic": {"status": "ok"}}))
    heard(fleet, "gas/state", {"m3": 1})
    heard(fleet, "gas/attic/state", {"t": 2})
    heard(fleet, "gas/availability", b"online")

    assert {"gas/state", "gas/availability"} <= set(Fleet.filters_of("gas"))
    assert "1" in row(fleet, "gas").value
    assert "2" in row(fleet, "attic").value


def test_an_app_that_said_goodbye_was_stopped_and_one_that_left_a_will_broke_off(fleet):
    heard(fleet, "house/status", status(state="offline", at=at(-240)), retain=True)
    stopped = fleet.apps(NOW)[0]
    assert (stopped.state, stopped.heard, stopped.devices) == ("stopped", 240.0, 2)
    assert {row.status for row in fleet.rows(NOW)} == {"stopped"}
    assert all(row.well for row in fleet.rows(NOW))

    heard(fleet, "house/status", {"state": "offline", "session": 7})
    assert fleet.apps(NOW)[0].state == "offline"
    assert not any(row.well for row in fleet.rows(NOW))
