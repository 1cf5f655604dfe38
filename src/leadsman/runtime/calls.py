"""Calls handlers: on the event loop if they are ``async def``, in a thread if they are plain ``def``. Holds the threads
and bus locks that calls share."""

import asyncio
from concurrent.futures import Future

from leadsman.adapters.managed import ManagedAdapter
from leadsman.errors import DeviceUnavailable, ResultError
from leadsman.registration.injection import Dependencies, Handler, bound, closed_coroutine
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.bus_lock import BusLock
from leadsman.resilience.sharing import NO_SHARED_GUARDS, RetryTokenBucket, SharedCircuit, SharedGuards
from leadsman.threads import Worker


class SharedResources:
    """The threads and bus locks of one app. Handlers that name the same adapter or group share one."""

    def __init__(self) -> None:
        self._workers: dict[int, Worker] = {}
        self._bus_locks: dict[str, BusLock] = {}
        self._shared: dict[str, SharedCircuit] = {}
        self._tokens: dict[int, RetryTokenBucket] = {}

    def worker(self, needs: Dependencies) -> Worker:
        """One thread per adapter, and one for the plain handlers without any."""
        slot = next((dependency for _, dependency in needs if isinstance(dependency, ManagedAdapter)), None)
        worker = self._workers.get(id(slot))
        if worker is None:
            worker = self._workers[id(slot)] = Worker(slot.label if slot else "handlers")
        return worker

    def bus_lock(self, group: str | None) -> BusLock | None:
        """The bus lock of a group; None without a group."""
        if group is None:
            return None
        return self._bus_locks.setdefault(group, BusLock())

    def shared_guards(self, rule: CircuitBreaker | None, needs: Dependencies) -> SharedGuards:
        """The guards that a handler shares with others: the circuit that its breaker names, and the retry tokens of its
        adapter."""
        shared = tokens = None
        if rule is not None and rule.shared is not None:
            shared = self._shared.setdefault(rule.shared, SharedCircuit(rule))
        for _, dependency in needs:
            if isinstance(dependency, ManagedAdapter) and (capacity := dependency.retry_tokens) is not None:
                tokens = self._tokens.setdefault(id(dependency), RetryTokenBucket(capacity))
        return NO_SHARED_GUARDS if shared is None and tokens is None else SharedGuards(shared, tokens)

    def stop(self) -> None:
        """End the threads after the calls that are queued."""
        for worker in self._workers.values():
            worker.stop()


class PlainCall:
    """Makes a plain ``def`` handler awaitable. One call at a time."""

    __slots__ = ("_blocked", "_handler", "_loop", "_needs", "_shares", "_worker")

    def __init__(self, handler: Handler, needs: Dependencies, resources: SharedResources) -> None:
        self._handler = handler
        self._needs = needs
        self._worker = resources.worker(needs)
        self._shares = any(isinstance(dependency, ManagedAdapter) for _, dependency in needs)
        self._loop = asyncio.get_running_loop()
        self._blocked: Future[object] | None = None

    @property
    def busy(self) -> bool:
        """Whether the thread of an earlier call still runs."""
        return self._blocked is not None and not self._blocked.done()

    async def __call__(self, **given: object) -> object:
        """Make the call in the thread. Raises the handler's exceptions, and `DeviceUnavailable` while an earlier call
        blocks the thread."""
        if self.busy:  # a retry, after the thread did not come back in time
            raise DeviceUnavailable("the thread of an earlier call is still busy")
        self._blocked = future = self._worker.submit(bound(self._handler, self._needs, given))
        try:
            result = await asyncio.wrap_future(future, loop=self._loop)
        except asyncio.CancelledError:
            if not self._shares:  # it shares no device, so another thread may serve the others
                self._worker.give_up(future)
            raise
        if closed_coroutine(result):
            raise ResultError("the handler returned a coroutine; declare it 'async def', or await inside it")
        return result
