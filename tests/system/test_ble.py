"""Real bleak over a real D-Bus, with GATT servers in the air; and the twin, which must do the same."""

import asyncio
import contextlib
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from bumble.att import ATT_Error, ErrorCode
from pydantic import SecretStr

from leadsman.adapters.ble import BleRadio, Decoders, bthome
from leadsman.adapters.ble.gatt import STANDARD, uuid_of
from leadsman.adapters.ble.proxy import Proxy
from leadsman.core.resilience.failure import Failure
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    InvalidType,
    InvalidValue,
    PermanentError,
    TransientError,
)
from leadsman.testing import BleTwin, TwinDevice
from leadsman_rigs.bluez import Air, GattServer, Scripted
from leadsman_rigs.esphome_board import KEY, Board, BoardDevice, advertise, of_maker, of_service, packet
from leadsman_rigs.watched import on

ADDRESS, OTHER = "F0:11:22:33:44:55", "F0:11:22:33:44:66"
RADON = "b42e01aa-ade7-11e4-89d3-123b93f75cba"
PAGE = Path("docs/how-to/bluetooth.md")
VALUES = {"2a6e": b"\x66\x08", "2a6f": b"\x94\x11", RADON: b"\x2a\x00", "2a19": b"\x63"}


@pytest.fixture(scope="module")
def air():
    with Air() as air:
        yield air


@pytest.fixture(autouse=True)
def nobody_stays(air):
    yield
    for peer in list(air.peers.values()):
        if isinstance(peer, GattServer):
            air.call(peer.leave())
    air.peers.clear()
    air.call(air.daemon.forget_all())


async def until(true):
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def subscribed_to(record, uuid):
    """Whether somebody is subscribed to a characteristic of a device that the service knows."""
    attribute = None if record is None else record.attributes.get(uuid_of(uuid))
    return attribute is not None and attribute.values["Notifying"]


def in_another_room(air, request, values, said, options):
    """A device that a proxy hears, which connects to one device at a time."""
    board, device = Board(key=KEY, slots=1), BoardDevice(values, said.pop("answers", None))
    board.devices[ADDRESS] = device
    air.call(board.__aenter__())
    data = packet((0x09, b"sensor"), *of_service(said.get("service_data")), *of_maker(said.get("manufacturer")))
    advertising = asyncio.run_coroutine_threadsafe(advertise(board, ADDRESS, data), air.loop)

    def leave():
        advertising.cancel()
        air.call(board.__aexit__())

    request.addfinalizer(leave)
    proxy = Proxy(host="127.0.0.1", port=board.port, key=SecretStr(KEY))

    def subscribed(uuid):
        return device.switched.get(device.handles[uuid_of(uuid)]) == b"\x01\x00"

    return SimpleNamespace(
        radio=BleRadio(local=False, proxies=[proxy], **options),
        notify=lambda uuid, data: air.loop.call_soon_threadsafe(board.notify, ADDRESS, uuid, data),
        subscribed=subscribed,
        hang_up=lambda: air.loop.call_soon_threadsafe(board.hang_up, ADDRESS),
        refuse=lambda: setattr(device, "refuses", True),
        away=lambda: setattr(device, "silent", True),
    )


