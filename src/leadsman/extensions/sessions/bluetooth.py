"""The wire of a `BleRadio`: advertisements, and what goes over connections. A device is a lane of its own, and what it
sends by itself belongs to the last thing that the app did there."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.adapters.ble.backend import AdvertisementListener, Backend, GattConnection, Handle
from leadsman.adapters.ble.gatt import uuid_of
from leadsman.errors import DeviceUnavailable
from leadsman.extensions.sessions.player import Lanes, Playing
from leadsman.extensions.sessions.recorder import WireLog
from leadsman.extensions.sessions.session import Event

STOPPING = 2.0
"""Seconds. A radio takes a moment to stop, and what it hears then counts. In virtual time, that would be no moment."""

_T = TypeVar("_T")


class _Seen(NamedTuple):
    """A device that the radio received."""

    address: str
    handle: Handle


class _RecordedBackend(Backend):
    """The backend of a radio, which writes down what it does."""

    def __init__(self, log: WireLog, backend: Backend) -> None:
        self._log = log
        self._backend = backend

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        def listen(advertisement: Advertisement, handle: Handle) -> None:
            content = advertisement._asdict()
            content["services"] = list(advertisement.services)
            content["manufacturer"] = {str(key): data.hex() for key, data in advertisement.manufacturer.items()}
            content["service_data"] = {key: data.hex() for key, data in advertisement.service_data.items()}
            self._log.answer(n, "advertised", **content)
            on_advertisement(advertisement, _Seen(advertisement.address, handle))

        with self._log.exchange("scan") as n:
            await self._backend.start(listen)
        self._log.answer(n, "scanning")

    async def stop(self) -> None:
        await self._backend.stop()

    async def close(self) -> None:
        await self._backend.close()

    async def connect(self, handle: _Seen, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        made = _RecordedConnection(self._log, handle.address)

        def lost() -> None:
            self._log.answer(made.n, "lost")
            on_lost()

        made.connection = await made.ask("connect", "connected", self._backend.connect(handle.handle, lost, timeout))
        return made


def _short(uuid: str) -> str:
    """A UUID as people write it: of one that the Bluetooth SIG has given, the 16 bits that differ (Core Specification,
    Vol 3, Part B, 2.5.1)."""
    return uuid[4:8] if uuid == uuid_of(uuid[4:8]) else uuid


class _RecordedConnection:
    n: int
    """The number of the exchange that began last."""
    connection: GattConnection

    def __init__(self, log: WireLog, address: str) -> None:
        self._log = log
        self._address = address

    async def ask(self, what: str, reply: str, call: Awaitable[_T], data: bytes | None = None, **more: object) -> _T:
        """Ask the device, and return what it replies."""
        with self._log.exchange(what, data, address=self._address, **more) as n:
            self.n = n
            found = await call
        self._log.answer(n, reply, found if isinstance(found, bytes) else None)
        return found

    def has(self, uuid: str) -> bool:
        found = self.connection.has(uuid)
        self._log.answer(self.n, "has", uuid=_short(uuid), found=found)
        return found

    async def read(self, uuid: str) -> bytes:
        return await self.ask("read", "value", self.connection.read(uuid), uuid=_short(uuid))

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        call = self.connection.write(uuid, data, response)
        await self.ask("write", "done", call, data, uuid=_short(uuid), response=response)

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        def notified(data: bytes) -> None:
            self._log.answer(self.n, "notified", data, uuid=_short(uuid))
            on_notification(data)

        await self.ask("subscribe", "done", self.connection.subscribe(uuid, notified), uuid=_short(uuid))

    async def unsubscribe(self, uuid: str) -> None:
        await self.ask("unsubscribe", "done", self.connection.unsubscribe(uuid), uuid=_short(uuid))

    async def disconnect(self) -> None:
        await self.ask("disconnect", "done", self.connection.disconnect())


class _PlayedBackend(Backend):
    """A radio with recorded devices."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._scanning: Playing | None = None

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        def deliver(event: Event) -> None:
            if event.what == "advertised":
                found = _advertisement_of(event)
                on_advertisement(found, found.address)

        self._scanning = Playing(deliver)
        await self._scanning.reply(self._lanes.next_exchange("scan"), "scanning")

    async def stop(self) -> None:
        if self._scanning is not None:
            self._scanning.end(STOPPING)

    async def close(self) -> None: ...

    async def connect(self, handle: str, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        made = _PlayedConnection(self._lanes, handle, on_lost)
        await made.ask("connect", "connected")
        return made


def _advertisement_of(event: Event) -> Advertisement:
    more = event.more
    return Advertisement(
        more["address"],
        more["name"],
        more["rssi"],
        tuple(more["services"]),
        {int(company): bytes.fromhex(data) for company, data in more["manufacturer"].items()},
        {uuid: bytes.fromhex(data) for uuid, data in more["service_data"].items()},
    )


class _PlayedConnection:
    def __init__(self, lanes: Lanes, address: str, on_lost: Callable[[], None]) -> None:
        self._lanes = lanes
        self._address = address
        self._on_lost = on_lost
        self._has: dict[str, bool] = {}
        self._subscribers: dict[str, Callable[[bytes], None]] = {}
        self._playing = Playing(self._deliver)

    async def ask(self, what: str, reply: str, data: bytes | None = None, **more: str) -> Event:
        """Ask the device, and return what it replies."""
        exchange = self._lanes.next_exchange(what, data, address=self._address, **more)
        self._has |= {each.more["uuid"]: each.more["found"] for each in exchange.answers if each.what == "has"}
        return await self._playing.reply(exchange, reply)

    def _deliver(self, event: Event) -> None:
        if event.what == "lost":
            self._on_lost()
        elif event.what == "notified" and (subscriber := self._subscribers.get(event.more["uuid"])) is not None:
            subscriber(event.data or b"")

    def has(self, uuid: str) -> bool:
        if _short(uuid) not in self._has:
            raise DeviceUnavailable(f"the session does not have whether {self._address} has {uuid}; record it again")
        return self._has[_short(uuid)]

    async def read(self, uuid: str) -> bytes:
        return (await self.ask("read", "value", uuid=_short(uuid))).data or b""

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        await self.ask("write", "done", bytes(data), uuid=_short(uuid))

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        self._subscribers[_short(uuid)] = on_notification
        await self.ask("subscribe", "done", uuid=_short(uuid))

    async def unsubscribe(self, uuid: str) -> None:
        self._subscribers.pop(_short(uuid), None)
        await self.ask("unsubscribe", "done", uuid=_short(uuid))

    async def disconnect(self) -> None:
        await self.ask("disconnect", "done")
        self._playing.end()


RECORDED, PLAYED = {"bluetooth": _RecordedBackend}, {"bluetooth": _PlayedBackend}
