"""The backend of an ESPHome Bluetooth proxy. Only this file imports aioesphomeapi. Most errors name a remedy.

A board serves its advertisements to one client at a time, and leaves out a second one without an error. A board whose
firmware reports the state of its scanner reports it to the client that it serves, and so this backend can detect that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from leadsman.adapters.ble.advertisement import decode_packet
from leadsman.adapters.ble.backend import AdvertisementListener, att_error
from leadsman.core.text import describe
from leadsman.errors import (
    DeviceError,
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    PermanentError,
    missing,
)

if TYPE_CHECKING:
    from aioesphomeapi.api_pb2 import BluetoothLERawAdvertisementsResponse  # type: ignore[attr-defined]  # generated
    from aioesphomeapi.model import (
        BluetoothGATTCharacteristic,
        ConnectionClosedEvent,
        DeviceInfo,
    )

    from leadsman.adapters.ble.proxy import Proxy

try:
    from aioesphomeapi import core as errors
    from aioesphomeapi.client import APIClient
    from aioesphomeapi.model import APIVersion, BluetoothProxyFeature
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # it has no types
except ImportError as error:
    raise missing("Bluetooth proxies", "aioesphomeapi", "ble-proxies", error) from error

KEEP_ALIVE = 10.0
"""Seconds between two signs of life that are asked for. aioesphomeapi gives a board up after 4.5 times as long."""
ANSWER_TIMEOUT = 5.0
"""Seconds for an answer of a board that is connected."""
CLOSE_TIMEOUT = 0.5
"""Seconds for the goodbye; then the connection is cut. An app ends within two."""
GATT_TIMEOUT = 60.0
"""Seconds for one step with a device. The radio has a shorter timeout for each; this one is for a step that nobody
waits for any more."""
_CCCD = "00002902-0000-1000-8000-00805f9b34fb"
"""The descriptor that switches notifications and indications (Core Specification, Vol 3, Part G, 3.3.3.3)."""
_WRITE, _NOTIFY = 0x08, 0x10
"""Properties of characteristics (Core Specification, Vol 3, Part G, 3.3.1.1)."""


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """A message that cannot be read is our error; aioesphomeapi and asyncio would show it again, with tracebacks.
    `exc_info` is False in a record of asyncio about a task that was destroyed."""
    return not record.exc_info or not isinstance(record.exc_info[1], DecodeError)


for _logger in ("aioesphomeapi.connection", "asyncio"):
    logging.getLogger(_logger).addFilter(_is_worth_a_line)


class EsphomeBackend:
    """The backend of one proxy. It is connected to the board from its first use until `close`, and takes what the board
    hears all that time: a board ends its connections to devices when nobody takes its advertisements."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.name = proxy.name
        self._client: APIClient | None = None
        self._linking = asyncio.Lock()
        self._features = BluetoothProxyFeature(0)
        self._lost: asyncio.Future[DeviceError] | None = None
        self._listener: AdvertisementListener | None = None
        self._slots: tuple[int, int] | None = None
        """How many connections to devices are free, and how many there are; None if the board does not report it."""
        self._devices: set[EsphomeConnection] = set()

    @property
    def lost(self) -> asyncio.Future[DeviceError] | None:
        """Set with the reason when the connection to the board has ended."""
        return self._lost

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        """Pass on what the board hears."""
        await self._link()
        self._listener = on_advertisement

    async def stop(self) -> None:
        """Pass on nothing more."""
        self._listener = None

    async def close(self) -> None:
        """End the connection to the board, and with it those to devices."""
        client = self._client
        if client is not None:
            with contextlib.suppress(errors.APIConnectionError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await client.disconnect()
            self._cut(client)

    async def connect(self, handle: tuple[int, int], on_lost: Callable[[], None], timeout: float) -> EsphomeConnection:
        """Connect to a device that the board hears."""
        address, address_type = handle
        client = await self._link()
        if BluetoothProxyFeature.ACTIVE_CONNECTIONS not in self._features:
            raise DeviceUnavailable(f"{self.name} makes no connections; set `active: true` at its bluetooth_proxy")
        if self._slots is not None and self._slots[0] == 0:
            raise DeviceUnavailable(f"all {self._slots[1]} connections of {self.name} are in use")
        connection = EsphomeConnection(self, client, address, on_lost)
        self._devices.add(connection)
        try:
            with self.translated(f"connecting to {connection.label}"):
                await connection.open(address_type, self._features, timeout)
        except BaseException:
            connection.abandon()
            raise
        return connection

    def leave(self, connection: EsphomeConnection) -> None:
        """A connection to a device has ended."""
        self._devices.discard(connection)

    async def _link(self) -> APIClient:
        """The connection to the board, which has answered just now."""
        async with self._linking:
            client = self._client or self._make_client()
            try:
                with self.translated("asking"):
                    if self._client is None:
                        await client.connect(login=True, log_errors=False)
                    async with asyncio.timeout(ANSWER_TIMEOUT):
                        info = await client.device_info()
                    self._features = self._features_of(client, info)
                    if self._client is None:
                        await self._subscribe(client)
            except BaseException as failure:
                if self._client is None or isinstance(failure, Exception):  # a cancelled caller cuts nobody off
                    self._cut(client)
                raise
            return client

    def _make_client(self) -> APIClient:
        key = None if self._proxy.key is None else self._proxy.key.get_secret_value()
        client = APIClient(
            self._proxy.host,
            self._proxy.port,
            None,
            noise_psk=key,
            client_info="leadsman",
            keepalive=KEEP_ALIVE,
            provide_time=False,
        )
        client.add_connection_closed_callback(functools.partial(self._on_closed, client))
        return client

    async def _subscribe(self, client: APIClient) -> None:
        served = asyncio.Event()
        client.subscribe_bluetooth_scanner_state(lambda _: served.set())
        client.subscribe_bluetooth_le_raw_advertisements(self._on_packets)
        if BluetoothProxyFeature.FEATURE_STATE_AND_MODE in self._features:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT):
                    await served.wait()
            except TimeoutError as error:
                raise DeviceUnavailable(
                    f"{self.name} serves another client, such as Home Assistant, and has one at a time; or it has not "
                    "noticed yet that the last one is gone"
                ) from error
        self._slots = None
        client.subscribe_bluetooth_connections_free(self._on_slots)
        self._lost = asyncio.get_running_loop().create_future()
        self._client = client

    def _features_of(self, client: APIClient, info: DeviceInfo) -> BluetoothProxyFeature:
        version = client.api_version or APIVersion(1, 0)
        features = BluetoothProxyFeature(info.bluetooth_proxy_feature_flags_compat(version))
        if BluetoothProxyFeature.RAW_ADVERTISEMENTS not in features:
            what = "is too old: update its ESPHome" if features else "has no bluetooth_proxy: add it to its YAML"
            raise PermanentError(f"{self.name} {what}")
        return features

    def _on_packets(self, message: BluetoothLERawAdvertisementsResponse) -> None:
        for each in message.advertisements if self._listener is not None else ():
            heard = decode_packet(each.address, each.rssi, each.data)
            if heard is not None and self._listener is not None:
                self._listener(heard, (each.address, each.address_type))

    def _on_slots(self, free: int, limit: int, _: list[int]) -> None:
        self._slots = free, limit

    def _cut(self, client: APIClient) -> None:
        client.force_disconnect()
        self._forget(client, DeviceUnavailable(f"the connection to {self.name} was closed"))

    def _on_closed(self, client: APIClient, event: ConnectionClosedEvent) -> None:
        why = "" if event.error is None else f": {describe(event.error)}"
        self._forget(client, DeviceUnavailable(f"{self.name} hung up{why}"))

    def _forget(self, client: APIClient, why: DeviceError) -> None:
        if client is self._client:
            self._client = None
            for each in tuple(self._devices):
                each.drop()
            if self._lost is not None and not self._lost.done():
                self._lost.set_result(why)

    @contextlib.contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Raise what aioesphomeapi raises as a `DeviceError`."""
        try:
            yield
        except DeviceError:
            raise
        except Exception as error:
            raise _device_error(error, self.name, what) from error


class EsphomeConnection:
    """A connection of a proxy to one device."""

    def __init__(self, backend: EsphomeBackend, client: APIClient, address: int, on_lost: Callable[[], None]) -> None:
        self._backend = backend
        self._client = client
        self._address = address
        self._on_lost = on_lost
        self._characteristics: dict[str, BluetoothGATTCharacteristic] = {}
        self._connected = False
        self._forget: Callable[[], None] | None = None
        self.label = errors.to_human_readable_address(address)

    async def open(self, address_type: int, features: BluetoothProxyFeature, timeout: float) -> None:
        """Connect, and find what the device has."""
        self._forget = await self._client.bluetooth_device_connect(
            self._address,
            self._on_state,
            timeout=timeout,
            disconnect_timeout=CLOSE_TIMEOUT,
            feature_flags=features,
            address_type=address_type,
        )
        if not self._connected:
            raise DeviceUnavailable(f"the device refuses, or all connections of {self._backend.name} are in use")
        found = await self._client.bluetooth_gatt_get_services(self._address)
        for service in found.services:
            for each in service.characteristics:
                self._characteristics.setdefault(each.uuid.lower(), each)

    def has(self, uuid: str) -> bool:
        """Whether the device has a characteristic."""
        return uuid in self._characteristics

    async def read(self, uuid: str) -> bytes:
        """Read a characteristic."""
        with self._step("reading", uuid) as found:
            return bytes(await self._client.bluetooth_gatt_read(self._address, found.handle, GATT_TIMEOUT))

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Write a characteristic."""
        with self._step("writing", uuid) as found:
            acknowledged = bool(found.properties & _WRITE) if response is None else response
            await self._client.bluetooth_gatt_write(self._address, found.handle, data, acknowledged, GATT_TIMEOUT)

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        """Subscribe to the notifications of a characteristic. The board leaves the switch in the device to us."""
        with self._step("subscribing to", uuid) as found:
            await self._client.bluetooth_gatt_start_notify(
                self._address, found.handle, lambda _, data: on_notification(bytes(data)), GATT_TIMEOUT
            )
            await self._switch(found, b"\x01\x00" if found.properties & _NOTIFY else b"\x02\x00")

    async def unsubscribe(self, uuid: str) -> None:
        """End a subscription."""
        with self._step("unsubscribing from", uuid) as found:
            self._client.bluetooth_gatt_stop_notify(self._address, found.handle)
            await self._switch(found, b"\x00\x00")

    async def disconnect(self) -> None:
        """End the connection."""
        self._end()
        if self._connected and self._client.is_connected:
            self._connected = False
            with self._backend.translated(f"disconnecting from {self.label}"):
                await self._client.bluetooth_device_disconnect(self._address, GATT_TIMEOUT)

    def abandon(self) -> None:
        """End the connection without waiting for it."""
        self._end()
        self._connected = False
        if self._client.is_connected:
            with contextlib.suppress(errors.APIConnectionError):
                self._client.bluetooth_device_disconnect_no_wait(self._address)

    def drop(self) -> None:
        """The device, or the board, has hung up."""
        self._end()
        if self._connected:
            self._connected = False
            self._on_lost()

    def _end(self) -> None:
        forget, self._forget = self._forget, None
        if forget is not None and self._client.is_connected:
            forget()
        self._backend.leave(self)

    def _on_state(self, connected: bool, mtu: int, error: int) -> None:
        if connected:
            self._connected = True
        else:
            self.drop()

    async def _switch(self, found: BluetoothGATTCharacteristic, value: bytes) -> None:
        for each in found.descriptors:
            if each.uuid.lower() == _CCCD:
                await self._client.bluetooth_gatt_write_descriptor(self._address, each.handle, value, GATT_TIMEOUT)

    @contextlib.contextmanager
    def _step(self, what: str, uuid: str) -> Iterator[BluetoothGATTCharacteristic]:
        """A step with a characteristic, and its errors."""
        what = f"{what} {uuid} of {self.label}"
        if uuid not in self._characteristics:
            raise PermanentError(f"{what}: the device has no such characteristic")
        with self._backend.translated(what):
            yield self._characteristics[uuid]