class TestBoth:
    """What a real radio, its twin and a proxy do."""

    @pytest.fixture(params=["real", "twin", "proxy"])
    def place(self, request, air):
        """Put a device into the air: the radio that hears it, and how to make it do something."""

        def put(values=VALUES, **said):
            options = {"find": "60s", "connect": "60s", "timeout": "30s"}
            if request.param == "proxy":
                return in_another_room(air, request, values, said, options)
            if request.param == "twin":
                device = TwinDevice(ADDRESS, values, name="sensor", **said)

                def refuse():
                    device.refuses = DeviceUnavailable("busy")

                def away():
                    device.silent = True

                return SimpleNamespace(
                    radio=BleTwin(device, **options),
                    notify=device.notify,
                    subscribed=lambda uuid: uuid_of(uuid) in device._subscribers,
                    hang_up=device.hang_up,
                    refuse=refuse,
                    away=away,
                )
            device = air.place(Scripted(ADDRESS, "sensor", {"181a": values}, **said))

            def notify(uuid, data):
                air.loop.call_soon_threadsafe(device.record.notify, uuid, data)

            def subscribed(uuid):
                return subscribed_to(device.record, uuid)

            def hang_up():
                asyncio.run_coroutine_threadsafe(device.record.hang_up(), air.loop)

            def refuse():
                device.refuses = "Software caused connection abort"

            def away():
                device.silent = True
                air.call(air.daemon.forget_all())

            return SimpleNamespace(
                radio=BleRadio(**options),
                notify=notify,
                subscribed=subscribed,
                hang_up=hang_up,
                refuse=refuse,
                away=away,
            )

        return put

    def test_characteristics_are_read_and_the_device_left(self, place):
        async def scenario(radio):
            first = await radio.read(ADDRESS, "2a6e", "2a6f", RADON)
            assert [STANDARD["2a6e"].decode(first[0]), STANDARD["2a6f"].decode(first[1])] == [21.5, 45.0]
            assert await radio.read(ADDRESS.lower(), "2a6e") == [b"\x66\x08"]

        on(place().radio, scenario)

    def test_a_characteristic_that_is_not_there_is_a_permanent_error(self, place):
        async def scenario(radio):
            with pytest.raises(PermanentError, match="no such characteristic"):
                await radio.read(ADDRESS, "2a6d")

        on(place().radio, scenario)

    def test_what_a_device_has_is_known_without_reading_it(self, place):
        async def scenario(radio):
            async with radio.session(ADDRESS) as device:
                assert [device.has(each) for each in ("2a6e", RADON.upper(), "2a6d")] == [True, True, False]
                with pytest.raises(InvalidValue, match="is not a UUID"):
                    device.has("radon")

        on(place().radio, scenario)

    def test_notifications_come_in_order_until_the_device_hangs_up(self, place):
        async def scenario(radio):
            async with radio.session(ADDRESS) as device:
                got = []
                heard = device.notifications("2a6e")
                while not got or got[-1] != b"\x03":
                    got.append(await anext(heard))
                there.hang_up()
                with pytest.raises(DeviceUnavailable, match="hung up"):
                    await anext(heard)
                with pytest.raises(DeviceUnavailable, match="hung up"):
                    await device.read("2a6e")
            return got

        async def spoken(radio):
            async def speak():
                await until(lambda: there.subscribed("2a6e"))
                for number in range(4):
                    there.notify("2a6e", bytes((number,)))
                    await asyncio.sleep(0.01)

            speaking = asyncio.create_task(speak())
            try:
                return await scenario(radio)
            finally:
                await speaking

        there = place()
        assert on(there.radio, spoken) == [bytes((number,)) for number in range(4)]

    def test_one_notification_is_waited_for_and_the_subscription_ended(self, place):
        async def scenario(radio):
            async with radio.session(ADDRESS) as device:
                waiting = asyncio.create_task(device.next("2a6e", timeout="60s"))
                await until(lambda: there.subscribed("2a6e"))
                there.notify("2a6e", b"\x01")
                assert await waiting == b"\x01"
                with pytest.raises(DeviceTimeout, match="silent for 200ms"):
                    await device.next("2a6e", timeout="200ms")
                assert await device.read("2a6f") == VALUES["2a6f"]

        there = place()
        on(there.radio, scenario)

    def test_the_answer_to_a_request_is_the_next_notification(self, place):
        async def scenario(radio):
            async with radio.session(ADDRESS) as device:
                request = ("2a6f", b"\x01\x02")
                assert await device.next("2a6e", request=request) == b"\x02\x01"
                answers = device.notifications("2a6e", request=request)
                assert await anext(answers) == b"\x02\x01"
                await answers.aclose()
                with pytest.raises(PermanentError, match="writing 0000fff1"):
                    await device.next("2a6e", request=("fff1", b"\x01"))
                assert not there.subscribed("2a6e")

        there = place(answers={"2a6e": lambda data: data[::-1]})
        on(there.radio, scenario)

    def test_a_wait_that_is_cancelled_ends_its_subscription(self, place):
        async def scenario(radio):
            async with radio.session(ADDRESS) as device:
                for _ in range(2):
                    waiting = asyncio.create_task(device.next("2a6e", timeout="60s"))
                    await until(lambda: there.subscribed("2a6e"))
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    assert not there.subscribed("2a6e")

        there = place()
        on(there.radio, scenario)

    def test_silence_is_a_timeout(self, place):
        async def scenario(radio):
            async with radio.session(ADDRESS) as device:
                with pytest.raises(DeviceTimeout, match="silent for 200ms"):
                    await anext(device.notifications("2a6e", silence="200ms"))

        on(place().radio, scenario)

    def test_a_device_that_is_away_is_a_timeout_that_says_what_to_look_at(self, place):
        async def scenario(radio):
            await radio.read(ADDRESS, "2a6e")
            there.away()
            radio._scanner.known.clear()
            radio._find = 2.0
            with pytest.raises(DeviceTimeout, match="was not heard within 2s; is it in range, awake"):
                await radio.read(ADDRESS, "2a6e")

        there = place()
        on(there.radio, scenario)

    def test_a_device_that_refuses_is_unavailable(self, place):
        async def scenario(radio):
            there.refuse()
            radio._find = radio._connect = 2.0
            with pytest.raises((DeviceUnavailable, DeviceTimeout)):
                await radio.read(ADDRESS, "2a6e")

        there = place()
        on(there.radio, scenario)

    @pytest.mark.parametrize(
        ("decoder", "service_data", "manufacturer", "values"),
        [
            ("bthome", {"fcd2": "40006402c409032617"}, {0x004C: bytes(20)}, {"temperature": 25.0, "humidity": 59.26}),
            (
                "switchbot",
                {"fd3d": "5400e4069835"},
                {0x0969: bytes.fromhex("d7c17d5deb43de03069835")},
                {"temperature": 24.6, "humidity": 53, "battery": 100},
            ),
        ],
    )
    def test_what_sensors_of_several_makes_advertise_is_decoded(
        self, place, decoder, service_data, manufacturer, values
    ):
        async def scenario(radio):
            async with Decoders() as decoders:
                async with contextlib.aclosing(decoders.measurements(radio)) as measurements:
                    found = await asyncio.wait_for(anext(measurements), 60)
                assert found.values == values
                assert (found.address, found.rssi, found.decoder) == (ADDRESS, -60, decoder)
                assert decoders.health["decoded"] >= 1

        advertised = {uuid: bytes.fromhex(data) for uuid, data in service_data.items()}
        on(place(service_data=advertised, manufacturer=manufacturer).radio, scenario)

    def test_advertisements_are_filtered(self, place):
        async def scenario(radio):
            for wanted in (
                {"address": ADDRESS},
                {"name": "sens*"},
                {"service": "fcd2"},
                {"manufacturer": 0x0334},
                {"name": "sensor", "service": bthome.SERVICE, "every": "1m", "changed": True},
            ):
                advert = await asyncio.wait_for(anext(radio.advertisements(**wanted)), 60)
                assert bthome.decode(advert.service_data[bthome.SERVICE]) == {"temperature": 25.06, "humidity": 50.55}
            for unwanted in ({"name": "other"}, {"service": "181b"}, {"manufacturer": 1}, {"address": OTHER}):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(radio.advertisements(**unwanted)), 0.15)

        said = {"manufacturer": {0x0334: b"abc"}, "service_data": {"fcd2": bytes.fromhex("4002ca0903bf13")}}
        on(place(**said).radio, scenario)

    def test_it_may_be_probed_reset_and_entered_again(self, place):
        async def scenario(radio):
            await radio.probe()
            await radio.reset()
            assert await radio.read(ADDRESS, "2a19") == [b"c"]

        there = place()
        on(there.radio, scenario)
        on(there.radio, scenario)

    def test_a_cancelled_session_gives_its_slot_back(self, place):
        async def scenario(radio):
            async def stay():
                async with radio.session(ADDRESS):
                    await asyncio.sleep(60)

            for _ in range(2):
                staying = asyncio.create_task(stay())
                await asyncio.sleep(0.3)
                staying.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await staying
            assert await radio.read(ADDRESS, "2a19") == [b"c"]

        on(place().radio, scenario)


