"""What an adapter is, and how the app keeps it open."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from leadsman.clock import Clock
from leadsman.durations import human
from leadsman.errors import DeviceUnavailable, InvalidType, InvalidValue
from leadsman.events import AdapterFailed, Events
from leadsman.resilience.backoff import ExponentialBackoff
from leadsman.timers import Timers

OPEN_TIMEOUT = 30.0
"""Seconds that `__aenter__` may take."""
REOPENING = ExponentialBackoff(1.0, 60.0)


@runtime_checkable
class Adapter(Protocol):
    """An async context manager that handlers are given by its type.

    It may have `transient_errors`, a tuple of exception classes that are worth another attempt; they join the default
    of ``retry_on``.
    """

    async def __aenter__(self) -> Any:
        """Open; what it returns is what handlers get. May raise anything; it is tried again."""
        ...

    async def __aexit__(self, *exc_info: object) -> bool | None:
        """Close."""
        ...


class Slot:
    """One adapter of an app, open or not."""

    def __init__(self, name: str | None, adapter: Adapter) -> None:
        self.name = name
        self.adapter = adapter
        self.label = name or type(adapter).__name__
        self._opened: Any = None
        self._error: BaseException | None = None
        self._entered = False

    @property
    def transient_errors(self) -> tuple[type[Exception], ...]:
        """What the adapter declares as worth another attempt."""
        return tuple(getattr(self.adapter, "transient_errors", ()))

    def get(self) -> Any:
        """What handlers are given.

        Raises:
            DeviceUnavailable: not open yet; worth another attempt.
        """
        if not self._entered:
            why = "it is still opening" if self._error is None else f"{type(self._error).__name__}: {self._error}"
            raise DeviceUnavailable(f"{self.label} is not open: {why}") from self._error
        return self._opened

    async def open(self, timers: Timers, clock: Clock, events: Events) -> None:
        """Open the adapter, again and again until it works; one that hangs or fails holds up nobody else."""
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(OPEN_TIMEOUT):
                    self._opened = await self.adapter.__aenter__()
            except TimeoutError as error:
                self._error = error if str(error) else DeviceUnavailable(f"did not open within {human(OPEN_TIMEOUT)}")
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # an adapter does not end the process either
                self._error = error
            else:
                self._entered, self._error = True, None
                return
            delay = REOPENING.delay(attempt)
            events.emit(AdapterFailed(self.label, clock.monotonic(), clock.wall(), self._error, delay))
            await timers.sleep(delay)

    async def close(self) -> None:
        """Close it, if it is open."""
        if self._entered:
            self._entered = False
            await self.adapter.__aexit__(None, None, None)


def slots_of(adapters: Sequence[Adapter] | Mapping[str, Adapter]) -> tuple[Slot, ...]:
    """Read an app's `adapters`: a sequence, or a mapping where several are of one type.

    Raises:
        InvalidType: something is no async context manager.
        InvalidValue: one adapter is given twice.
    """
    named: list[tuple[str | None, Adapter]]
    if isinstance(adapters, Mapping):
        named = [(name, adapter) for name, adapter in adapters.items()]
    elif isinstance(adapters, list | tuple):
        named = [(None, adapter) for adapter in adapters]
    else:
        raise InvalidType(f"adapters is {adapters!r}; write a tuple such as (SerialPort(…),) or a dict of names")
    for name, adapter in named:
        if not (name is None or isinstance(name, str)):
            raise InvalidType(f"adapters holds the name {name!r}; names are text, such as 'boiler'")
        if isinstance(adapter, type):
            raise InvalidType(f"adapters holds the class {adapter.__name__}; write {adapter.__name__}(…) with brackets")
        if not (hasattr(adapter, "__aenter__") and hasattr(adapter, "__aexit__")):
            raise InvalidType(f"adapters holds {adapter!r}, which is no async context manager")
    if len({id(adapter) for _, adapter in named}) < len(named):
        raise InvalidValue("adapters holds one adapter twice; give each handler the same one by its type")
    return tuple(Slot(name, adapter) for name, adapter in named)
