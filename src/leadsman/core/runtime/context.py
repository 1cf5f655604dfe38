"""`Context`, which handlers can ask for: the name, logger and store of a device, and sleeps that end with the app."""

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from leadsman.core.loop.durations import Duration, seconds
from leadsman.core.loop.schedule import zone_of
from leadsman.core.loop.threads import call_on
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import RESERVED, check_prefix, encode
from leadsman.core.readings.reading import plain
from leadsman.core.registration.injection import ContextBase
from leadsman.core.runtime.publisher import PublisherContext
from leadsman.core.runtime.store import Store, Stores
from leadsman.core.text import clean
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from leadsman.core.runtime.found_devices import FoundDevice
    from leadsman.core.runtime.own_requests import OwnRequests

CLOCK_CHECK = 30.0
"""Seconds between two checks of the wall clock during a sleep until a time of day: the clock may be set meanwhile."""


class Context(ContextBase):
    """The name, logger and store of one device while the app runs. A handler asks for it by type: ``async def
    read(context: Context)``."""

    __slots__ = ("_attempts", "_loop", "_publisher_context", "_requests", "_stores", "logger", "name")

    def __init__(
        self,
        name: str,
        attempts: Callable[[], int],
        publisher_context: PublisherContext,
        stores: Stores,
        requests: "OwnRequests",
    ) -> None:
        self.name = name
        """The device's name."""
        self.logger: logging.LoggerAdapter[logging.Logger] = _Named(logging.getLogger("leadsman.app"), {"device": name})
        """A logger whose lines begin with the device's name."""
        self._attempts = attempts
        self._publisher_context = publisher_context
        self._stores = stores
        self._requests = requests
        self._loop = asyncio.get_running_loop()

    @property
    def attempts(self) -> int:
        """Retries since the last success: 0 in the first call, 1 in the first retry. A poll that fails for good after
        the handler asked for retries ends the count, too."""
        return self._attempts()

    @property
    def store(self) -> Store:
        """A dict that survives a restart; see `leadsman.core.runtime.store`."""
        return self._stores.of(self.name)

    def now(self, zone: str | tzinfo | None = None) -> datetime:
        """The current time as an aware datetime, by the app's clock. In tests this is virtual time.

        Args:
            zone: such as ``"Europe/Berlin"``; None for the host's.

        Raises:
            InvalidValue, InvalidType: there is no such zone.
        """
        return datetime.fromtimestamp(
            self._publisher_context.environment.clock.wall(), zone if isinstance(zone, tzinfo) else zone_of(zone)
        )

    async def sleep(self, duration: Duration) -> None:
        """Sleep for a duration. The end of the app and the handler's timeout interrupt it with `CancelledError`: do not
        catch it."""
        await self._publisher_context.environment.timers.sleep(seconds(duration))

    async def sleep_until(self, when: datetime | time | str, zone: str | tzinfo | None = None) -> None:
        """Sleep until the wall clock reaches `when`, also if the clock is set meanwhile.

        Args:
            when: an aware datetime, or a time of day such as ``"06:30"``, today or tomorrow. A time of day that is
                skipped by a change of the clocks comes later by the length of the change. Of one that occurs twice,
                the first is used.
            zone: of a time of day, such as ``"Europe/Berlin"``; None for the host's.

        Raises:
            InvalidValue, InvalidType: an argument is invalid.
        """
        clock = self._publisher_context.environment.clock
        target = _target(when, zone, clock.wall())
        while (rest := target - clock.wall()) > 0:
            await self._publisher_context.environment.timers.sleep(min(rest, CLOCK_CHECK))

    def poll(self) -> None:
        """Ask for a poll of this device, such as the one that reads it back after a write, and return at once. See
        `App.poll`. May be called from any thread.

        Raises:
            UnknownDevice: the device only pushes readings, or only takes commands.
        """
        self._requests.poll(self.name)

    def unavailable(self, reason: str) -> None:
        """Mark the device as unavailable: its availability is ``offline`` and its status ``deferred`` at once, until
        its next reading. May be called from any thread.

        The device is polled as before, and its source goes on, so that its return is noticed. A poll that returns None
        does not end this state; nor does a reading that the same poll returns after this call.

        Args:
            reason: why, such as ``"its battery is low"``.

        Raises:
            InvalidType: the reason is not text.
            InvalidValue: the reason is empty.
            UnknownDevice: the device only takes commands, or is a side job.
        """
        if not isinstance(reason, str):
            raise InvalidType(f"the reason is {reason!r}; write text such as 'its battery is low'")
        if not reason.strip():
            raise InvalidValue("the reason is empty; write text such as 'its battery is low'")
        self._requests.leave(self.name, clean(reason))

    def device(
        self,
        name: str,
        *,
        fields: Mapping[str, object] | None = None,
        title: str | None = None,
    ) -> "FoundDevice":
        """A device that this handler has found while the app runs, such as a sensor that a gateway has heard. It is
        made at the first call with its name, and is then a device as any other: with topics, availability, counters, a
        ledger and discovery. The handler is registered with ``finds=Finds(…)``, which sets how many devices it may
        have, and when one of them is forgotten. May be called from any thread, for each reading.

        Never raises because of the characters of the name, since it may come from outside: characters that a topic must
        not have are escaped, as in `leadsman.core.mqtt.topics.escaped_name`. If the name is empty, too long or that of
        another device, or there are too many devices, the device is refused: leadsman counts and logs that, and drops
        its readings.

        Args:
            name: the name of the device, such as its serial number. It should stay the same for years.
            fields: what the readings of this device have, where only the device has them: a type for each name, as
                in ``{"temperature": Annotated[float, Sensor("°C")]}``; ``float``, ``int``, ``bool``, ``str`` or
                ``datetime``. They take the place of ``Finds(readings)``. A later call may add fields, up to 50 in all,
                and discovery then has them, too; a field that is there stays as it is. They outlive a restart. Give the
                same dict again while nothing is new: that costs nothing.
            title: the name of the device for people, unless the settings have one.

        Raises:
            InvalidType: the name is not text, or a field has another type.
            InvalidValue: the handler is not registered with `Finds`, or the name of a field is invalid.
        """
        if not isinstance(name, str):
            raise InvalidType(f"the name of a device is {name!r}; write text such as its serial number")
        return self._requests.device(self.name, name, fields, title)

    def publish(self, topic: str, payload: object, *, qos: int = 1, retain: bool = False) -> None:
        """Publish to ``{prefix}/{device}/{topic}``. May be called from any thread.

        Args:
            topic: one or more levels; the first must not be one of leadsman's own. The root device has one level, since
                further ones are those of other devices.
            payload: bytes or text are sent unchanged; anything else as JSON.

        Raises:
            InvalidValue, InvalidType: the topic is invalid.
            ResultError: JSON cannot represent the payload.
        """
        check_prefix(topic)
        if topic.split("/")[0] in RESERVED:
            raise InvalidValue(f"the first level of the topic {topic!r} is reserved for leadsman; write another word")
        if "/" in topic and self.name == self._publisher_context.topics.root:
            raise InvalidValue(
                f"the topic {topic!r} of the root device has several levels, as those of other devices have; write one"
            )
        if qos not in (0, 1):
            raise InvalidValue(f"qos is {qos!r}; it must be 0 or 1")
        data = payload if isinstance(payload, bytes) else payload.encode() if isinstance(payload, str) else None
        if data is None:
            data = encode(plain(payload, topic))
        message = Message(self._publisher_context.topics.of(self.name, topic), data, qos, retain)
        call_on(self._loop, self._send, message)

    def _send(self, message: Message) -> None:
        context = self._publisher_context
        if message.retain and message.payload:
            context.others.add(self.name, message.topic)
        context.send(message)
        if message.retain and not message.payload:
            context.others.remove(self.name, message.topic)


class _Named(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        device = (self.extra or {})["device"]
        kwargs.setdefault("extra", {"fields": {"device": device}})  # its level may be set by the device
        return f"{device}: {msg}", kwargs


def _target(when: object, zone: str | tzinfo | None, now: float) -> float:
    """Epoch seconds of the next `when` after `now`."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidValue(
                f"sleep_until received {when!r} without a time zone; use datetime.now(UTC) or a time of day"
            )
        return when.timestamp()
    if isinstance(when, str):
        try:
            when = time.fromisoformat(when)
        except ValueError:
            raise InvalidValue(f"sleep_until received {when!r}; write a time of day such as '06:30'") from None
    if not isinstance(when, time):
        raise InvalidType(f"sleep_until received {when!r}; write a time of day such as '06:30', or an aware datetime")
    place = when.tzinfo or (zone if isinstance(zone, tzinfo) else zone_of(zone))
    today = datetime.fromtimestamp(now, place)
    for days in range(3):  # today, tomorrow; a zone may leap over a whole day
        date = (today + timedelta(days=days)).date()
        target = datetime.combine(date, when.replace(tzinfo=place)).timestamp()
        if target > now:
            return target
    raise InvalidValue(f"the time {when} does not exist in {place} within three days; write another one")
