import asyncio
import contextlib
import functools
import json
import socket
import time

import pytest
from pydantic import TypeAdapter

from leadsman import App, RetryRequested
from leadsman.core.monitoring.document import HealthFile
from leadsman.extensions.watchdog.watchdog import Notifier
from leadsman.testing import Outages, Scripted, fail
from leadsman.tools.cli.main import main

READING = {"t": 21.5}


@pytest.fixture
def environment():
    """Variables that the app sees."""
    return {}


@pytest.fixture
def harness(harness, environment):
    return functools.partial(harness, environment=environment)


@pytest.fixture
def manager(tmp_path, environment):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    receiver.setblocking(False)
    environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")

    def said():
        lines = []
        while True:
            try:
                lines += receiver.recv(65536).decode().splitlines()
            except BlockingIOError:
                return lines

    yield said
    receiver.close()


@pytest.fixture
def file(tmp_path, environment):
    environment["LEADSMAN_HEALTH_FILE"] = str(tmp_path / "health.json")
    return tmp_path / "health.json"


def app_with(**handlers):
    app = App("app")
    for name, handler in handlers.items():
        app.add_telemetry(name, handler, interval=10, stale_after="1m")
    return app


def test_the_manager_hears_ready_status_and_stopping(harness, manager):
    running = harness(app_with(d=Scripted(READING)))
    running.run(21)
    running.stop()

    said = manager()
    assert said[0] == "READY=1"
    assert said[-1] == "STOPPING=1"
    assert "STATUS=1 of 1 device ok; connected" in said
    assert len([line for line in said if line.startswith("STATUS")]) == 2  # only when it changes
    assert "WATCHDOG=1" not in said  # nobody asked for it


def test_the_status_and_the_health_file_follow_the_connection_at_once(harness, manager, file):
    running = harness(app_with(d=Scripted(READING)))
    running.run(1)
    connected = [line for line in manager() if line.startswith("STATUS")][-1], json.loads(file.read_text())["words"]
    running.run(14.5)
    running.broker.stop()
    running.run(0.1)
    away = [line for line in manager() if line.startswith("STATUS")], json.loads(file.read_text())["words"]

    assert connected == ("STATUS=1 of 1 device ok; connected", "1 of 1 device ok; connected")
    assert len(away[0]) == 1
    assert away[0][0].startswith("STATUS=1 of 1 device ok; no connection to the broker: ")
    assert away[1] == away[0][0].removeprefix("STATUS=")


def test_ready_does_not_wait_for_the_broker(harness, manager):
    running = harness(app_with(d=Scripted(READING)))
    running.broker.stop()
    running.run(1)

    assert "READY=1" in manager()


def test_an_app_that_ends_before_its_first_poll_says_neither_ready_nor_stopping(harness, manager):
    @contextlib.asynccontextmanager
    async def lifespan():
        await asyncio.sleep(60)
        yield

    app = App("app", lifespan=lifespan)
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run(1)
    running.stop()

    assert manager() == []


def fed_within_ten_seconds(running, manager):
    fed = 0
    for _ in range(2):  # the kernel keeps ten datagrams for a reader
        running.run(5)
        fed += manager().count("WATCHDOG=1")
    return fed


def test_the_watchdog_is_fed_twice_per_period_while_any_data_is_fresh(harness, manager, environment):
    environment["WATCHDOG_USEC"] = "4000000"
    running = harness(app_with(dead=Scripted(fail(10_000)), d=Outages(READING, [("2m", "10m")])))

    fed = [fed_within_ten_seconds(running, manager) for _ in range(90)]

    assert set(fed[1:12]) == {5}
    assert set(fed[20:59]) == {0}  # a minute after the last reading
    assert set(fed[62:]) == {5}


WAITING = [(fail(10_000), {"on_failure": "hold"}), (fail(10_000, RetryRequested("1d")), {})]


@pytest.mark.parametrize(("step", "options"), WAITING, ids=["held", "deferred"])
def test_the_watchdog_is_not_fed_because_one_device_of_two_waits_on_purpose(
    harness, manager, environment, step, options
):
    environment["WATCHDOG_USEC"] = "4000000"
    app = app_with(d=Outages(READING, [("2m", "10m")]))
    app.add_telemetry("waits", Scripted(step), interval=10, stale_after="1m", **options)
    running = harness(app)

    fed = [fed_within_ten_seconds(running, manager) for _ in range(90)]

    assert set(fed[1:12]) == {5}
    assert set(fed[20:59]) == {0}
    assert set(fed[62:]) == {5}


@pytest.mark.parametrize(("step", "options"), WAITING, ids=["held", "deferred"])
def test_the_watchdog_is_fed_while_all_devices_wait_on_purpose(harness, manager, environment, step, options):
    environment["WATCHDOG_USEC"] = "4000000"
    app = App("app")
    app.add_telemetry("waits", Scripted(step), interval=10, stale_after="1m", **options)
    running = harness(app)

    fed = [fed_within_ten_seconds(running, manager) for _ in range(30)]

    assert set(fed[1:]) == {5}


