"""What who runs an app may say about its devices, without its code."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel

from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    CircuitBreaker,
    Device,
    Every,
    ExponentialBackoff,
    OnChange,
    Sensor,
    command_line,
    exponential,
)
from leadsman.errors import ConfigurationError, DeviceTimeout, GarbledData, InvalidValue
from leadsman.resilience.policy import Lookup, from_options
from leadsman.settings.sources import Where


async def read() -> dict[str, float]:
    return {"t": 1.0}


async def take(value: int) -> None: ...


def house(**options):
    app = App("house")
    app.add_telemetry("boiler", read, **({"interval": "1m"} | options))
    app.add_telemetry("room-1", read, interval="1m")
    app.add_command("boiler", take)
    return app


@pytest.fixture
def load(tmp_path):
    def with_file(text, app=None, environment=None, flags=None, name="leadsman.toml"):
        (tmp_path / name).write_text(text)
        app = house() if app is None else app
        app.load(Where(environment or {}, tmp_path, None, flags or {}, tmp_path / "none"))
        return app

    return with_file


def test_every_option_that_may_be_fixed_may_be_set_and_the_other_way_round(load):
    with pytest.raises(InvalidValue, match="cannot change; write one of .*, interval, ") as fixed:
        house(fixed={"zzzzzzzz"})
    with pytest.raises(InvalidValue, match=r"unknown; write one of .* \(from ") as written:
        load("[devices.boiler]\nzzzzzzzz = 1\n")

    listed = [str(each.value).partition("write one of ")[2].partition(" (from ")[0] for each in (fixed, written)]
    assert listed[0] == listed[1]


SET = [
    ("interval = '10s'", lambda each: each.interval == 10),
    ("schedule = '*/5 * * * *'", lambda each: each.interval is None and each.cron.expression == "*/5 * * * *"),
    ("enabled = false", lambda each: each.enabled is False),
    ("timeout = '5s'", lambda each: each.guards.timeout == 5),
    ("timeout = 'off'", lambda each: each.guards.timeout is None),
    ("retry = 3", lambda each: each.guards.policy == from_options(3)),
    ("retry = 'until next poll'", lambda each: each.guards.policy == from_options(UNTIL_NEXT_POLL)),
    (
        "retry = 1\nretry_on = ['GarbledData', 'ZeroDivisionError']",
        lambda each: each.guards.policy == from_options(1, (GarbledData, ZeroDivisionError)),
    ),
    (
        "retry = 1\nbackoff = { exponential = { base_delay = '5s', cap = '1m' } }",
        lambda each: each.guards.policy == from_options(1, backoff=ExponentialBackoff(5, 60, jitter=0.0)),
    ),
    (
        "policy = { countBox = { maxRetries = 3, inner = { exponential = { baseDelay = '1s' } } } }",
        lambda each: each.guards.policy == exponential("1s").max_retries(3),
    ),
    ("policy = 'ble'", lambda each: each.policy_name == "ble" and not isinstance(each.guards.policy, Lookup)),
    (
        "circuit_breaker = { threshold = 5, recovery = '10m', shared = 'bus' }",
        lambda each: each.guards.breaker == CircuitBreaker(5, recovery=600, shared="bus"),
    ),
    ("publish = \"OnChange(0.2) | Every('10m')\"", lambda each: each.publish == OnChange(0.2) | Every("10m")),
    ("stale_after = '1h'", lambda each: each.stale_after == 3600),
    ("throttle = '30s'", lambda each: each.throttle == 30),
    ("name = 'The boiler'", lambda each: each.title == "The boiler"),
    ("area = 'Cellar'", lambda each: each.area == "Cellar"),
]


@pytest.mark.parametrize(("written", "found"), SET, ids=[written for written, _ in SET])
def test_each_option_of_a_device_may_come_from_the_settings(written, found, load):
    app = load(f"[devices.boiler]\n{written}\n")

    assert found(app.telemetries["boiler"])
    assert app.telemetries["room-1"] == house().telemetries["room-1"]


def test_what_follows_from_an_option_follows_from_the_one_that_counts(load):
    boiler = load("[devices.boiler]\ninterval = '10s'\n").telemetries["boiler"]

    assert (boiler.guards.timeout, boiler.stale_after) == (10, 40)


@pytest.mark.parametrize(
    ("options", "written", "policy"),
    [
        ({"retry": 3, "backoff": ExponentialBackoff(5)}, "retry = 1", from_options(1, backoff=ExponentialBackoff(5))),
        ({"policy": exponential("1s")}, "retry = 1", from_options(1)),
        ({"retry": 3, "within": "1m"}, "policy = { immediate = {} }", None),
    ],
)
def test_options_of_the_code_stay_unless_one_of_the_settings_says_the_same_in_another_way(
    options, written, policy, load
):
    boiler = load(f"[devices.boiler]\n{written}\n", house(**options)).telemetries["boiler"]

    assert (boiler.guards.policy == policy) if policy is not None else "Immediate" in repr(boiler.guards.policy)


def test_a_breaker_of_the_code_may_be_switched_off(load):
    app = load("[devices.'*']\ncircuit_breaker = 'off'\n", house(circuit_breaker=CircuitBreaker(3)))

    assert app.telemetries["boiler"].guards.breaker is None


def test_a_rule_that_is_switched_off_publishes_every_reading_whatever_deadbands_the_fields_have(load):
    class Climate(BaseModel):
        temperature: Annotated[float, Sensor("°C", deadband=0.2)]

    app = App("house")

    @app.telemetry("boiler", interval="1m")
    async def boiler() -> Climate: ...

    assert load("[devices.boiler]\npublish = 'off'\n", app).telemetries["boiler"].publish is None


def test_a_section_is_about_whatever_has_its_name_and_takes_its_options(load):
    app = load("[devices.boiler]\ntimeout = '5s'\nretry = 2\nenabled = false\n")

    assert app.commands["boiler"].timeout == 5
    assert not app.commands["boiler"].enabled


def test_devices_of_the_settings_and_sources_and_fed_devices_are_covered(load):
    class Settings(BaseModel):
        rooms: dict[str, int] = {"attic": 1, "cellar": 2}

    app = App("house", settings=Settings)
    app.add_telemetry(lambda settings: {name: Device(interval="1m") for name in settings.rooms}, read)

    @app.source("door")
    async def door():
        yield {}

    @app.subscribe("tele/+/x", device="fed")
    async def heard(payload: str) -> dict[str, str]: ...

    app = load(
        "[devices.attic]\ninterval = '7s'\n[devices.'*o*']\nstale_after = 'off'\n"
        "[devices.fed]\npublish = 'OnChange()'\n",
        app,
    )

    assert [each.interval for each in app.telemetries.values()] == [7, 60]
    assert app.sources["door"].stale_after == float("inf")
    assert app.sources["fed"].publish == OnChange()


def test_variables_and_flags_set_them_too_and_the_origin_is_theirs(load):
    app = load(
        "[devices.room-1]\ninterval = '10s'\n",
        environment={"DEVICES__ROOM_1__INTERVAL": "7s", "DEVICES__BOILER__CIRCUIT_BREAKER__THRESHOLD": "4"},
        flags={"devices.boiler.retry": "2"},
    )

    assert app.telemetries["room-1"].interval == 7
    assert app.telemetries["boiler"].guards == app.telemetries["boiler"].guards._replace(
        policy=from_options(2), breaker=CircuitBreaker(4)
    )
    origins = {row.path: row.origin for row in app.setup.rows}
    assert origins["devices.room_1.interval"] == "environment DEVICES__ROOM_1__INTERVAL"
    assert origins["devices.boiler.retry"] == "flag devices.boiler.retry"


def test_an_app_with_a_field_of_that_name_keeps_it(load):
    class Settings(BaseModel):
        devices: dict[str, int]

    app = App("house", settings=Settings)
    app.add_telemetry("boiler", read, interval=60)

    assert load("[devices]\nboiler = 3\n", app).settings.devices == {"boiler": 3}


WRONG = [
    ("[devices.boilr]\nretry = 1", 2, "there is no device of that name; did you mean 'boiler'?"),
    ("[devices.'rom-*']\nretry = 1", 2, "no device matches; did you mean 'room-1'?"),
    ("[devices.boiler]\n\nintervall = '1s'", 3, "unknown; did you mean 'interval'?"),
    ("[devices.boiler]\ninterval = '1x'", 2, "write numbers with units"),
    ("[devices.boiler]\ninterval = '1ms'", 2, "at least 0.01 s"),
    ("[devices.boiler]\nschedule = 'x'", 2, "write five fields"),
    ("[devices.boiler]\nretry = -1", 2, "the number of retries"),
    ("[devices.boiler]\nretry = true", 2, "the number of retries"),
    ("[devices.boiler]\nretry_on = ['OSErr']", 2, "did you mean 'OSError'?"),
    ("[devices.boiler]\nretry_on = 3", 2, "a list of the names of errors"),
    ("[devices.boiler]\nbackoff = { exponental = {} }", 2, "did you mean 'exponential'?"),
    ("[devices.boiler]\nbackoff = 'never'", 2, "it is a policy and no backoff"),
    ("[devices.boiler]\npolicy = 'bel'", 2, "did you mean 'ble'?"),
    ("[devices.boiler]\ncircuit_breaker = { recovery = '1m' }", 2, "it has no threshold"),
    ("[devices.boiler]\ncircuit_breaker = 5", 2, "at least the threshold"),
    ("[devices.boiler.circuit_breaker]\ntreshold = 5", 2, "did you mean 'threshold'?"),
    ("[devices.boiler]\npublish = 'OnChnge()'", 2, "did you mean 'OnChange'?"),
    ("[devices.boiler]\nstale_after = 'off'", 2, "write it, such as '5m'"),
    ("[devices.boiler]\nenabled = 'maybe'", 2, "neither true nor false"),
    ("[devices.boiler]\nname = 3", 2, "write text in quotes"),
    ("[devices.boiler]\nname = ''", 2, "a name for people"),
    ("[devices.boiler]\narea = ' '", 2, "the name of a room or a place"),
    ("[devices.boiler]\ninterval = '1s'\nschedule = '* * * * *'", 2, "exclude each other"),
    ("[devices.boiler]\nretry = 1\npolicy = 'ble'", 2, "exclude each other"),
    ("[devices.boiler]\noffline_on = 'stal'", 2, "did you mean 'stale'?"),
    ("[devices.boiler]\noffline_on = 'zzzz'", 2, "worth a retry, or 'stale' or 'error'"),
    ("[devices.boiler]\nexpiry = '1m'", 2, "takes it; it is for devices that send events; leave it out"),
    ("[devices.boiler.fields]\nt.name = 'T'\n\nt.icn = 'mdi:x'", 4, "fields: 't' has 'icn'; did you mean 'icon'?"),
    ("[devices.boiler.fields]\na.name = 'A'\nb.icon = 'x'\nb.name = 'B'", 3, "icon is 'x'"),
    ("[devices.boiler.fields.a]\nname = 'A'\n[devices.boiler.fields.b]\nicon = 'mdi:b'\nname = 3", 5, "'b': "),
    ("[devices.boiler]\nname = 'B'\nfields = { t = { name = 'T', icn = 'mdi:x' } }", 3, "did you mean 'icon'?"),
    ("[devices.boiler.fields]\nt.name = 'T'\nu = 3", 3, "write a section for each field"),
    ("[devices.boiler.fields]\nt.name = 'T'\nu.name = 'U'", 3, "'u'"),
    ("[devices.boiler.fields.t]\nname = 'T'\n[devices.boiler.fields.u]\nname = 'U'", 3, "'u'"),
    ("[devices.boiler.circuit_breaker]\nthreshold = 3\n\nrecovery = 'soon'", 4, "it is 'soon'"),
    ("[devices.'b*'.fields]\nt.name = 'T'\nu.name = 'U'", 3, "'u'"),
    ("[devices.boiler.circuit_breaker]\nthreshold = 3\n\nrecovry = '1m'", 4, "did you mean 'recovery'?"),
    ("[devices.boiler.circuit_breaker]\nrecovery = '1m'", 1, "it has no threshold"),
    ("[devices.boiler.circuit_breaker]\nrecovery = '1m'\nthreshold = 0", 3, "threshold is 0"),
    ("[devices.boiler.circuit_breaker]\nthreshold = 3\nshared = 5", 3, "shared is 5"),
    ("[devices.boiler.backoff.exponential]\nbase_delay = '1s'\ncapp = '1m'", 3, "did you mean 'cap'?"),
    ("[devices.boiler.backoff.exponential]\ncap = '1m'\nbase_delay = true", 3, "is not a duration"),
    (
        "[devices.boiler.policy.count-box]\nmax_retries = 3\n[devices.boiler.policy.count-box.inner]\nnevr = {}",
        4,
        "'nevr'",
    ),
    ("[devices.boiler.fields.t]\nname = 'T'\nhomeassistant.expire_after = 'x'", 3, "expire_after is 'x'"),
    ("[devices]\nboiler = 3", 2, "it must be a section"),
    ("devices = 3", 1, "it must have a section for each device"),
]


@pytest.mark.parametrize(("text", "line", "told"), WRONG, ids=[text for text, _, _ in WRONG])
def test_nonsense_is_named_with_the_line_and_what_to_write(text, line, told, load, tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(text)

    assert told in str(caught.value)
    assert f"(from {tmp_path}/leadsman.toml line {line})" in str(caught.value)


def test_in_yaml_too_the_line_is_that_of_the_wrong_word_of_a_field(load):
    with pytest.raises(InvalidValue, match=r"'u' has 'icn'; .*leadsman.yaml line 6\)"):
        load(
            "devices:\n  boiler:\n    fields:\n      t: {name: T}\n      u:\n        icn: mdi:x\n",
            name="leadsman.yaml",
        )


def test_a_wrong_word_of_a_field_that_a_variable_adds_to_those_of_the_file_is_from_the_variable(load):
    with pytest.raises(InvalidValue, match=r"'t' has 'icn'; .*environment DEVICES__BOILER__FIELDS__T__ICN\)"):
        load("[devices.boiler.fields]\nt.name = 'T'", environment={"DEVICES__BOILER__FIELDS__T__ICN": "mdi:x"})


def test_a_table_from_two_places_that_is_wrong_as_a_whole_names_both(load):
    with pytest.raises(InvalidValue, match=r"it has no threshold; .*\(from .*toml line 1, environment DEVICES__\w+\)$"):
        load(
            "[devices.boiler.circuit_breaker]\nshared = 'bus'",
            environment={"DEVICES__BOILER__CIRCUIT_BREAKER__RECOVERY": "1m"},
        )


def test_what_nothing_of_a_device_takes_is_named_with_what_takes_it(load):
    app = App("house")
    app.add_command("lamp", take)

    @app.event("bell")
    async def ring() -> AsyncIterator[Literal["press"]]:
        yield "press"

    with pytest.raises(ConfigurationError) as caught:
        load("[devices.lamp]\nlayout = 'both'\n[devices.bell]\nlayout = 'both'\nthrottle = '1s'", app)

    layout = "takes it; it is for devices that are polled and sources of readings; leave it out"
    first, second, third = str(caught.value).splitlines()
    assert layout in first
    assert layout in second
    assert "takes it; it is for devices that are polled; leave it out" in third


def test_all_faults_are_reported_together(load):
    with pytest.raises(ConfigurationError) as caught:
        load("[devices.boiler]\nretry = -1\nthrotle = 1\n[outbox]\nmax_bytes = 3\n")

    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("written", ["interval = '1s'", "schedule = '* * * * *'"])
def test_a_fixed_option_cannot_be_set_by_name_and_is_left_alone_by_a_pattern(written, load):
    fixed = {"fixed": {"interval"}}
    with pytest.raises(
        InvalidValue, match=r"the telemetry of this device fixes interval \(.*\); leave it out .*line 2\)"
    ):
        load(f"[devices.boiler]\n{written}\n", house(**fixed))

    app = load(f"[devices.'*']\n{written}\n", house(**fixed))
    assert app.telemetries["boiler"].interval == 60
    assert app.telemetries["room-1"].interval != 60


@pytest.mark.parametrize("written", ["interval = '1h'", "interval = '5m'", "schedule = '0 * * * *'"])
@pytest.mark.parametrize(("fixed", "do"), [((), "set stale_after too"), (("stale_after",), "poll it more often")])
@pytest.mark.parametrize("section", ["boiler", "b*"])
def test_an_interval_is_shorter_than_the_time_after_which_the_code_says_that_the_device_is_stale(
    section, fixed, do, written, load
):
    app = house(stale_after="5m", fixed=fixed)
    told = rf"'boiler' would be stale .* is 5m in the code \(.*\.py.*\); {do} \(from .*leadsman.toml line 2\)"
    with pytest.raises(InvalidValue, match=told):
        load(f"[devices.'{section}']\n{written}\n", app)


@pytest.mark.parametrize("more", ["interval = '4m'", "interval = '1h'\nstale_after = '2h'"])
def test_with_a_staleness_that_fits_the_interval_of_the_settings_counts(more, load):
    load(f"[devices.boiler]\n{more}\n", house(stale_after="5m"))
    load("[devices.boiler]\ninterval = '1h'\n", house(stale_after=None))


def test_what_the_command_of_a_device_fixes_may_be_set_for_its_telemetry(load):
    def both():
        app = App("house")
        app.add_command("boiler", take, fixed={"timeout", "enabled"}, timeout="3s")
        app.add_telemetry("boiler", read, interval="1m", fixed={"enabled"})
        return app

    app = load("[devices.boiler]\ntimeout = '5s'\n", both())
    assert (app.telemetries["boiler"].guards.timeout, app.commands["boiler"].timeout) == (5, 3)
    with pytest.raises(InvalidValue, match=r"the command of this device fixes enabled \(.*\.py.*\); leave it out"):
        load("[devices.boiler]\nenabled = false\n", both())


def test_a_pattern_that_switches_staleness_off_passes_over_what_is_polled(load):
    app = house()

    @app.source("door")
    async def door():
        yield {}

    load("[devices.'*']\nstale_after = 'off'\n", app)
    assert app.sources["door"].stale_after == float("inf")
    assert app.telemetries["boiler"] == house().telemetries["boiler"]
    with pytest.raises(InvalidValue, match="no device that it is about takes it"):
        load("[devices.'*']\nstale_after = 'off'\n")


def test_a_pattern_whose_option_no_device_takes_is_an_error(load):
    with pytest.raises(InvalidValue, match="no device that it is about takes it, or the app fixes it"):
        load("[devices.'b*']\ninterval = '1s'\n", house(fixed={"interval"}))


@pytest.mark.parametrize(
    "text", ["OnChange", "OnChange(", "OnChange(x)", "Every()", "exec('1')", "OnChange(*[1])", "1 | 2", " ", "a" * 2000]
)
def test_a_rule_that_is_none_is_refused_and_nothing_of_it_is_executed(text, load):
    with pytest.raises(ConfigurationError, match=r"publish: .*(write|did you mean|no publish rule)"):
        load(f"[devices.boiler]\npublish = {json.dumps(text)}\n")


def test_a_rule_is_read_as_it_is_written_in_code(load):
    app = load("[devices.boiler]\npublish = \"(OnChange(0.5, fields={'t': 50}) | Every(n=3)) & Every('1m')\"\n")

    assert app.telemetries["boiler"].publish == (OnChange(0.5, fields={"t": 50}) | Every(n=3)) & Every("1m")


def test_an_error_that_an_adapter_declares_is_known_by_its_name(load):
    class Bus:
        transient_errors = (DeviceTimeout, BusError)

        async def __aenter__(self): ...

        async def __aexit__(self, *exc_info): ...

    app = App("house", adapters=(Bus(),))

    @app.telemetry("boiler", interval=60)
    async def boiler(bus: Bus): ...

    app = load("[devices.boiler]\nretry = 1\nretry_on = ['BusError']\n", app)

    assert app.telemetries["boiler"].guards.policy == from_options(1, (BusError,))


def test_each_word_of_a_table_has_an_origin_of_its_own(load, tmp_path):
    words = "[devices.boiler.fields.value]\nname = 'T'\n\nicon = 'mdi:t'\n"
    app = load(words, environment={"DEVICES__BOILER__FIELDS__VALUE__ICON": "mdi:x"})

    rows = {row.path.removeprefix("devices.boiler.fields."): row.origin for row in app.setup.rows}

    assert rows["value.name"] == f"{tmp_path}/leadsman.toml line 2"
    assert rows["value.icon"] == "environment DEVICES__BOILER__FIELDS__VALUE__ICON"


def test_a_variable_with_a_wrong_word_of_a_table_is_named_where_a_file_has_the_others(load):
    with pytest.raises(ConfigurationError, match=r"it is 'soon'.*\(from environment DEVICES__BOILER__CIRCUIT"):
        load(
            "[devices.boiler]\ncircuit_breaker = { threshold = 5 }\n",
            environment={"DEVICES__BOILER__CIRCUIT_BREAKER__RECOVERY": "soon"},
        )


class BusError(Exception): ...


def test_check_shows_each_option_of_a_device_that_the_settings_concern_with_its_origin(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("leadsman.toml").write_text("[devices.boiler]\ninterval = '10s'\n")

    assert command_line(house(retry=3))(["--check"]) == 0

    shown = capsys.readouterr().out
    assert re.search(rf"boiler +interval +'10s' +{re.escape(str(tmp_path))}/leadsman.toml line 2\n", shown)
    assert re.search(r"boiler +retry +3 +test_device_settings.py line \d+\n", shown)
