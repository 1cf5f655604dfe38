"""An adapter under the app's care: what it is able to do, and how it is opened, probed and opened again."""

import asyncio
import re

import pytest

from leadsman.core.adapters.managed import (
    OPEN_TIMEOUT,
    ManagedAdapter,
    adapter_names,
    declared_errors,
    managed_adapters,
)
from leadsman.core.event_bus import EventBus
from leadsman.core.events import AdapterFailed, AdapterReopened, AppFault
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.timers import Timers
from leadsman.core.resilience.environment import Environment
from leadsman.errors import DeviceUnavailable, InvalidType, InvalidValue, NotInstalled


class Plain:
    def __init__(self, faults=()):
        self.faults = list(faults)
        self.log = []

    async def __aenter__(self):
        self.log.append("open")
        if self.faults:
            raise self.faults.pop(0)
        return self

    async def __aexit__(self, *exc_info):
        self.log.append("close")


class Able(Plain):
    transient_errors = (KeyError,)
    retry_tokens = 3
    well = True

    @property
    def health(self):
        return {"signal": -60}

    async def probe(self):
        if not self.well:
            raise OSError("gone")

    async def reset(self):
        self.log.append("reset")

    def check_installed(self):
        raise NotInstalled("pip install it")


@pytest.fixture
def keep(loop, events):
    """Keeps an adapter open for some seconds, with a step in the middle."""

    def keep(managed, step=lambda: None, seconds=200.0):
        async def run():
            clock = system_clock(loop)
            bus = EventBus(clock)
            bus.subscribe(events.append)
            task = loop.create_task(managed.keep(Environment(Timers(loop, bus.emit), clock, bus)))
            await asyncio.sleep(seconds / 2)
            step()
            await asyncio.sleep(seconds / 2)
            task.cancel()
            await asyncio.wait([task])

        loop.run_until_complete(run())

    return keep


def test_an_adapter_without_abilities_is_just_opened_and_closed(loop):
    managed = ManagedAdapter(None, Plain())
    managed.check_installed()

    assert (managed.health, managed.transient_errors, managed.retry_tokens) == ({}, (), None)
    assert not managed.supports_reset
    assert isinstance(loop.run_until_complete(managed.probe()), DeviceUnavailable)


def test_each_ability_is_seen_by_its_member():
    managed = ManagedAdapter(None, Able())

    assert (managed.health, managed.transient_errors, managed.retry_tokens) == ({"signal": -60}, (KeyError,), 3)
    assert managed.supports_reset
    with pytest.raises(NotInstalled):
        managed.check_installed()


def test_health_that_breaks_is_shown_as_a_fault():
    class Broken(Plain):
        @property
        def health(self):
            raise ZeroDivisionError("no samples")

    fault = ManagedAdapter(None, Broken()).health["fault"]
    assert re.fullmatch(r"ZeroDivisionError: no samples \(test_managed\.py:\d+\)", fault)


def test_an_adapter_that_does_not_open_is_tried_again_and_says_why_meanwhile(keep, events):
    managed = ManagedAdapter("boiler", Plain([OSError("no such file")]))
    with pytest.raises(DeviceUnavailable, match="Plain 'boiler' is not open: it is still opening"):
        managed.get()

    keep(managed)

    assert [type(event) for event in events] == [AdapterFailed]
    assert managed.adapter.log == ["open", "open"]
    assert managed.get() is managed.adapter


def test_an_adapter_that_hangs_while_it_opens_is_given_up_after_a_while(keep, events):
    class Hanging(Plain):
        async def __aenter__(self):
            await asyncio.sleep(1e9)

    managed = ManagedAdapter(None, Hanging())
    keep(managed, seconds=OPEN_TIMEOUT + 0.5)

    assert isinstance(events[0].error, DeviceUnavailable)
    with pytest.raises(DeviceUnavailable, match="did not open within 30s"):
        managed.get()


def test_a_reset_comes_between_closing_and_opening(keep, events):
    managed = ManagedAdapter(None, Able())

    keep(managed, lambda: managed.reopen(with_reset=True))

    assert managed.adapter.log == ["open", "close", "reset", "open"]
    assert (events[0].how, managed.reopened) == ("reset", 1)


def test_an_adapter_that_cannot_be_reset_is_only_opened_again(keep, events):
    managed = ManagedAdapter(None, Plain())

    keep(managed, lambda: managed.reopen(with_reset=True))

    assert managed.adapter.log == ["open", "close", "open"]
    assert [type(event) for event in events] == [AdapterReopened]
    assert events[0].how == "reopened"


def test_an_adapter_that_does_not_close_is_opened_again_all_the_same(keep, events):
    class Stuck(Plain):
        async def __aexit__(self, *exc_info):
            raise OSError("stuck")

    managed = ManagedAdapter(None, Stuck())
    keep(managed, lambda: managed.reopen(with_reset=False))

    assert [type(event) for event in events] == [AppFault, AdapterReopened]
    assert events[0].where == "closing Stuck"


def test_an_adapter_that_is_not_open_cannot_be_opened_again():
    assert not ManagedAdapter(None, Able()).reopen(with_reset=False)


def test_a_probe_tells_a_working_adapter_from_one_that_is_not(loop, keep):
    managed = ManagedAdapter(None, Able())
    assert isinstance(loop.run_until_complete(managed.probe()), DeviceUnavailable)  # it is not open

    keep(managed)

    assert loop.run_until_complete(managed.probe()) is None
    managed.adapter.well = False
    assert type(loop.run_until_complete(managed.probe())) is OSError


def test_what_a_handler_needs_names_its_adapters_and_their_errors():
    needs = (("port", ManagedAdapter("boiler", Able())), ("other", object()), ("plain", ManagedAdapter(None, Plain())))

    assert adapter_names(needs) == ("boiler", "Able", "Plain")
    assert declared_errors(needs) == (KeyError,)


@pytest.mark.parametrize("tokens", [0, -1, True, 1.5, "3"])
def test_retry_tokens_are_a_whole_number_or_none(tokens):
    adapter = Able()
    adapter.retry_tokens = tokens

    with pytest.raises(InvalidValue, match="retry_tokens of Able is"):
        managed_adapters((adapter,))


@pytest.mark.parametrize(
    ("adapters", "told"),
    [
        (5, "adapters is 5"),
        ({7: Plain()}, "contains the name 7"),
        ((Plain,), "with brackets"),
        ((object(),), "not an async context manager"),
    ],
)
def test_something_that_is_no_adapter_is_refused(adapters, told):
    with pytest.raises(InvalidType, match=told):
        managed_adapters(adapters)