def test_a_real_gatt_server_is_read_and_left(air):
    air.place(GattServer(ADDRESS, "wave", {"181a": VALUES}))

    async def scenario(radio):
        assert await radio.read(ADDRESS, *VALUES) == list(VALUES.values())
        assert radio.health["sessions"] == 0

    on(BleRadio(), scenario)


def test_two_hundred_notifications_over_the_air_come_in_order(air):
    server = air.place(GattServer(ADDRESS, "wave", {"181a": VALUES}))

    async def scenario(radio):
        async with radio.session(ADDRESS) as device, contextlib.aclosing(device.notifications("2a6e")) as heard:
            first = asyncio.create_task(anext(heard))
            await until(lambda: subscribed_to(getattr(server, "known", None), "2a6e"))

            async def speak():
                for number in range(200):
                    await server.notify("2a6e", number.to_bytes(2, "little"))

            await asyncio.to_thread(air.call, speak())
            return [await first] + [await anext(heard) for _ in range(199)]

    assert on(BleRadio(), scenario) == [number.to_bytes(2, "little") for number in range(200)]


def test_the_app_of_the_page_asks_a_device_in_25_lines(air):
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "request=" in each]
    assert sum(bool(line) for line in code.splitlines()) <= 25
    names = {"__name__": "a_page"}
    exec(compile(code, "page", "exec", dont_inherit=True), names)
    answers = {b"\x03": bytes.fromhex("c8320cfe")}
    server = GattServer(ADDRESS, "battery", {"fff0": {"fff1": b"", "fff2": b""}}, answers={"fff2": answers.get})
    air.place(server)

    async def scenario(radio):
        return await names["battery"](radio, names["Settings"](address=ADDRESS))

    assert on(BleRadio(), scenario).model_dump() == {"voltage": 13.0, "current": -0.5}
    assert server.written == [("fff1", b"\x03")]


