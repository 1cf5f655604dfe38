"""One app, many tests: each harness begins with the app as it is declared, and touches nothing outside."""

import os

import pytest
from pydantic import BaseModel

from leadsman import App, Context, Device, execute_with_retry
from leadsman.adapters.serial import SerialPort
from leadsman.errors import InvalidValue, SettingsError
from leadsman.testing import Harness, Scripted, SerialTwin, fail


class Settings(BaseModel):
    pumps: list[str] = ["one"]
    port: str = "/dev/nowhere"


app = App(
    "plant",
    settings=Settings,
    adapters=lambda settings: (SerialPort(settings.port),),
    twins=lambda settings: (SerialTwin(lambda asked: b"7\n"),),
    keep_state=True,
)
"""At module level, as ``leadsman init`` writes it."""


@app.telemetry(lambda settings: {name: Device() for name in settings.pumps}, interval="10s", retry=1)
async def pump(port: SerialPort, context: Context) -> dict[str, float]:
    context.store["runs"] = context.store.get("runs", 0) + 1
    return {"bar": float(await port.request(b"?")), "runs": context.store["runs"], "pumps": len(app.settings.pumps)}


def answering(data):
    return SerialTwin(lambda asked: data)


def files(directory):
    return {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}


def test_each_harness_loads_the_app_with_settings_of_its_own():
    for pumps in (["a", "b"], ["c"]):
        with Harness(app, settings={"pumps": pumps}, twins=True) as harness:
            harness.run("1s")
            assert set(harness.status()["devices"]) == set(pumps)
            assert harness.states(pumps[0])[0]["pumps"] == len(pumps)

    assert app.telemetries == {}
    with pytest.raises(InvalidValue, match="not loaded yet"):
        _ = app.settings


def test_a_harness_begins_with_an_empty_store_and_leaves_nothing_in_the_real_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        with Harness(app, adapters=(answering(b"not a number\n"),)) as harness:
            harness.run("5m")
            assert harness.errors("one")[0]["event"] == "onset"
        with Harness(app, twins=True) as harness:
            harness.run("1s")
            assert harness.states("one") == [{"bar": 7.0, "runs": 1, "pumps": 1}]

    assert files(tmp_path) == set()


def test_the_state_directory_of_a_harness_is_removed_at_its_end():
    seen = []
    watched = App("watched")

    @watched.telemetry("d", interval="10s")
    async def read(context: Context):
        context.store["n"] = 1
        context.store.save()
        seen.append(context.store._path)
        seen.append(context.store._path.exists())

    with Harness(watched) as harness:
        harness.run("1s")

    assert seen[1]
    assert not seen[0].parent.exists()


def test_two_harnesses_with_one_state_directory_are_two_lives_of_an_app(tmp_path):
    for runs in (4, 8):
        with Harness(app, twins=True, state_directory=tmp_path) as harness:
            harness.run("31s")
            assert harness.states("one")[-1]["runs"] == runs


def test_a_life_that_is_killed_writes_nothing_more(tmp_path):
    with Harness(app, twins=True, state_directory=tmp_path) as harness:
        harness.run("115s")
        harness.kill()
        assert harness.broker.messages("plant/one/availability")[-1].payload == b"online"

    with Harness(app, twins=True, state_directory=tmp_path) as harness:
        harness.run("1s")
        assert harness.states("one")[0]["runs"] < 13  # of the twelve before, those of the first minute were written


def test_adapters_of_the_test_take_the_place_of_the_apps_own():
    mine = answering(b"3\n")
    with Harness(app, adapters=(mine,)) as harness:
        harness.run("1s")
        assert harness.states("one")[0]["bar"] == 3.0
        assert harness.adapter(SerialPort) is mine

    with Harness(app, settings={"port": "/dev/other"}) as harness:
        assert harness.adapter(SerialPort).url == "/dev/other"


def test_adapters_given_as_objects_are_replaced_too_and_come_back():
    real, fixed = SerialPort("/dev/real"), App("fixed")
    fixed = App("fixed", adapters=(real,))

    @fixed.telemetry("d", interval="10s")
    async def read(port: SerialPort):
        return {"bar": float(await port.request(b"?"))}

    for expected in (1.0, 2.0):
        with Harness(fixed, adapters=(answering(b"%d\n" % expected),)) as harness:
            harness.run("1s")
            assert harness.states("d") == [{"bar": expected}]

    assert fixed.adapter(SerialPort) is real


