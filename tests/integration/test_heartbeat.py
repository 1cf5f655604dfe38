import asyncio
import itertools

from leadsman import App, CircuitBreaker
from leadsman.core.monitoring.heartbeat import MAX_DOCUMENT_BYTES
from leadsman.testing import Outages, Scripted, fail, hang

READING = {"t": 21.5}


def app_with(**handlers):
    app = App("app", version="1.2.3")
    for name, handler in handlers.items():
        app.add_telemetry(name, handler, interval=10)
    return app


def test_the_heartbeat_tells_state_session_uptime_and_version(harness):
    app = harness(app_with(d=Scripted(READING)))

    app.run("61s")

    status = app.status()
    assert (status["state"], status["health"], status["version"]) == ("online", "ok", "1.2.3")
    assert 58 <= status["uptime"] <= 62
    assert status["session"] == 1_767_225_600_000
    assert status["devices"] == {"d": {"status": "ok"}}
    assert status["mqtt"]["protocol"] == "5.0"


def test_it_comes_every_thirty_seconds_when_nothing_changes(harness):
    app = harness(app_with(d=Scripted(READING)))
    app.run("1m")
    before = len(app.broker.messages("app/status"))

    app.run("10m")

    assert len(app.broker.messages("app/status")) - before == 20


def test_it_comes_within_a_second_of_every_change(harness):
    app = harness(app_with(d=Scripted(READING, READING, fail(1), READING)))

    app.run("45s")

    told = {message.json["devices"]["d"]["status"]: message.at for message in app.broker.messages("app/status")[2:]}
    assert 20 <= told["error"] <= 21.1
    assert app.statuses("d") == ["starting", "ok", "error", "ok"]


def test_it_comes_at_most_once_a_second_however_much_changes(harness):
    devices = {f"d{number}": Scripted(fail(1), READING, fail(1), READING) for number in range(30)}
    app = App("app")
    for number, (name, handler) in enumerate(devices.items()):
        app.add_telemetry(name, handler, interval=1 + number / 100)
    running = harness(app)

    running.run("20s")

    times = [message.at for message in running.broker.messages("app/status")][2:]
    assert all(after - before >= 0.999 for before, after in itertools.pairwise(times))


def test_staleness_is_told_by_the_clock_also_when_nothing_failed(harness):
    app = App("app")
    app.add_telemetry("d", Scripted(READING, hang("5m")), interval=10, timeout=None, stale_after="35s")
    running = harness(app)

    running.run("50s")

    assert running.statuses("d") == ["starting", "ok", "stale"]
    assert running.availability("d") == ["online", "offline"]
    stale_at = next(
        message.at for message in running.broker.messages("app/status") if "stale" in message.payload.decode()
    )
    assert 35 <= stale_at <= 36.5


def test_a_device_that_never_answered_is_an_error_and_offline_once_it_is_stale(harness):
    app = harness(app_with(d=Scripted(hang(stubborn=True))))

    app.run("60s")

    assert app.statuses("d") == ["starting", "error"]
    assert app.status()["devices"]["d"]["stale"] is True
    assert app.availability("d") == ["online", "offline"]


def test_a_device_whose_first_call_never_ends_becomes_stale_since_nothing_failed(harness):
    app = App("app")
    app.add_telemetry("d", Scripted(hang(999)), interval=10, timeout=None)
    running = harness(app)

    running.run("60s")

    assert running.statuses("d") == ["starting", "stale"]
    assert running.availability("d") == ["online", "offline"]


def test_availability_is_offline_for_an_open_circuit_and_online_again_after_it(harness):
    app = App("app")
    app.add_telemetry("d", Outages(READING, [("60s", "120s")]), interval=10, circuit_breaker=CircuitBreaker(2))
    running = harness(app)

    running.run("5m")

    assert running.availability("d") == ["online", "offline", "online"]


def test_a_single_failure_does_not_take_a_device_offline(harness):
    app = harness(app_with(d=Scripted(READING, fail(1), READING)))

    app.run("1m")

    assert app.availability("d") == ["online"]


