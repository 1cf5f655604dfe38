import asyncio

import pytest

from leadsman.adapters.ble.advertisement import MOST_KNOWN, Advertisement
from leadsman.adapters.ble.radio import FRESH, START_TIMEOUT, Scanner
from leadsman.errors import DeviceTimeout, DeviceUnavailable

ADDRESS, OTHER = "AA:BB:CC:DD:EE:FF", "AA:BB:CC:DD:EE:00"


def advertisement(address=ADDRESS):
    return Advertisement(address, None, -60, (), {}, {})


class Backend:
    """A backend that counts its starts and stops, and hears what a test lets it hear."""

    def __init__(self):
        self.starts = self.stops = 0
        self.hangs = False
        self.hear = None

    async def start(self, on_advertisement):
        if self.hangs:
            await asyncio.Event().wait()
        self.starts += 1
        self.hear = on_advertisement

    async def stop(self):
        self.stops += 1
        self.hear = None


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def scanner(backend):
    scanner = Scanner(silence=60.0)
    scanner.open(backend)
    return scanner


def test_it_scans_while_there_is_a_listener(loop, scanner, backend):
    heard = []

    async def scenario():
        async with scanner.listening(heard.append):
            async with scanner.listening(heard.append):
                backend.hear(advertisement(), "handle")
            assert (scanner.running, backend.starts) == (True, 1)
        assert (scanner.running, backend.stops) == (False, 1)

    loop.run_until_complete(scenario())

    assert heard == [advertisement(), advertisement()]


def test_a_scanner_that_is_not_open_says_what_to_write(loop):
    with pytest.raises(DeviceUnavailable, match="async with radio"):
        loop.run_until_complete(Scanner(60.0).probe())


def test_a_scanner_that_does_not_start_is_an_error_and_not_a_wait(loop, scanner, backend):
    backend.hangs = True

    with pytest.raises(DeviceUnavailable, match="did not start within 5s"):
        loop.run_until_complete(scanner.probe())

    assert loop.time() == START_TIMEOUT
    assert not scanner.running


def test_a_device_is_located_by_its_next_advertisement(loop, scanner, backend):
    async def scenario():
        task = asyncio.ensure_future(scanner.locate(ADDRESS, 30.0))
        await asyncio.sleep(1)
        backend.hear(advertisement(OTHER), "another")
        backend.hear(advertisement(), "handle")
        backend.hear(advertisement(), "handle")
        return await task

    assert loop.run_until_complete(scenario()) == "handle"
    assert not scanner.running


def test_a_device_that_was_received_just_now_is_not_waited_for(loop, scanner, backend):
    async def scenario():
        async with scanner.listening(lambda each: None):
            backend.hear(advertisement(), "handle")
        assert await scanner.locate(ADDRESS, 30.0) == "handle"
        assert backend.starts == 1
        await asyncio.sleep(FRESH)
        with pytest.raises(DeviceTimeout, match="was not heard within 30s"):
            await scanner.locate(ADDRESS, 30.0)

    loop.run_until_complete(scenario())


def test_a_device_that_was_forgotten_is_waited_for(loop, scanner, backend):
    async def scenario():
        async with scanner.listening(lambda each: None):
            backend.hear(advertisement(), "handle")
        scanner.forget(ADDRESS)
        await scanner.locate(ADDRESS, 30.0)

    with pytest.raises(DeviceTimeout):
        loop.run_until_complete(scenario())


def test_it_is_restarted_only_if_nothing_at_all_was_received(loop, scanner, backend):
    async def scenario():
        async with scanner.listening(lambda each: None):
            await asyncio.sleep(59)
            await scanner.restart_if_silent()
            assert backend.starts == 1
            backend.hear(advertisement(OTHER), "another")
            await asyncio.sleep(59)
            await scanner.restart_if_silent()
            assert backend.starts == 1
            await asyncio.sleep(1)
            await scanner.restart_if_silent()
            assert (backend.starts, backend.stops) == (2, 1)

    loop.run_until_complete(scenario())


def test_a_new_backend_scans_on_for_the_listeners(loop, scanner, backend):
    other = Backend()

    async def scenario():
        async with scanner.listening(lambda each: None):
            await scanner.replace(lambda: other)
            assert (backend.stops, other.starts) == (1, 1)
        await scanner.replace(Backend)
        assert not scanner.running

    loop.run_until_complete(scenario())


def test_the_devices_of_a_whole_city_are_not_all_remembered(loop, scanner, backend):
    async def scenario():
        async with scanner.listening(lambda each: None):
            for number in range(MOST_KNOWN + 10):
                backend.hear(advertisement(f"{number}"), number)

    loop.run_until_complete(scenario())

    assert len(scanner.known) == MOST_KNOWN
    assert "0" not in scanner.known
