"""Several radios as one: how each is started, and which one connects, with backends in memory."""

import asyncio
import contextlib

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from leadsman.adapters.ble import Advertisement, BleRadio
from leadsman.adapters.ble.proxy import Proxy
from leadsman.adapters.ble.radios import Radios
from leadsman.errors import DeviceTimeout, DeviceUnavailable, InvalidType, InvalidValue, PermanentError
from leadsman_rigs.esphome_board import KEY

ADDRESS = "AA:BB:CC:DD:EE:FF"


class Connection:
    def __init__(self, radio):
        self.radio = radio

    def has(self, uuid):
        return uuid == self.radio

    async def disconnect(self): ...


class Backend:
    """A radio that does as a test says. `fails` is raised by each start."""

    def __init__(self, name, fails=None, hangs=False, knows=True):
        self.name, self.fails, self.hangs, self.knows = name, fails, hangs, knows
        self.starts, self.closed, self.hear = [], False, None
        self.refuses = self.connecting = None
        self.lost = None

    async def start(self, on_advertisement):
        loop = asyncio.get_running_loop()
        self.starts.append(round(loop.time(), 1))
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        self.lost = loop.create_future() if self.knows else None
        self.hear = lambda rssi=-60, data=b"x": on_advertisement(
            Advertisement(ADDRESS, None, rssi, (), {}, {"s": data}), self.name
        )

    async def stop(self):
        self.hear = None

    async def close(self):
        self.closed = True

    def lose(self, why="it hung up"):
        self.lost.set_result(DeviceUnavailable(why))

    async def connect(self, handle, on_lost, timeout):
        assert handle == self.name
        self.connecting = asyncio.get_running_loop().time()
        if self.refuses == "hangs":
            await asyncio.Event().wait()
        if self.refuses is not None:
            raise self.refuses
        return Connection(self.name)


class Radio(BleRadio):
    def __init__(self, *backends, **options):
        super().__init__(**options)
        self.backends = {each.name: each for each in backends}

    def _create_backend(self):
        self._radios = Radios(self.backends, self._silence)
        return self._radios

    async def connected_by(self):
        """Which radio connects."""
        async with self.session(ADDRESS) as device:
            return device._connection.radio


@pytest.fixture
def on(loop):
    """Runs a scenario with an open radio and somebody who listens."""

    def on(scenario, *backends, **options):
        async def run():
            async with Radio(*backends, **options) as radio, contextlib.aclosing(radio.advertisements()) as heard:
                listening = asyncio.create_task(anext(heard))
                await asyncio.sleep(0.01)
                try:
                    return await scenario(radio, *backends)
                finally:
                    listening.cancel()
                    await asyncio.wait([listening])

        return loop.run_until_complete(run())

    return on


def test_a_radio_that_hangs_or_fails_delays_no_other(on, caplog):
    async def scenario(radio, attic, cellar, hall):
        attic.hear()
        assert radio.health["radio attic"] == "hears 1 device"
        assert radio.health["radio hall"] == "PermanentError: hall has another key"
        await asyncio.sleep(15)
        assert radio.health["radio cellar"] == "DeviceTimeout: cellar did not answer within 15s"

    with caplog.at_level("INFO", "leadsman"):
        on(
            scenario,
            Backend("attic"),
            Backend("cellar", hangs=True),
            Backend("hall", PermanentError("hall has another key")),
        )
    assert sum("hall has another key" in line for line in caplog.messages) == 1


def test_a_radio_that_fails_is_started_again_with_waits_that_grow_and_works_then(on, caplog):
    async def scenario(radio, attic, hall):
        await asyncio.sleep(300)
        hall.fails = None
        await asyncio.sleep(61)
        assert radio.health["radio hall"] == "hears 0 devices"
        return [b - a for a, b in zip(hall.starts, hall.starts[1:], strict=False)]

    with caplog.at_level("INFO", "leadsman"):
        waits = on(scenario, Backend("attic"), Backend("hall", DeviceUnavailable("no route")), silence="1h")

    for wait, expected in zip(waits, (2, 4, 8, 16, 32, 60, 60, 60), strict=False):
        assert expected * 0.75 <= wait <= min(60.1, expected * 1.25)
    assert sum("no route" in line for line in caplog.messages) == 1
    assert caplog.messages[-1] == "radio hall works again"


def test_a_radio_that_is_lost_is_forgotten_and_started_again(on):
    async def scenario(radio, attic, hall):
        attic.hear(-40), hall.hear(-80)
        assert await radio.connected_by() == "attic"
        attic.lose()
        await asyncio.sleep(0.1)
        assert radio.health["radio attic"] == "DeviceUnavailable: it hung up"
        assert await radio.connected_by() == "hall"
        await asyncio.sleep(3)
        assert (len(attic.starts), len(hall.starts)) == (2, 1)

    on(scenario, Backend("attic"), Backend("hall"))


def test_a_radio_that_is_lost_again_and_again_is_left_alone_for_longer_and_one_that_was_steady_is_not(on):
    async def scenario(radio, attic, hall):
        for _ in range(8):
            await asyncio.sleep(0.1)
            while attic.hear is None:
                await asyncio.sleep(0.1)
            attic.lose()
        before = len(attic.starts)
        await asyncio.sleep(30)
        assert len(attic.starts) == before
        await asyncio.sleep(120)
        attic.lose()
        await asyncio.sleep(3)
        assert len(attic.starts) == before + 2

    on(scenario, Backend("attic"), Backend("hall"), silence="1h")