def test_an_adapter_that_a_handler_asks_for_must_be_among_those_of_the_test():
    with pytest.raises(InvalidValue, match="asks for SerialPort"):
        Harness(app, adapters=()).__enter__()

    with Harness(app, twins=True) as harness:
        harness.run("1s")
        assert harness.states("one")


def test_twins_of_the_test_take_the_place_of_the_apps_own():
    for twins in ((answering(b"5\n"),), lambda settings: (answering(b"5\n"),)):
        with Harness(app, twins=twins) as harness:
            harness.run("1s")
            assert harness.states("one")[0]["bar"] == 5.0


def test_the_adapter_in_use_can_be_disturbed():
    with Harness(app, twins=True) as harness:
        harness.run("1s")
        harness.adapter(SerialTwin).unplug()
        harness.run("1m")
        assert harness.errors("one")[0]["type"] == "DeviceUnavailable"


@pytest.mark.parametrize(
    ("kind", "name", "message"), [(Harness, None, "no adapters of"), (SerialPort, "b", "it has: S")]
)
def test_an_adapter_that_is_not_there_is_a_named_error(kind, name, message):
    with Harness(app, twins=True) as harness, pytest.raises(InvalidValue, match=message):
        harness.adapter(kind, name)


def test_an_app_serves_one_harness_at_a_time():
    with Harness(app, twins=True) as first:
        with pytest.raises(InvalidValue, match="another Harness"):
            Harness(app, twins=True).__enter__()
        first.run("1s")
        first.stop()
        with Harness(app, settings={"pumps": ["two"]}, twins=True) as second:
            second.run("1s")
            assert second.states("two")


def test_settings_that_are_wrong_leave_the_app_as_it_was():
    with pytest.raises(SettingsError, match="pmps"):
        Harness(app, settings={"pmps": []}, twins=True).__enter__()

    with Harness(app, twins=True) as harness:
        harness.run("1s")
        assert harness.states("one")


def test_what_a_test_loaded_itself_is_loaded_again_and_stays():
    from leadsman.core.settings.sources import Where

    loaded = App("loaded", settings=Settings)
    loaded.add_telemetry(lambda settings: settings.pumps, Scripted({"bar": 1}), interval="10s")
    loaded.load(Where.nowhere({"pumps": ["own"]}))

    with Harness(loaded) as harness:
        harness.run("1s")
        assert harness.states("own")
    with Harness(loaded, settings={"pumps": ["other"]}) as harness:
        harness.run("1s")
        assert harness.states("other")

    assert loaded.settings.pumps == ["own"]
    assert set(loaded.telemetries) == {"own"}


def test_an_app_sees_the_variables_of_the_test_and_none_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANT_PUMPS", '["real"]')
    monkeypatch.setenv("RETRY__API_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("LEADSMAN_HEALTH_FILE", str(tmp_path / "real.json"))
    health = tmp_path / "health.json"
    variables = {"PLANT_PUMPS": '["a"]', "LEADSMAN_HEALTH_FILE": str(health)}

    with Harness(app, twins=True, environment=variables) as harness:
        harness.run("11s")
        assert set(harness.status()["devices"]) == {"a"}
        assert health.exists()

    assert files(tmp_path) == set()
    assert os.environ["PLANT_PUMPS"] == '["real"]'


def test_retries_inside_a_handler_do_not_read_the_environment_of_the_process(monkeypatch):
    monkeypatch.setenv("RETRY__API_MAX_ATTEMPTS", "1")
    service, caller = Scripted(fail(1), {"ok": 1}), App("caller")

    @caller.telemetry("d", interval="10m", timeout="5m")
    async def read():
        return await execute_with_retry(service, retry="api")

    with Harness(caller) as harness:
        harness.run("5m")

    assert len(service.calls) == 2


def test_a_harness_that_is_left_before_any_time_passed_ends():
    with Harness(app, twins=True) as harness:
        pass

    assert harness.stopped_in < 2