def _device_error(error: Exception, name: str, what: str) -> DeviceError:
    detail = describe(error) if str(error) else type(error).__name__
    text = f"{name}, {what}: {detail}"
    match error:
        case errors.BluetoothGATTAPIError():
            return att_error(error.error.error, text)
        case errors.RequiresEncryptionAPIError():
            return PermanentError(f"{name} encrypts; set its key, which is in its YAML behind `api:` `encryption:`")
        case errors.EncryptionPlaintextAPIError() | errors.EncryptionHelloAPIError():
            return PermanentError(f"{name} does not encrypt; leave out its key, or add `encryption:` to its `api:`")
        case errors.InvalidEncryptionKeyAPIError():
            return PermanentError(f"{name} has another key; copy that in its YAML behind `api:` `encryption:`")
        case errors.InvalidAuthAPIError():
            return PermanentError(f"{name} wants a password; replace it by `encryption:` in its YAML")
        case errors.ResolveAPIError():
            return DeviceUnavailable(f"{name} has no address; check the name, or write its IP address: {detail}")
        case errors.ProtocolAPIError() | errors.HandshakeAPIError():
            return GarbledData(f"{name} does not answer as ESPHome does; check the host and the port: {detail}")
        case TimeoutError() | errors.TimeoutAPIError():
            advice = "; is it on, and in the network?" if what == "asking" else ""
            return DeviceTimeout(f"{name}, {what}: no answer{advice}")
        case errors.SocketAPIError() if isinstance(error.__cause__, OSError):  # its own text shows data structures
            reason = describe(error.__cause__)
            return DeviceUnavailable(f"{name}, {what}: no connection; check the host, the port and its power: {reason}")
    return DeviceUnavailable(text)