def test_att_errors_say_whether_another_attempt_is_worth_it(air):
    def denied():
        raise ATT_Error(ErrorCode.READ_NOT_PERMITTED)

    def unlikely():
        raise ATT_Error(ErrorCode.UNLIKELY_ERROR)

    air.place(GattServer(ADDRESS, "wave", {"181a": {"2a6e": denied, "2a6f": unlikely}}))

    async def scenario(radio):
        async with radio.session(ADDRESS) as device:
            with pytest.raises(PermanentError) as permanent:
                await device.read("2a6e")
            with pytest.raises(TransientError) as passing:
                await device.read("2a6f")
        assert Failure(permanent.value).get("gatt-code") == 2
        assert Failure(passing.value).get("gatt-code") == 14

    on(BleRadio(), scenario)


def test_what_is_written_arrives(air):
    server = air.place(GattServer(ADDRESS, "wave", {"181a": VALUES}))

    async def scenario(radio):
        async with radio.session(ADDRESS) as device:
            await device.write("2a6e", b"\x01\x02", response=True)

    on(BleRadio(), scenario)
    assert server.written == [("2a6e", b"\x01\x02")]


def test_a_device_that_hangs_up_or_walks_away_is_read_again_when_it_is_back(air):
    server = air.place(GattServer(ADDRESS, "wave", {"181a": VALUES}))

    async def scenario(radio):
        async with radio.session(ADDRESS) as device:
            await device.read("2a6e")
            await asyncio.to_thread(air.call, server.hang_up())
            await until(device._lost.is_set)
            with pytest.raises(DeviceUnavailable):
                await device.read("2a6e")
        assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]

    on(BleRadio(find="60s"), scenario)


def test_a_slow_answer_is_a_timeout_and_the_next_session_unharmed(air):
    peer = air.place(Scripted(ADDRESS, "slow", {"181a": VALUES}))

    async def scenario(radio):
        async with radio.session(ADDRESS) as device:
            peer.delay = 2.0
            with pytest.raises(DeviceTimeout, match="reading 2a6e of F0:11:22:33:44:55 took longer than 200ms"):
                await device.read("2a6e", "200ms")
            peer.delay = 0.0
        assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]

    on(BleRadio(), scenario)


