"""When a radio scans, which devices it knows and which advertisements it passes on, with a backend in memory."""

import asyncio
import contextlib

import pytest

from leadsman.adapters.ble import Advertisement, BleRadio
from leadsman.errors import DeviceTimeout, DeviceUnavailable, InvalidType, InvalidValue

ADDRESS, OTHER = "AA:BB:CC:DD:EE:FF", "AA:BB:CC:DD:EE:00"


def advertisement(address=ADDRESS):
    return Advertisement(address, None, -60, (), {}, {})


class Connection:
    async def disconnect(self): ...


class Backend:
    """A backend that counts its starts and stops, and hears what a test lets it hear."""

    def __init__(self):
        self.starts = self.stops = 0
        self.hangs = self.refuses = False
        self.hear = None
        self.connected = []

    async def start(self, on_advertisement):
        if self.hangs:
            await asyncio.Event().wait()
        self.starts += 1
        self.hear = on_advertisement

    async def stop(self):
        self.stops += 1
        self.hear = None

    async def close(self): ...

    async def connect(self, handle, on_lost, timeout):
        if self.refuses:
            raise DeviceUnavailable("it is connected elsewhere")
        self.connected.append(handle)
        return Connection()


class Radio(BleRadio):
    """A radio with backends of a test, the first one now and the next ones after each reset."""

    def __init__(self, *backends, **options):
        super().__init__(**options)
        self.backends = list(backends)

    def _create_backend(self):
        return self.backends.pop(0)

    async def connect(self, address=ADDRESS):
        async with self.session(address):
            pass


@contextlib.asynccontextmanager
async def listening(radio, **conditions):
    """Collects what the radio hears."""
    heard = []

    async def listen():
        async for each in radio.advertisements(**conditions):
            heard.append(each)

    task = asyncio.create_task(listen())
    await asyncio.sleep(0.001)
    yield heard
    await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def on(loop):
    """Runs a scenario with an open radio."""

    def on(scenario, *backends, **options):
        async def run():
            async with Radio(*backends, **options) as radio:
                return await scenario(radio)

        return loop.run_until_complete(run())

    return on


def test_it_scans_while_there_is_a_listener(on, backend):
    async def scenario(radio):
        async with listening(radio) as first:
            async with listening(radio) as second:
                backend.hear(advertisement(), "handle")
            assert (radio.health["scanning"], backend.starts) == (True, 1)
        assert (radio.health["scanning"], backend.stops) == (False, 1)
        return first + second

    assert on(scenario, backend) == [advertisement(), advertisement()]


def test_a_radio_that_is_not_open_says_what_to_write(loop):
    with pytest.raises(DeviceUnavailable, match="async with radio"):
        loop.run_until_complete(BleRadio().probe())


def test_a_scanner_that_does_not_start_is_an_error_and_not_a_wait(on, loop, backend):
    backend.hangs = True

    async def scenario(radio):
        with pytest.raises(DeviceUnavailable, match="did not start within 5s"):
            await radio.probe()
        return loop.time(), radio.health["scanning"]

    assert on(scenario, backend) == (5.0, False)


def test_a_device_is_located_by_its_next_advertisement(on, backend):
    async def scenario(radio):
        task = asyncio.ensure_future(radio.connect())
        await asyncio.sleep(1)
        backend.hear(advertisement(OTHER), "another")
        backend.hear(advertisement(), "handle")
        backend.hear(advertisement(), "handle")
        await task
        return radio.health["scanning"]

    assert on(scenario, backend) is False
    assert backend.connected == ["handle"]


def test_a_device_that_was_received_just_now_is_not_waited_for(on, backend):
    async def scenario(radio):
        async with listening(radio):
            backend.hear(advertisement(), "handle")
        await radio.connect()
        assert (backend.starts, backend.connected) == (1, ["handle"])
        await asyncio.sleep(10)
        with pytest.raises(DeviceTimeout, match="was not heard within 30s"):
            await radio.connect()

    on(scenario, backend)


def test_a_device_that_took_no_connection_is_waited_for(on, backend):
    async def scenario(radio):
        async with listening(radio):
            backend.hear(advertisement(), "handle")
        backend.refuses = True
        with pytest.raises(DeviceUnavailable, match="elsewhere"):
            await radio.connect()
        with pytest.raises(DeviceTimeout):
            await radio.connect()

    on(scenario, backend)


def test_it_is_restarted_only_if_nothing_at_all_was_received(on, backend):
    async def scenario(radio):
        async with listening(radio, address=ADDRESS):
            await asyncio.sleep(59)
            backend.hear(advertisement(OTHER), "another")
            await asyncio.sleep(60)
            assert (backend.starts, backend.stops) == (1, 0)
            await asyncio.sleep(2)
            assert (backend.starts, backend.stops) == (2, 1)

    on(scenario, backend, silence=60.0, find=60.0)


