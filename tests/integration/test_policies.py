"""Policies with names: from the code, the settings and the environment, and for a while."""

import itertools
import json
from typing import Annotated

import pytest

from leadsman import App, Context, FixedBackoff, execute_with_retry, immediate, is_a, never, periodic, prop
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidType, InvalidValue, SettingsError
from leadsman.testing import Scripted, fail
from leadsman_rigs.stage import inspected

READING = {"t": 21.5}


def app_with(handler, **words):
    app = App("app", mqtt="mqtt://nowhere")
    app.add_telemetry("d", handler, **{"interval": "25m", **words})
    return app


def gaps(calls):
    return [round(after - before, 1) for before, after in itertools.pairwise(calls)]


@pytest.fixture
def where(tmp_path):
    """Where settings are, with a file and variables."""

    def make(text="", name="leadsman.toml", **variables):
        if text:
            (tmp_path / name).write_text(text)
        return Where(variables, tmp_path, secrets=tmp_path / "none")

    return make


GENTLE = """
[[retry.policy]]
name = "gentle"
policy.countBox = {maxRetries = 2, inner = {periodic = "10s"}}

[[retry.policy]]
name = "gone"
priority = 10
predicate.propEq = {property = "errno", value = 19}
policy = "never"
"""


def test_a_handler_takes_a_policy_of_the_file_by_its_name(harness, where):
    sensor = Scripted(fail(99))
    app = app_with(sensor, policy="gentle")
    app.load(where(GENTLE))

    harness(app).run("24m")

    assert gaps(sensor.calls) == [10, 10]


def test_a_handler_that_says_nothing_takes_the_first_policy_whose_predicate_matches(harness, where):
    for error, expected in ((OSError(5, "io"), [10, 10]), (OSError(19, "gone"), [])):
        sensor = Scripted(fail(99, error))
        app = app_with(sensor)
        app.load(where(GENTLE))
        harness(app).run("24m")
        assert gaps(sensor.calls) == expected


def test_a_handler_that_says_something_goes_by_that(harness, where):
    sensor = Scripted(fail(99))
    app = app_with(sensor, retry=0)
    app.load(where(GENTLE))

    harness(app).run("24m")

    assert gaps(sensor.calls) == []


def test_yaml_says_the_same(harness, where):
    sensor = Scripted(fail(99))
    app = app_with(sensor, policy="gentle")
    policy = "{countBox: {maxRetries: 2, inner: {periodic: {secs: 10, nanos: 0}}}}"
    text = f"retry:\n  policy:\n    gentle:\n      policy: {policy}\n"
    app.load(where(text, "leadsman.yaml"))

    harness(app).run("24m")

    assert gaps(sensor.calls) == [10, 10]


def test_a_policy_of_the_code_wins_over_one_of_the_file(harness, where):
    sensor = Scripted(fail(99))
    app = app_with(sensor, policy="gentle")
    app.retry_policy("gentle", periodic("1s").max_retries(1))
    app.load(where(GENTLE))

    harness(app).run("24m")

    assert gaps(sensor.calls) == [1]


def test_policies_of_the_code_are_chosen_by_priority_and_predicate(harness):
    sensor = Scripted(fail(1, TimeoutError()), fail(99))
    app = app_with(sensor)
    app.retry_policy("all", periodic("9s").max_retries(1))
    app.retry_policy("timeouts", periodic("1s"), priority=5, predicate=is_a(TimeoutError) & (prop("handler") == "d"))

    harness(app).run("24m")

    assert gaps(sensor.calls) == [1, 9]


def test_documents_name_the_policies_that_can_apply_to_a_handler(harness, capsys):
    app = App("app")
    scripts = {name: Scripted(fail(99)) for name in ("d", "h", "other")}
    for name, script in scripts.items():
        app.add_telemetry(name, script, interval="25m")
    app.retry_policy("radio", periodic("1s").max_retries(5), priority=2, predicate=prop("handler") == "d")
    app.retry_policy("busy", periodic("1s").max_retries(3), predicate=(prop("handler") != "h") & (prop("errno") == 16))
    running = harness(app)
    running.run("24m")

    devices = json.loads(inspected(app, capsys, "--json"))["devices"]
    found = {name: device["registrations"][0] for name, device in devices.items()}
    rows = {line.split()[0]: line for line in inspected(app, capsys).splitlines() if line.split()}

    assert (found["d"]["policy_name"], "policy_where" in found["d"]) == ("radio", False)
    assert ("policy_name" in found["h"], found["h"]["retry"]) == (False, 0)
    assert found["other"]["policy_where"] == {"busy": "{propEq: {property: errno, value: 16}}"}
    assert " radio " in rows["d"]
    assert " none " in rows["h"]
    assert " busy where {propEq: {property: errno, value: 16}} " in rows["other"]
    assert [len(script.calls) for script in scripts.values()] == [6, 1, 1]


