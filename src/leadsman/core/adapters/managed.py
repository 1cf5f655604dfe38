"""`ManagedAdapter`, which keeps an adapter of an app open while the app runs, and answers for its abilities."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadsman.core.adapters.adapter import (
    Adapter,
    ChecksInstallation,
    DeclaresResource,
    LimitsRetries,
    ReportsHealth,
    SupportsProbe,
    SupportsReset,
)
from leadsman.core.events import AdapterFailed, AdapterReopened, AppFault
from leadsman.core.loop.durations import human
from leadsman.core.loop.tasks import Outcome, begin, end, outcome_in_own_task
from leadsman.core.loop.user_code import place_of
from leadsman.core.readings.reading import plain
from leadsman.core.resilience.backoff import ExponentialBackoff
from leadsman.core.resilience.environment import Environment
from leadsman.core.resilience.turns import SharedLine
from leadsman.core.text import describe
from leadsman.errors import DeviceUnavailable, InvalidType, InvalidValue, NotInstalled

if TYPE_CHECKING:
    from leadsman.core.adapters.resource import Resource, ResourceKind

OPEN_TIMEOUT = 30.0
"""The longest time in seconds for `__aenter__`; also for closing and resetting before an adapter is opened again."""
PROBE_TIMEOUT = 10.0
"""The longest time in seconds for `probe`."""
REOPENING = ExponentialBackoff(1.0, 60.0)
"""The waits between two attempts to open an adapter."""


class ManagedAdapter:
    """One adapter of an app, whether it is open or not. `name` distinguishes adapters of one class."""

    def __init__(self, name: str | None, adapter: Adapter) -> None:
        self.name = name
        self.adapter = adapter
        self.kind = type(adapter).__name__
        """The name of its class; also if a twin replaces it."""
        self.label = self.kind if name is None else f"{self.kind} {name!r}"
        """The adapter in messages."""
        self.reopened = 0
        """How often it was reopened since the start."""
        self._opened: object = None
        self._error: BaseException | None = None
        self._is_open = False
        self._reopening: asyncio.Event | None = None
        self._with_reset = False

    @property
    def state(self) -> tuple[bool, str | None]:
        """Whether it is open, and if not, why."""
        return self._is_open, None if self._error is None else f"{type(self._error).__name__}: {describe(self._error)}"

    @property
    def health(self) -> dict[str, object]:
        """The adapter's own `health`; empty if it has none."""
        try:
            if not isinstance(self.adapter, ReportsHealth):
                return {}
            return {str(name): plain(value, str(name)) for name, value in self.adapter.health.items()}
        except Exception as error:  # a user's property may raise; introspection must show the rest
            place = place_of(error)
            return {"fault": f"{type(error).__name__}: {describe(error)}" + (f" ({place})" if place else "")}

    @property
    def transient_errors(self) -> tuple[type[Exception], ...]:
        """The errors that the adapter declares as worth a retry."""
        return tuple(getattr(self.adapter, "transient_errors", ()))  # each registration asks: no check of a protocol

    @property
    def retry_tokens(self) -> int | None:
        """How many retries its handlers may make together before one of them succeeds; None: no limit."""
        return self.adapter.retry_tokens if isinstance(self.adapter, LimitsRetries) else None

    @property
    def resource(self) -> "Resource | None":
        """What the adapter declares that it needs of the machine or the network."""
        return self.adapter.resource if isinstance(self.adapter, DeclaresResource) else None

    @property
    def resource_kind(self) -> "ResourceKind | None":
        """The kind of that resource; None if the adapter declares none, or its property raises."""
        try:
            resource = self.resource
        except Exception:  # a user's property may raise; introspection must show the rest
            return None
        return None if resource is None else resource.kind

    @property
    def supports_probe(self) -> bool:
        """Whether the adapter can check itself."""
        return isinstance(self.adapter, SupportsProbe)

    @property
    def supports_reset(self) -> bool:
        """Whether the adapter can discard its client."""
        return isinstance(self.adapter, SupportsReset)

    def check_installed(self) -> None:
        """Raise `NotInstalled` if the adapter reports that a library is missing."""
        if isinstance(self.adapter, ChecksInstallation):
            self.adapter.check_installed()

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
        if not self._is_open:
            _, error = self.state
            raise DeviceUnavailable(f"{self.label} is not open: {error or 'it is still opening'}") from self._error
        return self._opened

    def keep(self, environment: Environment) -> Coroutine[Any, Any, None]:
        """Keep the adapter open, and reopen it whenever `reopen` requests that. The returned coroutine runs until
        it is cancelled. An adapter that hangs or fails delays no other adapter."""
        return self._keep(environment, begin(self._enter))

    async def _keep(self, environment: Environment, opening: asyncio.Task[Outcome[None]]) -> None:
        await self._open(environment, opening)
        while True:
            self._reopening = asyncio.Event()
            await self._reopening.wait()
            await self._shut(environment)
            if self._with_reset and isinstance(self.adapter, SupportsReset):
                await self._run_bounded(environment, f"resetting {self.label}", self.adapter.reset)
            await self._open(environment, begin(self._enter))
            self.reopened += 1
            environment.events.emit(AdapterReopened(self.label, "reset" if self._with_reset else "reopened"))

    def reopen(self, *, with_reset: bool) -> bool:
        """Close and reopen the adapter, and reset it in between if `with_reset` is set and it supports that. Returns
        whether this will happen."""
        if not self._is_open or self._reopening is None:
            return False
        self._with_reset = with_reset and self.supports_reset
        self._reopening.set()
        return True

    async def probe(self) -> BaseException | None:
        """None if `probe` reports that the adapter works, else what it raised: it does not work then, whatever that is.
        An adapter that has no `probe`, or is not open, does not work either."""
        if not isinstance(self.adapter, SupportsProbe) or not self._is_open:
            return DeviceUnavailable("it is not open" if self.supports_probe else "it has no probe")
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                return (await outcome_in_own_task(self.adapter.probe)).error
        except TimeoutError as late:
            return late

    async def _shut(self, environment: Environment) -> None:
        self._is_open, self._error = False, DeviceUnavailable("it is being opened again")
        await self._run_bounded(environment, f"closing {self.label}", lambda: self.adapter.__aexit__(None, None, None))

    async def _run_bounded(self, environment: Environment, where: str, step: Callable[[], Awaitable[object]]) -> None:
        error: BaseException | None
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                error = (await outcome_in_own_task(step)).error
        except TimeoutError as late:
            error = late
        if error is not None:  # a broken one may not close; it is opened again all the same
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
        share_locks(self.adapter)
        self._opened = await self.adapter.__aenter__()
        share_locks(self.adapter)
        share_locks(self._opened)
        self._is_open, self._error = True, None

    async def close(self) -> None:
        """Close it, if it is open."""
        if self._is_open:
            self._is_open = False
            await self.adapter.__aexit__(None, None, None)