@pytest.mark.parametrize("fault", ["hangs", "aborts", "never resolves"])
def test_a_connection_that_does_not_come_about_ends_in_time(air, fault):
    peer = air.place(Scripted(ADDRESS, "stubborn", {"181a": VALUES}))
    peer.delay = 30.0 if fault == "hangs" else 0.0
    peer.refuses = "le-connection-abort-by-local" if fault == "aborts" else None
    peer.resolves = fault != "never resolves"

    async def scenario(radio):
        before = time.perf_counter()
        with pytest.raises((DeviceTimeout, DeviceUnavailable)):
            await radio.read(ADDRESS, "2a6e")
        assert time.perf_counter() - before < 20
        radio._connect = 60.0
        peer.delay, peer.refuses, peer.resolves = 0.0, None, True
        assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]

    on(BleRadio(connect="1s"), scenario)


def test_a_bluetooth_service_that_dies_is_noticed_and_used_again_once_it_is_back(air):
    air.place(Scripted(ADDRESS, "sensor", {"181a": VALUES}))

    async def scenario(radio):
        async with radio.session(ADDRESS) as device:
            listening = asyncio.create_task(anext(device.notifications("2a6e", silence="500ms")))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(air.call, air.daemon.stop())
            with pytest.raises((DeviceTimeout, DeviceUnavailable)):
                await listening
            with pytest.raises((DeviceTimeout, DeviceUnavailable)):
                await device.read("2a6e", "500ms")
        with pytest.raises((DeviceTimeout, DeviceUnavailable)):
            await radio.read(ADDRESS, "2a6e")
        await asyncio.to_thread(air.restart_daemon)
        radio._find = radio._connect = 60.0
        assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]

    on(BleRadio(find="1s", connect="1s"), scenario)


def test_a_scanner_that_went_deaf_is_started_anew(air):
    peer = air.place(Scripted(ADDRESS, "sensor", {"181a": VALUES}))

    async def scenario(radio):
        async with contextlib.aclosing(radio.advertisements()) as adverts:
            await anext(adverts)
            await asyncio.to_thread(air.call, air.daemon.stop())
            await asyncio.to_thread(air.restart_daemon)
            while True:
                advert = await asyncio.wait_for(anext(adverts), 60)
                if advert.rssi == peer.rssi:
                    return

    peer.rssi = -42
    on(BleRadio(silence="300ms", find="1s"), scenario)


def test_an_adapter_that_is_off_says_how_to_switch_it_on(air):
    async def scenario(radio):
        for step in (radio.probe(), radio.read(ADDRESS, "2a6e"), anext(radio.advertisements())):
            with pytest.raises(DeviceUnavailable, match="bluetoothctl power on"):
                await step

    air.call(air.daemon.power(False))
    try:
        on(BleRadio(), scenario)
    finally:
        air.call(air.daemon.power(True))


def test_without_a_bus_it_says_so(monkeypatch):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")

    async def scenario(radio):
        with pytest.raises(DeviceUnavailable, match="is bluetoothd running"):
            await radio.probe()

    on(BleRadio(), scenario)


def test_a_passive_scan_hears_too(air):
    air.place(Scripted(ADDRESS, "sensor", {"181a": VALUES}))

    async def scenario(radio):
        assert (await asyncio.wait_for(anext(radio.advertisements()), 60)).address == ADDRESS

    on(BleRadio(passive=True), scenario)


def test_devices_take_turns_and_none_is_left_out(air):
    for number in range(4):
        air.place(Scripted(f"F0:11:22:33:44:5{number}", f"s{number}", {"181a": {"2a6e": bytes((number, 0))}}))

    async def scenario(radio):
        read = [radio.read(f"F0:11:22:33:44:5{number}", "2a6e") for number in range(4)]
        return [data for (data,) in await asyncio.gather(*read)]

    assert on(BleRadio(connections=2), scenario) == [bytes((number, 0)) for number in range(4)]


