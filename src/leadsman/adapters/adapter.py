"""The protocol of adapters, and `ManagedAdapter`, which keeps an adapter open while the app runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from leadsman.errors import DeviceUnavailable, InvalidType, InvalidValue
from leadsman.events import AdapterFailed, AdapterReopened, AppFault
from leadsman.reading import plain
from leadsman.resilience.backoff import ExponentialBackoff
from leadsman.resilience.environment import Environment
from leadsman.tasks import Outcome, begin, end, outcome_of
from leadsman.text import describe
from leadsman.timing.durations import human

OPEN_TIMEOUT = 30.0
"""The longest time in seconds for `__aenter__`; also for closing and resetting before an adapter is opened again."""
PROBE_TIMEOUT = 10.0
"""The longest time in seconds for `probe`."""
REOPENING = ExponentialBackoff(1.0, 60.0)


@runtime_checkable
class Adapter(Protocol):
    """An async context manager that handlers ask for by its type. An adapter may have these members as well:

    * `transient_errors`, a tuple of exception classes that are worth a retry; they are added to the default of
      ``retry_on``.
    * ``async def probe()``, which returns if the adapter itself works and raises if it does not.
    * ``async def reset()``, which discards its client between closing and opening; see
      `leadsman.runtime.adapter_recovery`.
    * ``def check_installed()``, which raises `NotInstalled` if a library that opening needs is missing; the app calls
      it before it starts.
    * `health`, a mapping of names to numbers, text or None, for introspection. Reading it must neither wait nor change
      anything.
    * `retry_tokens`, a number that limits the retries of all its handlers together: each retry takes a token, and a
      poll whose first call succeeds returns one.
    """

    async def __aenter__(self) -> Any:
        """Open the adapter and return the object that handlers get. It may raise any exception; opening is then
        tried again."""
        ...

    async def __aexit__(self, *exc_info: object) -> bool | None:
        """Close the adapter."""
        ...


class ManagedAdapter:
    """One adapter of an app, whether it is open or not."""

    def __init__(self, name: str | None, adapter: Adapter) -> None:
        self.name = name
        self.adapter = adapter
        self.kind = type(adapter).__name__
        """The name of its class; also if a twin replaces it."""
        self.label = self.kind if name is None else f"{self.kind} {name!r}"
        self._opened: Any = None
        self._error: BaseException | None = None
        self._entered = False
        self._renewal: asyncio.Event | None = None
        self._remake = False
        self.reopened = 0
        """How often it was reopened since the start."""

    @property
    def state(self) -> tuple[bool, str | None]:
        """Whether it is open, and if not, why."""
        return self._entered, None if self._error is None else f"{type(self._error).__name__}: {describe(self._error)}"

    @property
    def health(self) -> dict[str, Any]:
        """The adapter's own `health`; empty if it has none or raises."""
        try:
            return {
                str(name): plain(value, str(name)) for name, value in dict(getattr(self.adapter, "health", {})).items()
            }
        except Exception as error:  # a user's property may raise; introspection must show the rest
            return {"fault": f"{type(error).__name__}: {describe(error)}"}

    def check_installed(self) -> None:
        """Raise `NotInstalled` if the adapter reports that a library is missing."""
        check = getattr(self.adapter, "check_installed", None)
        if callable(check):
            check()

    @property
    def transient_errors(self) -> tuple[type[Exception], ...]:
        """The errors that the adapter declares as worth a retry."""
        return tuple(getattr(self.adapter, "transient_errors", ()))

    @property
    def retry_tokens(self) -> int | None:
        """How many retries its handlers may make together before one of them succeeds; None: no limit."""
        return getattr(self.adapter, "retry_tokens", None)

    def fits(self, wanted: type) -> bool:
        """Whether the adapter is an instance of a type, or implements a protocol that can be checked at run time."""
        try:
            return isinstance(self.adapter, wanted)
        except TypeError:
            return False

    def get(self) -> Any:
        """The object that handlers get.

        Raises:
            DeviceUnavailable: the adapter is not open yet. A retry may help.
        """
        if not self._entered:
            why = (
                "it is still opening"
                if self._error is None
                else f"{type(self._error).__name__}: {describe(self._error)}"
            )
            raise DeviceUnavailable(f"{self.label} is not open: {why}") from self._error
        return self._opened

    def keep(self, environment: Environment) -> Coroutine[Any, Any, None]:
        """Keep the adapter open, and reopen it whenever `reopen` requests that. The returned coroutine runs until
        it is cancelled. An adapter that hangs or fails delays no other adapter."""
        return self._keep(environment, begin(self._enter))

    async def _keep(self, environment: Environment, opening: asyncio.Task[Outcome[None]]) -> None:
        await self._open(environment, opening)
        while True:
            self._renewal = asyncio.Event()
            await self._renewal.wait()
            await self._shut(environment)
            if self._remake:
                await self._bounded(environment, f"resetting {self.label}", self.adapter.reset)  # type: ignore[attr-defined]  # seen by `reopen`
            await self._open(environment, begin(self._enter))
            self.reopened += 1
            environment.events.emit(AdapterReopened(self.label, "reset" if self._remake else "reopened"))

    def reopen(self, *, remake: bool) -> bool:
        """Close and reopen the adapter, and call its `reset` in between if `remake` is set and it has one. Returns
        whether this will happen."""
        if not self._entered or self._renewal is None:
            return False
        self._remake = remake and callable(getattr(self.adapter, "reset", None))
        self._renewal.set()
        return True

    async def probe(self) -> bool:
        """Whether `probe` reports that the adapter works. False for an adapter without `probe`."""
        ask = getattr(self.adapter, "probe", None)
        if not callable(ask) or not self._entered:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                return (await outcome_of(ask)).error is None  # it is not well, whatever it raises
        except TimeoutError:
            return False

    async def _shut(self, environment: Environment) -> None:
        self._entered, self._error = False, DeviceUnavailable("it is being opened again")
        await self._bounded(environment, f"closing {self.label}", lambda: self.adapter.__aexit__(None, None, None))

    async def _bounded(self, environment: Environment, where: str, step: Callable[[], Awaitable[object]]) -> None:
        error: BaseException | None
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                error = (await outcome_of(step)).error
        except TimeoutError as late:
            error = late
        if error is not None:  # what is broken may not close; it is opened again all the same
            environment.events.emit(AppFault(where, error))

    async def _open(self, environment: Environment, opening: asyncio.Task[Outcome[None]]) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(OPEN_TIMEOUT):
                    error = (await end(opening)).error
            except TimeoutError:
                error = DeviceUnavailable(f"did not open within {human(OPEN_TIMEOUT)}")
            if error is None:
                return
            self._error = error  # whatever it is, an adapter does not end the process, nor the attempts to open it
            delay = REOPENING.delay(attempt)
            environment.events.emit(AdapterFailed(self.label, error, delay))
            await environment.timers.sleep(delay)
            opening = begin(self._enter)

    async def _enter(self) -> None:
        self._opened = await self.adapter.__aenter__()
        self._entered, self._error = True, None

    async def close(self) -> None:
        """Close it, if it is open."""
        if self._entered:
            self._entered = False
            await self.adapter.__aexit__(None, None, None)


def names_of(needs: Iterable[tuple[str, object]]) -> tuple[str, ...]:
    """The names and the classes of the adapters among what a handler needs."""
    slots = [offer for _, offer in needs if isinstance(offer, ManagedAdapter)]
    return tuple(name for slot in slots for name in (slot.name, slot.kind) if name is not None)


def slots_of(adapters: Sequence[Adapter] | Mapping[str, Adapter]) -> tuple[ManagedAdapter, ...]:
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
        tokens = getattr(adapter, "retry_tokens", None)
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
            raise InvalidValue(
                f"retry_tokens of {type(adapter).__name__} is {tokens!r}; it is 1 or more retries, or None"
            )
    if len({id(adapter) for _, adapter in named}) < len(named):
        raise InvalidValue("adapters holds one adapter twice; give each handler the same one by its type")
    return tuple(ManagedAdapter(name, adapter) for name, adapter in named)
