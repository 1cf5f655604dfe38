import urllib.error

import pytest

from leadsman import App, RetryRequested, exponential, immediate, is_a, never, periodic, prop
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import Choice, GiveUp, Named, Retry
from leadsman.core.settings.sources import Where
from leadsman.errors import DeviceTimeout, InvalidType, InvalidValue, PermanentError


def catalogue(section=None, **policies):
    """The policies of an app with this section ``retry`` of its settings, and these policies of its code."""
    app = App("house")
    for name, policy in policies.items():
        app.retry_policy(name, policy)
    app.add_telemetry("d", lambda: None, interval="1h", policy="api")
    app.load(Where.nowhere({"retry": section} if section else {}))
    return app.setup.catalogue


def waits(policy, error=None, draw=lambda: 0.5, calls=20):
    state, said = policy.start(), []
    for attempt in range(calls):
        state, verdict = policy.step(state, Failure(error or OSError("gone"), attempts=attempt), draw)
        if isinstance(verdict, GiveUp):
            return said
        said.append(verdict.delay)
    return said


@pytest.mark.parametrize(
    ("family", "calls", "shortest", "longest"),
    [
        ("worker", 3, 1, 10),
        ("storage", 5, 0.5, 5),
        ("scheduler", 3, 1, 8),
        ("api", 4, 1, 15),
        ("ble", 4, 2, 60),
        ("serial", 5, 0.5, 5),
        ("http", 4, 1, 15),
        ("caldav", 4, 1, 15),
    ],
)
def test_a_family_makes_so_many_calls_with_waits_between_its_shortest_and_its_longest(family, calls, shortest, longest):
    policy = catalogue().policy(family)

    for draw in (0.0, 0.5, 1 - 1e-9):
        taken = waits(policy, draw=lambda draw=draw: draw)
        assert len(taken) == calls - 1
        assert all(shortest <= wait <= longest for wait in taken)


@pytest.mark.parametrize(
    "section",
    [
        *({"name": name} for name in ("worker", "scheduler", "api", "ble", "http", "caldav")),
        *({"name": "api", "jitter": jitter} for jitter in ("full", "equal", "decorrelated", 0.2, 0.9, 1)),
        {"name": "api", "jitter": "full", "min_wait": 8, "max_wait": 10},
        {"name": "api", "jitter": "decorrelated", "min_wait": 0},
    ],
)
def test_every_wait_of_a_family_with_jitter_is_spread_the_first_one_too(section):
    name = section.pop("name")
    policy = catalogue({name: section}).policy(name)
    draws = [number / 100 for number in range(100)]

    spread = [waits(policy, draw=lambda draw=draw: draw) for draw in draws]

    for drawn in zip(*spread, strict=True):
        assert max(drawn.count(wait) for wait in drawn) <= 30


def test_the_first_waits_of_a_family_go_from_its_shortest_to_twice_of_it():
    shortest, longest = (waits(catalogue().policy("api"), draw=lambda u=u: u) for u in (0.0, 1 - 1e-12))

    assert shortest == [1, 2, 4]
    assert longest == pytest.approx([2, 4, 8])


def test_a_local_bus_waits_without_jitter():
    assert waits(catalogue().policy("serial"), draw=lambda: 0.9) == [0.5, 1, 2, 4]
    assert waits(catalogue().policy("storage"), draw=lambda: 0.1) == [0.5, 1, 2, 4]


def test_what_is_no_passing_trouble_stops_at_once():
    for family in catalogue().families:
        assert waits(catalogue().policy(family), ValueError("bug")) == []


class Answered(Exception):
    def __init__(self, status):
        self.status = status


@pytest.mark.parametrize(
    ("status", "again"),
    [(400, False), (401, False), (404, False), (408, True), (425, True), (429, True), (500, True), (503, True)],
)
def test_http_stops_at_4xx_but_for_408_425_and_429(status, again):
    assert bool(waits(catalogue().policy("http"), Answered(status))) is again
    refused = urllib.error.HTTPError("http://x", status, "no", {}, None)  # an OSError
    assert bool(waits(catalogue().policy("http"), refused)) is again
    refused.close()


def foreign(name, base=Exception):
    module, _, kind = name.rpartition(".")
    return type(kind, (base,), {"__module__": module})


def test_foreign_errors_are_known_by_name_without_their_library():
    assert waits(catalogue().policy("ble"), foreign("x.BleakDeviceNotFound", foreign("bleak.exc.BleakError"))())
    assert waits(catalogue().policy("http"), foreign("httpx.TransportError")())
    dav = foreign("caldav.lib.error.DAVError")
    assert waits(catalogue().policy("caldav"), dav())
    assert not waits(catalogue().policy("caldav"), foreign("caldav.lib.error.AuthorizationError", dav)())
    assert not waits(catalogue().policy("caldav"), foreign("caldav.lib.error.NotFoundError", dav)())
    assert not waits(catalogue().policy("caldav"), PermanentError("wrong password"))


def test_a_group_is_matched_by_its_leaves_also_where_they_are_known_by_name():
    bleak = foreign("bleak.exc.BleakError")

    assert waits(catalogue().policy("ble"), ExceptionGroup("two", [bleak(), bleak()]))
    assert not waits(catalogue().policy("ble"), ExceptionGroup("two", [bleak(), ValueError()]))