@pytest.mark.parametrize("address", ["AA:BB", "", "ZZ:BB:CC:DD:EE:FF", "AABBCCDDEEFF", "AA:BB:CC:DD:EE\n\x1b[31m:FF"])
def test_what_is_no_address_is_a_named_error(address):
    async def scenario(radio):
        with pytest.raises(InvalidValue, match="not a Bluetooth address"):
            await radio.read(address, "2a6e")

    on(BleTwin(), scenario)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: BleRadio(5), InvalidType),
        (lambda: BleRadio(connections=0), InvalidValue),
        (lambda: BleRadio(connections=True), InvalidType),
        (lambda: BleRadio(find="soon"), InvalidValue),
        (lambda: BleRadio(timeout=-1), InvalidValue),
        (lambda: TwinDevice("x"), InvalidValue),
        (lambda: TwinDevice(5), InvalidType),
        (lambda: uuid_of("2a6"), InvalidValue),
        (lambda: uuid_of(None), InvalidType),
    ],
)
def test_a_wrong_argument_is_refused(make, error):
    with pytest.raises(error):
        make()


def test_a_twin_may_notify_whoever_subscribes():
    numbers = iter(range(1, 9))
    device = TwinDevice(ADDRESS, notifies={"2a6e": b"\x07", "2a37": lambda: bytes((next(numbers),))})

    async def scenario(radio):
        async with radio.session(ADDRESS) as connected:
            return [await connected.next(uuid) for uuid in ("2a6e", "2a37", "2a37")]

    assert on(BleTwin(device), scenario) == [b"\x07", b"\x01", b"\x02"]


@contextlib.asynccontextmanager
async def heard_by(radio):
    heard = []

    async def listen():
        async for each in radio.advertisements(address=ADDRESS):
            heard.append(each)

    listening = asyncio.create_task(listen())
    yield heard
    listening.cancel()
    await asyncio.wait([listening])


@pytest.mark.parametrize("passive", [False, True])
def test_data_is_that_of_the_packet_and_not_what_bluez_has_kept_of_earlier_ones(air, passive):
    warm, cold = ({uuid_of("fcd2"): bytes.fromhex(data)} for data in ("4002ca09", "40020000"))
    device = air.place(Scripted(ADDRESS, "sensor", {}, service_data=warm))

    async def until_silent(heard):
        """No packet with data comes any more, nor does the next one."""
        await until(lambda: heard and not heard[-1].service_data)
        before = len(heard)
        await until(lambda: len(heard) > before + 3)
        assert not any(each.service_data or each.manufacturer for each in heard[before:])
        assert heard[-1].name == "sensor"

    async def first(radio):
        async with heard_by(radio) as heard:
            for data in (warm, cold, warm):
                device.service_data, device.manufacturer = data, {}
                await until(lambda data=data: any(each.service_data == data for each in heard))
                device.service_data, device.manufacturer = {}, {0x0334: data[uuid_of("fcd2")]}
                await until(lambda: any(each.manufacturer for each in heard))
                device.manufacturer = {}
                await until_silent(heard)
                heard.clear()
            if not passive:
                device.service_data = warm
                await until(lambda: sum(each.service_data == warm for each in heard) > 3)
            device.service_data = {}

    async def second(radio):
        """BlueZ knows the device, and has its data, when the scan begins."""
        async with heard_by(radio) as heard:
            await until_silent(heard)
            assert not any(each.service_data for each in heard)
            device.service_data = warm
            air.call(air.daemon.forget_all())
            await until(lambda: any(each.service_data == warm for each in heard))

    on(BleRadio(passive=passive), first)
    on(BleRadio(passive=passive), second)


def test_a_bluetooth_sensor_without_values_is_stale_though_its_name_is_heard(air):
    """A thermometer by the adapter of this machine, of which only the name is heard after a while."""
    device = air.place(Scripted(ADDRESS, "GVH5075_4455", {}, manufacturer={0xEC88: bytes.fromhex("00036da56400")}))

    async def scenario(radio):
        async with heard_by(radio) as heard, Decoders() as decoders:
            await until(lambda: any(each.manufacturer for each in heard))
            device.manufacturer = {}
            await until(lambda: not heard[-1].manufacturer)
            first = decoders.decode(next(each for each in heard if each.manufacturer), 0.0)
            assert first.values == {"temperature": 22.4, "humidity": 67.7, "battery": 100}
            heard.clear()
            await until(lambda: len(heard) > 3)
            assert [decoders.decode(each, 1.0) for each in heard] == [None] * len(heard)

    on(BleRadio(), scenario)
