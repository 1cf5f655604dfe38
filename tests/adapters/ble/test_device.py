import asyncio

import pytest

from leadsman.adapters.ble import BleDevice
from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, InvalidType, InvalidValue
from leadsman.testing import VirtualLoop


class Connection:
    """A connection whose steps take as long as a test wants."""

    def __init__(self):
        self.takes, self.subscribed, self.notify, self.first = 0.0, [], None, None

    async def read(self, uuid):
        await asyncio.sleep(self.takes)
        return b"\x01"

    async def write(self, uuid, data, response):
        await asyncio.sleep(self.takes)
        if self.notify is not None:
            self.notify(b"answer to " + data)

    async def subscribe(self, uuid, on_notification):
        self.subscribed.append(uuid)  # a service goes on when nobody waits for it any more
        self.notify = on_notification
        if self.first is not None:
            on_notification(self.first)
        await asyncio.sleep(self.takes)

    async def unsubscribe(self, uuid):
        if uuid in self.subscribed:
            self.subscribed.remove(uuid)


class Apparatus:
    def __init__(self, loop):
        self.loop, self.connection, self.lost = loop, Connection(), asyncio.Event()
        self.device = BleDevice("AA:BB:CC:DD:EE:FF", self.connection, self.lost, 10.0)

    def run(self, call):
        return self.loop.run_until_complete(call)


@pytest.fixture
def here():
    loop = VirtualLoop()
    yield Apparatus(loop)
    loop.close()


def test_a_characteristic_is_read(here):
    assert here.run(here.device.read("2a19")) == b"\x01"


def test_what_a_device_that_is_gone_had_is_not_known(here):
    here.lost.set()

    with pytest.raises(DeviceUnavailable, match="hung up"):
        here.device.has("2a19")


def test_each_step_has_a_timeout_of_its_own(here):
    here.connection.takes = 60.0

    with pytest.raises(DeviceTimeout, match="reading 2a19"):
        here.run(here.device.read("2a19"))
    assert here.loop.time() == 10
    with pytest.raises(DeviceTimeout, match="writing 2a19"):
        here.run(here.device.write("2a19", b"", timeout=3))
    assert here.loop.time() == 13


def test_a_device_that_hung_up_is_not_asked(here):
    here.lost.set()

    with pytest.raises(DeviceUnavailable):
        here.run(here.device.read("2a19"))


def test_notifications_arrive_in_order_and_the_subscription_ends_with_the_loop_over_them(here):
    async def scenario():
        notifications = here.device.notifications("2a19")
        for number in range(3):
            here.loop.call_later(number + 1, lambda each=number: here.connection.notify(bytes((each,))))
        found = [await anext(notifications) for _ in range(3)]
        assert len(here.connection.subscribed) == 1
        await notifications.aclose()
        return found

    assert here.run(scenario()) == [b"\x00", b"\x01", b"\x02"]
    assert here.connection.subscribed == []


def test_silence_after_the_last_notification_is_a_timeout(here):
    here.loop.call_later(5, lambda: here.connection.notify(b"1"))

    async def scenario():
        return [each async for each in here.device.notifications("2a19", silence="30s")]

    with pytest.raises(DeviceTimeout, match="30s"):
        here.run(scenario())
    assert here.loop.time() == 35


def test_a_device_that_hangs_up_ends_its_notifications_at_once(here):
    here.loop.call_later(5, here.lost.set)

    with pytest.raises(DeviceUnavailable):
        here.run(here.device.next("2a19", timeout="30s"))
    assert here.loop.time() == 5


def test_a_device_that_takes_no_subscription_is_a_timeout(here):
    here.connection.takes = 60.0

    with pytest.raises(DeviceTimeout, match="subscribing to 2a19"):
        here.run(here.device.next("2a19"))
    assert here.loop.time() == 5
    assert here.connection.subscribed == []


def test_what_arrives_before_a_request_is_no_answer(here):
    here.connection.first = b"before"

    assert here.run(here.device.next("2a19", request=("fff1", b"1"))) == b"answer to 1"
    assert here.run(here.device.next("2a19")) == b"before"
    assert here.connection.subscribed == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("fff1", InvalidType),
        (("fff1", "text"), InvalidType),
        (("ff", b""), InvalidValue),
        ((b"fff1", b""), InvalidType),
    ],
)
def test_a_request_that_cannot_be_written_is_refused_before_the_subscription(here, request_, error):
    with pytest.raises(error):
        here.run(here.device.next("2a19", request=request_))
    assert here.connection.subscribed == []


def test_notifications_that_nobody_takes_are_not_collected_without_limit(here):
    async def scenario():
        notifications = here.device.notifications("2a19")
        here.loop.call_later(1, lambda: [here.connection.notify(b"1") for _ in range(4097)])
        return [each async for each in notifications]

    with pytest.raises(GarbledData):
        here.run(scenario())