def test_an_adapter_that_cannot_know_is_started_again_when_it_alone_hears_nothing(on):
    async def scenario(radio, hci0, attic):
        for _ in range(13):
            await asyncio.sleep(10)
            attic.hear()
        assert (len(hci0.starts), len(attic.starts)) == (3, 1)
        assert radio.health["radio hci0"] == "hears 0 devices"

    on(scenario, Backend("hci0", knows=False), Backend("attic"), silence="60s")


def test_if_no_radio_works_the_error_names_each_of_them(loop):
    async def scenario():
        hall, cellar = Backend("hall", DeviceUnavailable("no route")), Backend("cellar", PermanentError("other key"))
        async with Radio(hall, cellar) as radio:
            for _ in range(3):  # those that wait for their next attempt are not asked
                with pytest.raises(DeviceUnavailable, match="no route; other key"):
                    await radio.probe()
            assert hall.starts == [0.0]
            hall.fails = PermanentError("no key")
            await asyncio.sleep(10)
            with pytest.raises(PermanentError, match="no key; other key"):
                await anext(radio.advertisements())
        assert hall.closed
        assert cellar.closed

    loop.run_until_complete(scenario())


def test_if_all_radios_are_lost_who_listens_learns_it(loop):
    async def scenario():
        hall = Backend("hall")
        async with Radio(hall) as radio:
            heard = asyncio.create_task(anext(radio.advertisements()))
            await asyncio.sleep(1)
            hall.fails = DeviceUnavailable("no route")
            hall.lose()
            with pytest.raises(DeviceUnavailable, match="no route"):
                await heard

    loop.run_until_complete(scenario())


def test_a_scan_that_is_given_up_while_it_starts_leaves_no_radio_on(loop):
    async def scenario():
        hall = Backend("hall", hangs=True)
        async with Radio(hall) as radio:
            listening = asyncio.create_task(anext(radio.advertisements()))
            await asyncio.sleep(1)
            listening.cancel()
            await asyncio.wait([listening])
            await asyncio.sleep(100)
            assert hall.starts == [0.0]

    loop.run_until_complete(scenario())


def test_the_next_radio_connects_if_the_best_one_cannot(on):
    async def scenario(radio, attic, hall, cellar):
        cellar.hear(-90), attic.hear(-40), hall.hear(-60)
        attic.refuses = DeviceUnavailable("all 3 connections of attic are in use")
        assert await radio.connected_by() == "hall"
        hall.hear()
        hall.refuses = attic.refuses = "hangs"
        assert await radio.connected_by() == "cellar"
        began = attic.connecting
        assert (hall.connecting - began, cellar.connecting - began) == (pytest.approx(10), pytest.approx(15))
        hall.refuses, cellar.refuses = DeviceUnavailable("hall is away"), DeviceUnavailable("cellar is away")
        hall.hear()
        with pytest.raises(DeviceUnavailable, match="attic made no connection to .* within 10s; hall is .*; cellar"):
            await radio.connected_by()

    on(scenario, Backend("attic"), Backend("hall"), Backend("cellar"), connect="20s")


def test_a_device_whose_radios_have_all_left_is_searched_for(on):
    async def scenario(radio, attic, hall):
        attic.hear()
        attic.lose()
        await asyncio.sleep(0.1)
        with pytest.raises(DeviceUnavailable, match="no radio hears AA:BB:CC:DD:EE:FF any more"):
            await radio.connected_by()
        with pytest.raises(DeviceTimeout, match="was not heard within 30s"):
            await radio.connected_by()

    on(scenario, Backend("attic"), Backend("hall"), silence="1h")


@pytest.mark.parametrize("host", ["attic.local", "192.168.1.7", "fe80::1%eth0", " attic "])
def test_a_host_is_a_name_or_an_address(host):
    assert Proxy(host=host).host == host.strip()


@pytest.mark.parametrize("host", ["", "attic:6053", "http://attic", "a b", "a\nb", "x" * 254, "[fe80::1]", "u@attic"])
def test_what_is_no_host_is_a_named_error(host):
    with pytest.raises(ValidationError, match="a name or an address, such as 'attic.local', without a port"):
        Proxy(host=host)


@pytest.mark.parametrize("key", ["", "short", KEY[:-4], KEY + "AAAA", "ü" * 44, "not base64 at all, but long enough!"])
def test_what_is_no_key_is_a_named_error_that_does_not_show_it(key):
    with pytest.raises(ValidationError, match="copy the 44 characters") as wrong:
        Proxy(host="attic", key=SecretStr(key))
    assert not key or key not in str(wrong.value)


def test_settings_may_have_proxies():
    class Settings(BaseModel):
        proxies: dict[str, Proxy] = {}

    settings = Settings.model_validate({"proxies": {"attic": {"host": "attic.local", "key": KEY}}})

    assert settings.proxies["attic"] == Proxy(host="attic.local", key=SecretStr(KEY))
    assert KEY not in repr(settings)
    for wrong in ({"port": 0}, {"port": 65536}, {"hots": "x"}):
        with pytest.raises(ValidationError):
            Proxy(host="attic", **wrong)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BleRadio(proxies=["attic.local"]), InvalidType, r"write Proxy\(host='attic.local'\)"),
        (lambda: BleRadio(proxies="attic.local"), InvalidType, "write \\[Proxy"),
        (lambda: BleRadio(proxies={"attic": Proxy(host="attic")}), InvalidType, r"values\(\) of a dict"),
        (lambda: BleRadio(proxies=[Proxy(host="attic"), Proxy(host="ATTIC")]), InvalidValue, "ATTIC twice"),
        (lambda: BleRadio(local=False), InvalidValue, "there are no proxies"),
        (lambda: BleRadio("hci1", local=False, proxies=[Proxy(host="a")]), InvalidValue, "leave out one of them"),
    ],
)
def test_a_wrong_argument_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