def share_locks(adapter: object) -> None:
    """Make the locks that an adapter keeps as its attributes fair: a `SharedLine` instead of an `asyncio.Lock`. What is
    behind such a lock is shared by the devices of the adapter."""
    for name, value in getattr(adapter, "__dict__", {}).items():
        if type(value) is asyncio.Lock and not value.locked():
            setattr(adapter, name, SharedLine())


def uses_adapters(needs: Iterable[tuple[str, object]]) -> bool:
    """Whether a handler is given adapters."""
    return any(isinstance(dependency, ManagedAdapter) for _, dependency in needs)


def adapter_names(needs: Iterable[tuple[str, object]]) -> tuple[str, ...]:
    """The names and the classes of the adapters among what a handler needs."""
    adapters = [dependency for _, dependency in needs if isinstance(dependency, ManagedAdapter)]
    return tuple(name for adapter in adapters for name in (adapter.name, adapter.kind) if name is not None)


def declared_errors(needs: Iterable[tuple[str, object]]) -> tuple[type[Exception], ...]:
    """The errors that the adapters among what a handler needs declare as worth a retry."""
    adapters = [dependency for _, dependency in needs if isinstance(dependency, ManagedAdapter)]
    return tuple(kind for adapter in adapters for kind in adapter.transient_errors)


def managed_adapters(adapters: Sequence[Adapter] | Mapping[str, Adapter]) -> tuple[ManagedAdapter, ...]:
    """Read an app's `adapters`: a sequence, or a mapping where several are of one type.

    Raises:
        InvalidType: an element is not an async context manager.
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
        _check(name, adapter)
    if len({id(adapter) for _, adapter in named}) < len(named):
        raise InvalidValue(
            "adapters contains the same adapter twice; list it once, each handler that asks for its type receives it"
        )
    return tuple(ManagedAdapter(name, adapter) for name, adapter in named)


def check_installed(adapters: Iterable[ManagedAdapter]) -> None:
    """Check that the libraries that adapters need are installed. Raises `NotInstalled` with a line for each that is
    missing, with the command that installs it."""
    missing: dict[str, None] = {}
    for adapter in adapters:
        try:
            adapter.check_installed()
        except NotInstalled as error:
            missing[str(error)] = None
    if missing:
        raise NotInstalled("\n".join(missing))


def replace_by_twins(adapters: Iterable[ManagedAdapter], twins: Sequence[Adapter] | Mapping[str, Adapter]) -> None:
    """Replace each adapter by its twin. Raises `InvalidValue` if one has no twin."""
    left = list(managed_adapters(twins))
    for adapter in adapters:
        found = [each for each in left if each.name == adapter.name and each.fits(type(adapter.adapter))]
        if not found:
            raise InvalidValue(
                f"twins contains no twin for {adapter.label}; add one of its type, with its name if it has one"
            )
        adapter.adapter = found[0].adapter
        left.remove(found[0])


def _check(name: object, adapter: object) -> None:
    if not (name is None or isinstance(name, str)):
        raise InvalidType(f"adapters contains the name {name!r}; names are text, such as 'boiler'")
    if isinstance(adapter, type):
        raise InvalidType(f"adapters contains the class {adapter.__name__}; write {adapter.__name__}(…) with brackets")
    if not isinstance(adapter, Adapter):
        raise InvalidType(
            f"adapters contains {adapter!r}, which is not an async context manager; give it __aenter__ and __aexit__"
        )
    tokens: object = adapter.retry_tokens if isinstance(adapter, LimitsRetries) else None
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        kind = type(adapter).__name__
        raise InvalidValue(f"retry_tokens of {kind} is {tokens!r}; it must be 1 or more retries, or None")