def test_availability_and_birth_are_asserted_again_after_a_reconnect(harness):
    app = harness(app_with(a=Scripted(READING), b=Scripted(fail(99))))
    app.run("60s")
    app.broker.cut()
    before = len(app.broker.log)

    app.run("2s")

    again = {message.topic for message in app.broker.log[before:]}
    assert {"app/status", "app/a/availability", "app/b/availability"} <= again


def test_a_document_of_many_devices_tells_counts_and_only_those_that_are_not_ok(harness):
    app = App("app")
    for number in range(3000):
        app.add_telemetry(f"device-{number:04}", Scripted(READING), interval="1h")
    app.add_telemetry("broken", Scripted(fail(99)), interval="1h")
    running = harness(app)

    running.run("10s")

    status = running.status()
    assert len(running.broker.retained["app/status"].payload) <= MAX_DOCUMENT_BYTES
    assert status["counts"] == {"ok": 3000, "error": 1}
    assert list(status["devices"]) == ["broken"]
    running.stop()
    assert running.status()["state"] == "offline"
    assert len(running.broker.retained["app/status"].payload) <= MAX_DOCUMENT_BYTES


def test_recovery_is_told_with_the_length_of_the_outage(harness):
    app = harness(app_with(d=Outages(READING, [("60s", "180s")])))

    app.run("5m")

    onset, *reminders, recovered = app.errors("d")
    assert onset == {
        "event": "onset",
        "type": "OSError",
        "message": "the device is away",
        "failures": 1,
        "since": "2026-01-01T00:01:00.000Z",
        "outage_seconds": 0.0,
    }
    assert [reminder["failures"] for reminder in reminders] == [2, 4, 8]
    assert (recovered["event"], recovered["failures"], recovered["outage_seconds"]) == ("recovered", 12, 120.0)
    assert not any(message.retain for message in app.broker.messages("app/d/error"))


def test_no_secret_and_no_control_character_of_a_device_reaches_a_topic_or_the_log(harness, caplog):
    error = OSError("GET http://ann:hunter2@cam/ failed\n\x1b[2JForged: line password=hunter2")
    app = harness(app_with(d=Scripted(fail(99, error))))

    app.run("2m")

    said = "".join(message.payload.decode() for message in app.broker.log) + caplog.text
    assert "hunter2" not in said
    assert "\x1b" not in said
    assert "\nForged" not in said


def silent_source(**arguments):
    app = App("app", **arguments)

    @app.source("s")
    async def s():
        yield READING
        await asyncio.sleep(1e9)

    return app


def test_staleness_right_after_a_heartbeat_is_reported_within_a_second(harness):
    app = harness(silent_source())

    app.run("302s")

    assert app.statuses("s")[-1] == "stale"
    assert app.availability("s") == ["online", "offline"]


def test_staleness_is_reported_within_a_second_however_long_the_heartbeat(harness):
    app = harness(silent_source(heartbeat="1h"))

    app.run("302s")

    assert (app.statuses("s")[-1], app.availability("s")[-1]) == ("stale", "offline")


def test_a_document_never_contradicts_the_availability_topic(harness):
    app = App("app", heartbeat="1h")
    app.add_telemetry("quiet", Scripted(READING, hang("5m")), interval=10, timeout=None, stale_after="35s")
    app.add_telemetry("other", Outages(READING, [("34.5s", "36s")]), interval=0.5)
    running = harness(app)

    running.run("1m")

    for message in running.broker.messages("app/status"):
        stale = message.json.get("devices", {}).get("quiet", {}).get("status") == "stale"
        said = [each.payload for each in running.broker.messages("app/quiet/availability") if each.at <= message.at]
        assert not stale or said[-1] == b"offline"
        assert not stale or message.json["health"] == "degraded"


def test_a_heartbeat_of_an_hour_is_an_hour_also_with_quick_devices(harness):
    app = App("app", heartbeat="1h")
    app.add_telemetry("d", Scripted(READING), interval=1)
    running = harness(app)

    running.run("3h")

    assert len(running.broker.messages("app/status")) <= 6