def test_a_new_backend_scans_on_for_the_listeners(on, backend):
    other = Backend()

    async def scenario(radio):
        async with listening(radio):
            await radio.reset()
            assert (backend.stops, other.starts) == (1, 1)
        await radio.reset()
        assert not radio.health["scanning"]

    on(scenario, backend, other, Backend())


def test_the_devices_of_a_whole_city_are_not_all_remembered(on, backend):
    addresses = [f"AA:BB:CC:DD:{number // 256:02X}:{number % 256:02X}" for number in range(522)]

    async def scenario(radio):
        async with listening(radio):
            for address in addresses:
                backend.hear(advertisement(address), address)
        await radio.connect(addresses[10])
        with pytest.raises(DeviceTimeout):
            await radio.connect(addresses[9])
        return radio.health["known"]

    assert on(scenario, backend) == 512
    assert backend.connected == [addresses[10]]


def accepted(on, backend, heard, **conditions):
    """Which of some advertisements, each with its time in seconds, a radio passes on."""

    async def scenario(radio):
        found = []
        async with listening(radio, **conditions) as passed_on:
            began = asyncio.get_running_loop().time()
            for at, each in heard:
                await asyncio.sleep(began + at - asyncio.get_running_loop().time())
                backend.hear(each, "handle")
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                found.append(bool(passed_on))
                passed_on.clear()
        return found

    return on(scenario, backend)


def test_at_most_one_of_a_device_in_the_time_that_is_asked_for(on, backend):
    heard = [(at, advertisement()) for at in (0, 5, 9.9, 10, 15, 20)] + [(21, advertisement(OTHER))]

    assert accepted(on, backend, heard, every=10) == [True, False, False, True, False, True, True]


def test_only_what_differs_from_the_last_one_signal_strength_aside(on, backend):
    first = advertisement()._replace(manufacturer={0x0334: b"a"})
    stronger, later = first._replace(rssi=-40), first._replace(manufacturer={0x0334: b"b"})
    heard = [(0, each) for each in (first, first, stronger, later, later, first, advertisement(OTHER))]

    assert accepted(on, backend, heard, changed=True) == [True, False, False, True, False, True, True]


def test_a_packet_without_data_is_no_news_and_neither_is_what_follows_it(on, backend):
    data = advertisement()._replace(
        name="sensor", services=("180a",), manufacturer={0x0334: b"a"}, service_data={"s": b"x"}
    )
    bare, nameless = data._replace(manufacturer={}, service_data={}), data._replace(name=None, service_data={})
    news = [data._replace(service_data={"s": b"y"}), data._replace(name="other"), data._replace(services=("181a",))]
    heard = [(0, each) for each in (data, bare, data, nameless, bare, *news, news[-1])]

    assert accepted(on, backend, heard, changed=True) == [True, *[False] * 4, True, True, True, False]


def test_who_asks_for_a_service_gets_its_data_and_not_a_packet_without_it(on, backend):
    uuid = "0000feaa-0000-1000-8000-00805f9b34fb"
    listed = advertisement()._replace(services=(uuid,))
    data = listed._replace(service_data={uuid: b"\x20"})
    other = listed._replace(address=OTHER)
    heard = [(0, each) for each in (other, data, listed, other, data)]

    assert accepted(on, backend, heard, service="feaa") == [True, True, False, True, True]


def test_who_asks_for_a_manufacturer_gets_its_data_in_each_packet(on, backend):
    data = advertisement()._replace(manufacturer={0x0334: b"a"})

    assert accepted(on, backend, [(0, data), (0, advertisement()), (0, data)], manufacturer=0x0334) == [
        True,
        False,
        True,
    ]


def test_a_city_full_of_devices_is_forgotten_again(on, backend):
    city = [(0, advertisement(str(number))) for number in range(1536)]
    heard = [(0, advertisement()), (0, advertisement()), *city, city[-512], city[-1], (0, advertisement())]

    found = accepted(on, backend, heard, changed=True)

    assert found[:2] == [True, False]
    assert all(found[2:-3])
    assert found[-3:] == [False, False, True]


def test_an_address_may_be_written_as_people_do(on, backend):
    async def scenario(radio):
        async with listening(radio):
            backend.hear(advertisement(), "handle")
        for address in (" aa-bb-cc-dd-ee-ff ", "aa:bb:cc:dd:ee:ff"):
            await radio.connect(address)
        for wrong, error in (("aa:bb", InvalidValue), ("gg:bb:cc:dd:ee:ff", InvalidValue), (5, InvalidType)):
            with pytest.raises(error, match="not a Bluetooth address"):
                await radio.connect(wrong)

    on(scenario, backend)

    assert backend.connected == ["handle", "handle"]