def test_a_call_wins_over_the_settings_and_these_over_what_is_built_in():
    found = catalogue({"api": {"max_attempts": "6", "min_wait": "2", "max_wait": "30s", "jitter": "false"}})

    assert waits(found.policy("api")) == [2, 4, 8, 16, 30]
    assert waits(found.policy("api", max_attempts=2, min_wait="5s")) == [5]
    assert waits(catalogue({"api": {"min_wait": 0, "jitter": 0}}).policy("api")) == [1, 2, 4]
    assert waits(catalogue({"api": {"min_wait": 0, "max_wait": 0}}).policy("api")) == [0, 0, 0]
    assert waits(catalogue({"api": {"max_attempts": 1}}).policy("api")) == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"api": {"max_attempts": 0}}, "retry.api.max_attempts: it is 0"),
        ({"api": {"max_attempts": "many"}}, "retry.api.max_attempts: 'many'"),
        ({"api": {"max_attempts": 2.5}}, "retry.api.max_attempts: 2.5"),
        ({"api": {"max_attempts": True}}, "retry.api.max_attempts: True"),
        ({"api": {"min_wait": -1}}, "retry.api.min_wait is -1"),
        ({"api": {"min_wait": "nan"}}, "retry.api.min_wait is nan"),
        ({"api": {"max_wait": "soon"}}, "retry.api.max_wait is 'soon'"),
        ({"api": {"min_wait": 20}}, "the longer one is max_wait"),
        ({"api": {"jitter": "a lot"}}, "retry.api.jitter: 'a lot'"),
        ({"api": {"jitter": 3}}, "retry.api.jitter"),
        ({"api": {1: 3}}, "retry.api.1 (from flag retry"),
        ({1: 3}, "retry.1 (from flag retry"),
        ({"api": {"attempts": 3}}, "did you mean 'max_attempts'"),
        ({"apis": {}}, "did you mean 'api'"),
        ({"api": 5}, "a section with max_attempts"),
        ({"policy": 5}, "a list of policies"),
        ({"policy": [5]}, "retry.policy[0]: a named policy takes name, priority?, predicate?, policy"),
        ({"policy": [{"name": "a"}]}, "retry.policy[0]: a named policy lacks 'policy'"),
        ({"policy": [{"policy": "never"}]}, "retry.policy[0]: a named policy lacks 'name'"),
        ({"policy": [{"name": "a", "policy": "never", "prio": 1}]}, "did you mean 'priority'"),
        ({"policy": [{"name": "a", "policy": "never", "priority": True}]}, "the priority of 'a'"),
        ({"policy": [{"name": "", "policy": "never"}]}, "the name of a policy"),
        ({"policy": [{"name": "a", "policy": "nevr"}]}, "retry.policy[0].policy: 'nevr' is not a policy"),
        ({"policy": [{"name": "a", "policy": "never"}] * 2}, "another policy called 'a'"),
    ],
)
def test_what_is_wrong_is_told_with_where_it_is_from(section, message):
    with pytest.raises((InvalidType, InvalidValue)) as caught:
        catalogue(section)

    assert message in str(caught.value)
    assert "(from flag retry" in str(caught.value)


def test_policies_come_as_a_list_or_by_name():
    listed = catalogue({"policy": [{"name": "a", "priority": 3, "predicate": "true", "policy": "immediate"}]})
    mapped = catalogue({"policy": {"a": {"priority": 3, "policy": "immediate"}}})

    assert listed.named == mapped.named == {"a": Named("a", immediate(), 3)}
    assert listed.policy("a") == immediate()


def test_a_policy_of_the_code_wins_over_one_of_the_file():
    found = catalogue({"policy": {"a": {"policy": "never"}}}, a=immediate())

    assert found.policy("a") == immediate()


def test_an_unknown_name_is_told_with_what_it_may_have_been():
    with pytest.raises(InvalidValue, match="did you mean 'serial'"):
        catalogue().policy("serail")
    with pytest.raises(InvalidValue, match="does not accept max_attempts"):
        catalogue({"policy": {"a": {"policy": "never"}}}).policy("a", max_attempts=3)


def test_the_highest_priority_whose_predicate_matches_decides_and_the_first_name_among_equals():
    choice = Choice(
        [
            Named("b", periodic(2)),
            Named("c", periodic(3)),
            Named("timeouts", periodic(1), 10, is_a(TimeoutError)),
            Named("unknown", periodic(9), 20, prop("gatt-code") == 1),
            Named("never", never(), 30, prop("errno") == 19),
        ]
    )
    state = choice.start()

    assert choice.step(state, Failure(DeviceTimeout("x")), None)[1] == Retry(1)
    assert choice.step(state, Failure(ValueError()), None)[1] == Retry(2)
    assert choice.step(state, Failure(OSError(19, "gone")), None)[1] == GiveUp("never")
    assert Choice([]).step((), Failure(OSError()), None)[1] == GiveUp("filtered")
    assert Choice([]).step((), Failure(RetryRequested(5)), lambda: 0.5)[1] == Retry(5)


def test_errors_that_take_turns_do_not_begin_anew_to_count():
    choice = Choice(
        [Named("a", exponential(1).max_retries(2), 1, is_a(TimeoutError)), Named("b", exponential(1).max_retries(2))]
    )
    state, said = choice.start(), []
    for error in [TimeoutError(), OSError()] * 3:
        state, verdict = choice.step(state, Failure(error), lambda: 0.5)
        said.append(verdict)

    assert said == [Retry(1), Retry(1), Retry(2), Retry(2), GiveUp("count"), GiveUp("count")]
