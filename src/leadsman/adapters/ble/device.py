"""A connected Bluetooth device: reads, writes and notifications, each with a timeout."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from leadsman.adapters.ble.backend import GattConnection
from leadsman.adapters.ble.gatt import uuid_of
from leadsman.core.loop.durations import Duration, human, positive_seconds
from leadsman.errors import DeviceError, DeviceTimeout, DeviceUnavailable, GarbledData, InvalidType

SUBSCRIBE_TIMEOUT = 5.0
"""Seconds for a subscription."""
UNSUBSCRIBE_TIMEOUT = 3.0
"""Seconds for its end; the connection ends next."""
MAX_UNREAD_NOTIFICATIONS = 4096
"""Notifications kept for a handler that is busy."""

_T = TypeVar("_T")


class BleDevice:
    """A connected device, from `BleRadio.session`."""

    def __init__(self, address: str, connection: GattConnection, lost: asyncio.Event, timeout: float) -> None:
        self.address = address
        self._connection = connection
        self._lost = lost
        self._timeout = timeout

    def has(self, characteristic: str) -> bool:
        """Whether the device has a characteristic: for devices of which several models differ in what they offer. This
        costs no radio time, since connecting has found all characteristics.

        Raises:
            DeviceUnavailable: the device is gone. A retry may help.
            InvalidValue, InvalidType: the characteristic is no UUID.
        """
        uuid = uuid_of(characteristic)
        if self._lost.is_set():
            raise DeviceUnavailable(f"{self.address} hung up")
        return self._connection.has(uuid)

    async def read(self, characteristic: str, timeout: Duration | None = None) -> bytes:
        """Read a characteristic.

        Raises:
            DeviceTimeout, DeviceUnavailable, TransientError: a retry may help.
            PermanentError: the characteristic does not exist, or may not be read.
        """
        uuid = uuid_of(characteristic)
        return await self._step(lambda: self._connection.read(uuid), timeout, f"reading {characteristic}")

    async def write(
        self, characteristic: str, data: bytes, *, response: bool | None = None, timeout: Duration | None = None
    ) -> None:
        """Write a characteristic, with an acknowledgement if `response` is set. None takes what the characteristic
        offers. Raises as `read`."""
        uuid = uuid_of(characteristic)
        await self._step(
            lambda: self._connection.write(uuid, bytes(data), response), timeout, f"writing {characteristic}"
        )

    async def notifications(
        self, characteristic: str, silence: Duration = 60.0, *, request: tuple[str, bytes] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield all notifications of a characteristic, in order. On BlueZ, the result of a `read` in the meantime is
        yielded as well.

        Args:
            silence: the longest time without a notification. A Bluetooth service that dies does not report it.
            request: for devices that answer by notifications: a characteristic and what is written to it after
                subscribing. What arrived before is not yielded.

        Raises:
            DeviceTimeout, DeviceUnavailable: nothing arrived for that long, or the device is gone. A retry may help.
            GarbledData: more than `MAX_UNREAD_NOTIFICATIONS` notifications were waiting to be taken.
            InvalidType, InvalidValue: an argument is invalid.
        """
        uuid, limit = uuid_of(characteristic), positive_seconds(silence, "silence")
        if request is not None:
            _check_request(request)
        unread, news, missed = deque[bytes](), asyncio.Event(), False

        def on_notification(data: bytes) -> None:
            nonlocal missed
            if len(unread) < MAX_UNREAD_NOTIFICATIONS:
                unread.append(data)
            else:
                missed = True
            news.set()

        gone = asyncio.create_task(self._lost.wait())
        gone.add_done_callback(lambda _: news.set())
        try:
            await self._step(
                lambda: self._connection.subscribe(uuid, on_notification),
                SUBSCRIBE_TIMEOUT,
                f"subscribing to {characteristic}",
            )
            if request is not None:
                unread.clear()
                await self.write(*request)
            while True:
                while unread:
                    yield unread.popleft()
                if missed:
                    raise GarbledData(
                        f"{self.address} sends notifications faster than the handler processes them, and some are lost"
                    )
                if self._lost.is_set():
                    raise DeviceUnavailable(f"{self.address} hung up")
                news.clear()
                try:
                    async with asyncio.timeout(limit):
                        await news.wait()
                except TimeoutError as error:
                    raise DeviceTimeout(f"{self.address} was silent for {human(limit)}") from error
        finally:
            gone.cancel()
            if not self._lost.is_set():  # also after a subscription that took too long, which may come about later
                with contextlib.suppress(TimeoutError, DeviceError):
                    async with asyncio.timeout(UNSUBSCRIBE_TIMEOUT):
                        await self._connection.unsubscribe(uuid)

    async def next(
        self, characteristic: str, timeout: Duration = 10.0, *, request: tuple[str, bytes] | None = None
    ) -> bytes:
        """Subscribe, wait for one notification, and unsubscribe: for devices that notify on their own, when a client
        subscribes, or in answer to a request. The answer to a `write` before this call may be missed.

        Args:
            timeout: how long to wait for the notification after subscribing and writing.
            request: see `notifications`.

        Raises:
            DeviceTimeout, DeviceUnavailable: nothing arrived, or the device is gone. A retry may help.
            InvalidType, InvalidValue: an argument is invalid.
        """
        notifications = self.notifications(characteristic, timeout, request=request)
        async with contextlib.aclosing(notifications):
            return await anext(notifications)

    async def _step(self, step: Callable[[], Awaitable[_T]], timeout: Duration | None, what: str) -> _T:
        limit = self._timeout if timeout is None else positive_seconds(timeout, "timeout")
        if self._lost.is_set():
            raise DeviceUnavailable(f"{self.address} hung up")
        try:
            async with asyncio.timeout(limit):
                return await step()
        except TimeoutError as error:
            if isinstance(error, DeviceError):
                raise
            raise DeviceTimeout(f"{what} of {self.address} took longer than {human(limit)}") from error


def _check_request(request: object) -> None:
    match request:
        case (uuid, bytes() | bytearray()):
            uuid_of(uuid)
        case _:
            raise InvalidType(f"request is {request!r}; write a characteristic and bytes: ('fff1', b'\\x01')")