def test_a_family_may_be_retuned_by_the_environment_over_the_file(harness, where):
    sensor = Scripted(fail(99))
    app = app_with(sensor, policy="serial")
    app.load(where("[retry.serial]\nmax_attempts = 9\nmin_wait = '1s'\n", RETRY__SERIAL_MAX_ATTEMPTS="3"))

    harness(app).run("24m")

    assert gaps(sensor.calls) == [1, 2]
    shown = {row.path: (row.value, row.origin) for row in app.setup.rows}
    assert shown["retry.serial.max_attempts"] == ("'3'", "environment RETRY__SERIAL_MAX_ATTEMPTS")


def test_the_transient_errors_of_an_adapter_join_a_family(harness):
    class BusError(Exception): ...

    class Bus:
        transient_errors = (BusError,)

        async def __aenter__(self):
            return self

        async def __aexit__(self, *exc_info): ...

    app, calls = App("app", adapters=(Bus(),)), []

    @app.telemetry("d", interval="25m", policy="serial")
    async def read(bus: Bus):
        calls.append(1)
        raise BusError

    harness(app).run("24m")

    assert len(calls) == 5


def test_a_section_of_the_environment_lies_over_the_rest_of_the_file(harness, where):
    text = "[retry.serial]\nmax_attempts = 9\n[env.lab.retry.serial]\nmax_attempts = 2\n[env.farm]\n"
    for variables, calls in (({"LEADSMAN_ENV": "lab"}, 2), ({"LEADSMAN_ENV": "farm"}, 9), ({}, 9)):
        sensor = Scripted(fail(99))
        app = app_with(sensor, policy="serial")
        app.load(where(text, **variables))
        harness(app).run("24m")
        assert len(sensor.calls) == calls


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("[env.lab]\n", {"LEADSMAN_ENV": "lba"}, "did you mean 'lab'"),
        ("", {"LEADSMAN_ENV": "lab"}, "no settings file"),
        ("env = 5\n", {}, "env.production"),
        ("retry = 5\n", {}, "retry: it must be a section"),
        ("[retry.api]\nmax_attempts = 0\n", {}, "retry.api.max_attempts: it is 0"),
        ("", {"RETRY__API_MAX_ATTEMPTS": "many"}, "RETRY__API_MAX_ATTEMPTS"),
        ("", {"RETRY__API_ATTEMPTS": "3"}, "RETRY__API_ATTEMPTS"),
        ("[[retry.policy]]\nname = 'a'\npolicy = 'nevr'\n", {}, "did you mean 'never'"),
        ("retyr = 1\n", {}, "retyr"),
    ],
)
def test_a_mistake_in_the_settings_is_a_start_up_error_that_names_it(where, text, variables, message):
    app = app_with(Scripted(READING))

    with pytest.raises((SettingsError, InvalidValue, InvalidType), match=message):
        app.load(where(text, **variables))


def test_a_name_that_nobody_has_is_a_start_up_error_that_names_the_handler(where):
    app = app_with(Scripted(READING), policy="gentel")

    with pytest.raises(InvalidValue, match="telemetry 'd': no policy is called 'gentel'; did you mean 'gentle'"):
        app.load(where(GENTLE))


def test_a_handler_that_is_registered_late_finds_its_policy_too(harness, where):
    sensor, app = Scripted(fail(99)), App("app", mqtt="mqtt://nowhere")
    app.load(where())
    app.add_telemetry("d", sensor, interval="25m", policy="serial")

    harness(app).run("24m")

    assert len(sensor.calls) == 5
    with pytest.raises(InvalidValue, match="before the app runs"):
        app.retry_policy("late", never())


class Ble:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        pass


@pytest.mark.parametrize("name", ["ble", "Ble"])
def test_a_policy_may_be_chosen_by_the_name_or_the_class_of_an_adapter(harness, name):
    calls, app = [], App("app", adapters={"ble": Ble()})
    app.retry_policy("radio", periodic(1).max_retries(5), predicate=prop("adapter") == name)

    @app.telemetry("d", interval="1m")
    async def d(radio: Annotated[Ble, "ble"]):
        calls.append(1)
        raise OSError

    harness(app).run("30s")

    assert len(calls) == 6


def test_a_policy_that_was_chosen_by_the_class_of_an_adapter_is_chosen_for_its_twin_too(harness):
    class Twin(Ble):
        pass

    calls, app = [], App("app", adapters=(Ble(),), twins=lambda settings: (Twin(),))
    app.retry_policy("radio", periodic(1).max_retries(5), predicate=prop("adapter") == "Ble")

    @app.telemetry("d", interval="1m")
    async def d(radio: Ble):
        calls.append(1)
        raise OSError

    harness(app, twins=True).run("30s")

    assert len(calls) == 6


