import asyncio
import inspect

import pytest

from leadsman import App
from leadsman.errors import DeviceTimeout, InvalidType
from leadsman.testing import Outages, Scripted

READING = {"t": 21.5}


class Stick:
    """A radio that is wedged until it was opened, or reset, so many times."""

    def __init__(self, opens_needed=2, resets_needed=0):
        self.opens = self.closes = self.resets = 0
        self.opens_needed, self.resets_needed = opens_needed, resets_needed

    async def __aenter__(self):
        self.opens += 1
        return self

    async def __aexit__(self, *exc_info):
        self.closes += 1

    async def read(self):
        if self.opens < self.opens_needed or self.resets < self.resets_needed:
            raise DeviceTimeout("no answer")
        return READING


class Resettable(Stick):
    async def reset(self):
        self.resets += 1


class Probed(Stick):
    healthy = True
    probes = 0

    async def probe(self):
        self.probes += 1
        if not self.healthy:
            raise OSError("no such adapter")


def app_with(stick, interval=10):
    app = App("app", adapters=(stick,))

    @app.telemetry("d", interval=interval)
    async def read(stick: type(stick)):
        return await stick.read()

    return app


def test_an_adapter_is_reopened_after_failed_polls_in_a_row(harness, caplog):
    stick = Stick()
    running = harness(app_with(stick))

    running.run("35s")

    assert (stick.opens, stick.closes) == (2, 1)
    assert running.states("d")
    assert "3 failed polls in a row; it is closed and opened again" in caplog.text


def test_the_next_rung_makes_its_client_anew(harness):
    stick = Resettable(resets_needed=1)
    running = harness(app_with(stick))

    running.run("2m")

    assert (stick.opens, stick.resets) == (3, 1)
    assert running.states("d")


def test_the_last_rung_is_the_users(harness):
    stick = Resettable(opens_needed=99)
    app, asked = app_with(stick), []

    @app.on_wedged_adapter
    async def power_cycle(adapter, failures):
        asked.append((adapter, failures))
        stick.opens = 100

    running = harness(app)
    running.run("5m")

    assert asked == [("Resettable", 12)]
    assert running.states("d")


def test_a_hook_that_fails_or_hangs_is_told_and_holds_up_nobody(harness):
    app = app_with(Stick(opens_needed=99))

    @app.on_wedged_adapter
    async def power_cycle(adapter, failures):
        if failures < 10:
            raise OSError("no such port")
        await asyncio.sleep(100_000)

    app.add_telemetry("other", Scripted(READING), interval=10)
    running = harness(app)
    running.run("1h")

    assert [each["type"] for each in running.faults()][:2] == ["OSError", "TimeoutError"]
    assert len(running.states("other")) == 361


def test_an_adapter_that_passes_its_probe_is_left_alone(harness):
    stick = Probed(opens_needed=99)
    running = harness(app_with(stick))

    running.run("10m")

    assert stick.opens == 1
    assert stick.probes >= 2


def test_an_adapter_that_fails_its_probe_is_reopened(harness):
    stick = Probed()
    stick.healthy = False
    running = harness(app_with(stick))

    running.run("1m")

    assert stick.opens == 2
    assert running.states("d")


def test_what_a_probe_raises_is_logged_with_its_place(harness, caplog):
    class Typo(Probed):
        async def probe(self):
            return self.radio

    harness(app_with(Typo())).run("1m")

    (line,) = [each for each in caplog.messages if "failed polls in a row" in each]
    place = f"test_wedged.py:{inspect.getsourcelines(Typo.probe)[1] + 1}"
    assert line.startswith("Typo: 3 failed polls in a row; it is closed and opened again; its probe: AttributeError: ")
    assert line.endswith(f"({place})")


def test_one_dead_device_of_several_is_no_fault_of_the_bus(harness):
    stick = Stick(opens_needed=1)
    app = App("app", adapters=(stick,))

    @app.telemetry("good", interval=10)
    async def good(stick: Stick):
        return READING

    @app.telemetry("bad", interval=10)
    async def bad(stick: Stick):
        raise OSError("no answer")

    running = harness(app)
    running.run("1h")

    assert stick.opens == 1


def test_a_bug_in_a_handler_is_no_fault_of_the_adapter(harness):
    stick = Stick(opens_needed=1)
    app = App("app", adapters=(stick,))

    @app.telemetry("d", interval=10)
    async def bad(stick: Stick):
        raise KeyError("temperature")

    running = harness(app)
    running.run("10m")

    assert stick.opens == 1


@pytest.mark.slow
def test_a_dead_device_is_not_reopened_ever_more_often_and_floods_no_log(harness, caplog):
    stick = Stick(opens_needed=10_000)
    running = harness(app_with(stick, interval=60))

    running.run("24h")

    assert 30 <= stick.opens <= 36  # every 48 failed polls, once the first few rungs are behind
    assert caplog.text.count("opened again") == 5


def test_a_last_resort_that_cannot_be_awaited_is_refused():
    with pytest.raises(InvalidType, match="is not an 'async def'"):
        App("app").on_wedged_adapter(lambda adapter, failures: None)


@pytest.mark.parametrize("how", ["raise", "hang"])
def test_an_adapter_that_does_not_close_is_opened_again_all_the_same(harness, how):
    class Stubborn(Stick):
        async def __aexit__(self, *exc_info):
            if how == "raise":
                raise OSError("busy")
            await asyncio.sleep(100_000)

    stick = Stubborn()
    running = harness(app_with(stick))
    running.run("3m")

    assert stick.opens == 2
    assert running.states("d")


def test_handlers_wait_out_the_reopening_as_an_outage_that_passes(harness):
    class Slow(Stick):
        async def __aenter__(self):
            if self.opens:
                await asyncio.sleep(25)
            return await super().__aenter__()

    running = harness(app_with(Slow()))
    running.run("2m")

    assert running.states("d")
    assert running.errors("d")[-1]["event"] == "recovered"


def test_recovery_begins_the_ladder_anew(harness):
    stick = Stick(opens_needed=1)
    app = App("app", adapters=(stick,))
    outages = Outages(READING, [(f"{5 * number}m", f"{5 * number}m25s") for number in range(1, 10)])

    @app.telemetry("d", interval=10)
    async def read(stick: Stick):
        return await outages()

    running = harness(app)
    running.run("1h")

    assert stick.opens == 10  # once an outage, of three polls each
    assert not running.faults()