def test_an_app_of_commands_only_has_nothing_to_be_stale(harness, manager, environment):
    environment["WATCHDOG_USEC"] = "4000000"
    app = App("app")
    app.add_command("lamp", Scripted({}))
    running = harness(app)

    assert {fed_within_ten_seconds(running, manager) for _ in range(30)} <= {5, 6}
    assert running.status()["health"] == "ok"


@pytest.fixture
def probe(file, monkeypatch, capsys):
    """What `leadsman health` says at a time: its exit code, and its line."""

    def probe(now):
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: now)
            code = main(["health", str(file)])
        out, err = capsys.readouterr()
        return code, (err if code else out).strip()

    return probe


def test_the_health_file_says_how_it_is_and_goes_with_the_app(harness, file, probe):
    running = harness(app_with(d=Outages(READING, [("2m", "10m")])))
    running.run("1m")
    well = probe(running.now)
    running.run("4m")
    unwell = probe(running.now)
    recent, old = probe(running.now + 20), probe(running.now + 31)
    running.stop()

    assert well == (0, "1 of 1 device ok; connected")
    assert unwell == (1, "0 of 1 device ok (not d); connected")
    assert recent == unwell
    assert (old[0], "s old; the app hangs or has ended" in old[1]) == (1, True)
    assert "does not exist" in probe(running.now)[1]
    assert not file.exists()


def test_a_health_file_that_cannot_be_written_is_told_once(harness, file, caplog):
    file.mkdir()
    running = harness(app_with(d=Scripted(READING)))
    running.run("5m")

    assert caplog.text.count("health file cannot be written") == 1
    assert len(running.states("d")) == 31


def test_the_health_file_is_not_written_through_a_link(harness, file, tmp_path):
    import os

    victim = tmp_path / "victim"
    victim.write_text("precious")
    (file.parent / f".{file.name}.{os.getpid()}").symlink_to(victim)
    running = harness(app_with(d=Scripted(READING)))
    running.run("1m")

    assert victim.read_text() == "precious"


@pytest.mark.parametrize("given", [False, True])
def test_the_health_file_is_where_the_environment_says(harness, environment, tmp_path, monkeypatch, capsys, given):
    environment["RUNTIME_DIRECTORY"] = f"{tmp_path}:/run/x"
    if given:
        environment["LEADSMAN_HEALTH_FILE"] = str(tmp_path / "given.json")
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    running = harness(app_with(d=Scripted(READING)))
    running.run("11s")
    monkeypatch.setattr(time, "monotonic", lambda: running.now)

    assert [each.name for each in tmp_path.glob("*.json")] == ["given.json" if given else "health.json"]
    assert main(["health"]) == 0
    assert capsys.readouterr().out == "1 of 1 device ok; connected\n"


@pytest.mark.parametrize(
    ("environment", "watchdog"),
    [
        ({"WATCHDOG_USEC": "4000000"}, 4.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_ours_only_if_the_manager_says_so(environment, watchdog):
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": "/run/notify", **environment})

    assert notifier.watchdog == watchdog
    notifier.send("READY=1")  # nobody there
    notifier.close()


@pytest.mark.parametrize("address", ["", "notify", "vsock:1:2"])
def test_an_address_that_is_none_of_ours_is_left_alone(address):
    assert Notifier.from_environment({"NOTIFY_SOCKET": address}) is None


def test_health_is_one_json_object(harness, file):
    running = harness(app_with(d=Scripted(READING)))
    running.run("11s")

    found = json.loads(file.read_text())
    assert TypeAdapter(HealthFile).validate_python(found, strict=True) == found
    assert found == {
        "layout": 1,
        "at": pytest.approx(10.0, abs=0.1),
        "period": 10.0,
        "fresh": True,
        "words": "1 of 1 device ok; connected",
    }


@pytest.mark.parametrize(
    "content",
    [
        *(b"[" * 100_000, b'{"at": 1' + b"0" * 400 + b', "period": 1, "fresh": true, "words": ""}', b"\xff", b"5"),
        b'{"at": 100, "period": "ten", "fresh": true, "words": ""}',
        b'{"at": 100, "period": null, "fresh": true, "words": ""}',
        b'{"at": 100, "period": 10, "fresh": true, "words": 5}',
        b'{"at": 100, "period": 10, "fresh": true, "words": ["well"]}',
    ],
)
def test_a_health_file_of_any_content_is_no_good_health(file, probe, content):
    file.write_bytes(content)

    code, words = probe(100.0)

    assert code == 1
    assert "is no health file; name the one that the app writes" in words