def test_for_a_while_all_handlers_go_by_another_policy(harness):
    sensor, other = Scripted(fail(99)), Scripted(fail(99))
    app = app_with(sensor, interval="1m", retry=3)
    app.add_telemetry("other", other, interval="1m")
    running = harness(app)
    running.run("30s")
    before = len(sensor.calls)
    assert before == 4

    with app.retrying(never()), app.retrying(immediate().max_retries(4), ["other"]):
        running.run("60s")
    assert len(sensor.calls) == before + 1
    assert len(other.calls) == 1 + 5
    running.run("60s")
    assert len(sensor.calls) > before + 2
    assert len(other.calls) == 7

    with pytest.raises(InvalidValue, match="no device 'othr'"), app.retrying(never(), ["othr"]):
        pass
    with pytest.raises(InvalidValue, match="no policy is called 'x'"), app.retrying("x"):
        pass
    with pytest.raises(InvalidType), app.retrying(5):
        pass


def test_in_a_handler_another_policy_governs_the_failures_of_its_block_and_nobody_elses(harness):
    calls, other, app = [], Scripted(fail(99)), App("app")
    app.add_telemetry("other", other, interval="1h")

    @app.telemetry("d", interval="1h", retry=1, backoff=FixedBackoff(5, jitter=0))
    async def d():
        calls.append("before" if len(calls) < 1 else "inside")
        if calls[-1] == "before":
            raise OSError("not in the block")
        with app.retrying(periodic(1).max_retries(3)):
            raise OSError("in the block")

    harness(app).run("1m")

    assert calls == ["before"] + ["inside"] * 4
    assert len(other.calls) == 1


@pytest.mark.parametrize(("error", "calls"), [(KeyError(), 6), (OSError(5, "io"), 4), (ValueError(), 2)])
def test_a_block_that_says_nothing_of_a_failure_leaves_it_to_the_one_around_it_and_to_the_handlers_own(
    harness, error, calls
):
    made, app = [], App("app")
    app.retry_policy("io", immediate().max_retries(3), predicate=prop("errno") == 5)

    @app.telemetry("d", interval="1h", retry=1, retry_on=Exception)
    async def d():
        made.append(1)
        with app.retrying("io"), app.retrying(immediate().max_retries(5).only_when(is_a(KeyError))):
            raise error

    harness(app).run("1m")

    assert len(made) == calls


def test_a_plain_handler_and_a_source_have_blocks_too(harness):
    plain_calls, runs, app = [], [], App("app")

    @app.telemetry("plain", interval="1h")
    def plain():
        plain_calls.append(1)
        with app.retrying(immediate().max_retries(3)):
            raise OSError

    @app.source("source")
    async def source():
        runs.append(1)
        with app.retrying(immediate().max_retries(3)):
            if len(runs) == 1:
                yield {"n": 1}
            raise OSError

    harness(app).run("1s")

    assert len(plain_calls) == 4
    assert len(runs) == 4


def test_a_call_that_hangs_in_a_block_is_governed_by_it(harness):
    calls, app = [], App("app")

    @app.telemetry("d", interval="1h", timeout="5s")
    async def d(context: Context):
        calls.append(1)
        with app.retrying(immediate().max_retries(2)):
            await context.sleep("1d")

    harness(app).run("1m")

    assert len(calls) == 3


def test_a_block_in_a_handler_takes_no_devices(harness):
    app = App("app")

    @app.telemetry("d", interval="1h")
    async def d():
        with app.retrying(never(), ["d"]):
            pass

    running = harness(app)
    running.run("1m")

    assert "leave devices out" in running.errors("d")[0]["message"]


def test_for_a_while_a_policy_that_says_nothing_of_a_failure_leaves_it_to_the_handlers(harness):
    sensor = Scripted(fail(99, ValueError()))
    app = app_with(sensor, interval="1h", retry=1, retry_on=ValueError)

    with app.retrying(immediate().max_retries(9).only_when(is_a(OSError))):
        harness(app).run("1m")

    assert len(sensor.calls) == 2


def test_a_call_inside_a_running_app_knows_its_policies(harness, where):
    calls, app = [], App("app", mqtt="mqtt://nowhere")

    async def fetch():
        calls.append(1)
        raise OSError("gone")

    @app.telemetry("d", interval="25m", retry=0)
    async def read():
        await execute_with_retry(fetch, retry="gentle")

    app.load(where(GENTLE))
    harness(app).run("24m")

    assert len(calls) == 3
