"""Calls handlers: on the event loop if they are ``async def``, in a thread if they are plain ``def``. Holds the threads
and bus locks that calls share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.loop.user_code import blocked_at
from leadsman.core.registration.injection import Dependencies, Handler, bound, closed_coroutine
from leadsman.core.resilience.breaker import CircuitBreaker
from leadsman.core.resilience.circuit import SharedCircuit
from leadsman.core.resilience.decision import RetryTokenBucket
from leadsman.core.resilience.guards import NO_SHARED_GUARDS, BusLock, SharedGuards
from leadsman.errors import DeviceUnavailable, ResultError

if TYPE_CHECKING:
    from leadsman.core.runtime.thread_pool import TakenThread, ThreadPool

T = TypeVar("T")

MAX_THREADS = 64
"""Threads for the calls of plain handlers without an adapter, those that hang included."""
_MAX_WAIT_SECONDS = 60.0
"""Seconds that a call without a timeout waits for a thread."""


class SharedResources:
    """The threads and bus locks of one app. Handlers that name the same adapter or group share one."""

    def __init__(self) -> None:
        self._threads: dict[int, ThreadPool] = {}
        self._bus_locks: dict[str, BusLock] = {}
        self._shared: dict[str, SharedCircuit] = {}
        self._tokens: dict[int, RetryTokenBucket] = {}

    def threads(self, needs: Dependencies) -> "ThreadPool":
        """One thread for each adapter, so that its device sees one call at a time, and `MAX_THREADS` for the plain
        handlers without any."""
        from leadsman.core.runtime.thread_pool import ThreadPool

        slot = next((dependency for _, dependency in needs if isinstance(dependency, ManagedAdapter)), None)
        threads = self._threads.get(id(slot))
        if threads is None:
            threads = ThreadPool(slot.label, 1) if slot else ThreadPool("handlers", MAX_THREADS)
            self._threads[id(slot)] = threads
        return threads

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
        """End the threads; those that have a call end after it."""
        for threads in self._threads.values():
            threads.stop()


class PlainCall:
    """Makes a plain ``def`` handler awaitable. One call at a time: while an earlier one still blocks its thread, there
    is no other.

    `in_thread` guards a call that ends in `__call__`, and waits for the thread. So the wait comes before the deadline
    of the call.

    Args:
        handler: the handler.
        needs: what it is given.
        resources: has the threads.
        name: of the maker of the calls, for the errors of others that wait for a thread.
        timeout: of a call, in seconds. The wait for a thread may last as long once more.
    """

    __slots__ = ("_handler", "_limit", "_loop", "_needs", "_thread", "_threads", "name")

    def __init__(
        self, handler: Handler, needs: Dependencies, resources: SharedResources, name: str, timeout: float | None
    ) -> None:
        self.name = name
        self._handler = handler
        self._needs = needs
        self._limit = _MAX_WAIT_SECONDS if timeout is None else timeout
        self._threads = resources.threads(needs)
        self._loop = asyncio.get_running_loop()
        self._thread: TakenThread | None = None

    @property
    def busy(self) -> bool:
        """Whether the thread of an earlier call still runs."""
        return self._thread is not None and self._thread.holder is self

    def identifier(self) -> int | None:
        """See `ThreadGuard`."""
        return self._thread.identifier if self._thread is not None and self._thread.running else None

    def in_thread(self, call: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """The call, made while there is a thread for it.

        It raises `DeviceUnavailable` while an earlier call blocks its thread, and `NoFreeThread` if all threads are
        taken by others.
        """

        async def threaded() -> T:
            if self.busy:  # a retry, after the thread did not come back in time
                raise DeviceUnavailable(f"the thread of an earlier call is still busy{self._place()}")
            self._thread = thread = await self._threads.acquire(self, self._limit)
            try:
                return await call()
            finally:
                if thread.holder is self and not thread.running:  # the call failed before it began
                    self._threads.give_back(thread)

        return threaded

    def _place(self) -> str:
        """The line of the user's code where the thread is, for the end of an error; empty if it is elsewhere."""
        thread = self.identifier()
        place = None if thread is None else blocked_at(thread)
        return f" ({place})" if place else ""

    async def __call__(self, **given: object) -> object:
        """Make the call in the thread that `in_thread` has taken. Raises the handler's exceptions."""
        assert self._thread is not None  # taken by `in_thread`
        result = await self._thread.run(bound(self._handler, self._needs, given))
        if closed_coroutine(result):
            raise ResultError("the handler returned a coroutine; declare it 'async def', or await inside it")
        return result
