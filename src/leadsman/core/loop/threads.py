"""Daemon threads for blocking calls: opening ports, state files, and `asyncio.to_thread`. For those of plain ``def``
handlers see `leadsman.core.runtime.thread_pool`.

A blocked thread must neither keep the process alive nor delay other calls. A bounded, shared pool does both once enough
calls hang, and Python's standard pool is joined at exit.
"""

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from leadsman.core.loop.durations import human
from leadsman.errors import DeviceTimeout, DeviceUnavailable

MAX_STUCK_THREADS = 8
"""A worker leaves at most this many blocked threads behind before it refuses further calls."""
MAX_THREADS = 128
"""Threads alive at once in a `DaemonExecutor`, blocked ones included."""

_NAMED = 3
"""Functions that an error names."""

T = TypeVar("T")
P = ParamSpec("P")

_busy = 0
_busy_lock = threading.RLock()  # what a caller does first may be another call


def busy() -> int:
    """How many calls run or wait in threads of this process. Virtual time stands still while there are any."""
    with _busy_lock:
        return _busy


def count(change: int) -> None:
    """Count a call that begins or has ended, for `busy`."""
    global _busy  # one number for the process, as the threads are
    with _busy_lock:
        _busy += change


def wake(wake_up: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Wake the caller of a call that has ended, and count it, in one step: a virtual clock that saw the one without the
    other would go on before the caller has its result, or wait for a call that has ended."""
    with _busy_lock:
        try:
            wake_up(*args, **kwargs)
        finally:
            count(-1)


class Worker:
    """One daemon thread that makes calls one after another. It starts with the first call.

    Args:
        name: what the calls use, such as a bus. Errors name it.
        blocked: threads that an earlier worker of it left behind.
    """

    def __init__(self, name: str, blocked: Iterable[threading.Thread] = ()) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: object = None
        self._stuck = [*blocked]

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make the call in the thread, with the caller's context variables.

        Raises:
            DeviceUnavailable: too many earlier calls are still blocked, or the system cannot start another thread.
        """
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= MAX_STUCK_THREADS:
            raise DeviceUnavailable(
                f"{MAX_STUCK_THREADS} threads of {self._name} are blocked; set a timeout on the blocking call"
            )
        if self._thread is None:
            self._start()
        future: Future[T] = Future()
        context = contextvars.copy_context()
        count(+1)
        self._jobs.put(lambda: self._call(future, lambda: context.run(fn, *args, **kwargs)))
        return future

    async def call(
        self, fn: Callable[[], T], timeout: float, given_up: Callable[[Future[T]], object] | None = None
    ) -> T:
        """Make the call in the thread, and wait for it. A call that is not over in time, or whose caller is cancelled,
        is given up.

        Args:
            fn: the call, which may block.
            timeout: seconds.
            given_up: gets the future of a call that is given up. It may be over by then.

        Raises:
            DeviceTimeout: it was not over in time.
            DeviceUnavailable: as `submit`.
            Exception: what `fn` raises.
        """
        future, limit = self.submit(fn), asyncio.timeout(timeout)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, TimeoutError) and not limit.expired():  # the call itself raised it
                raise
            self.give_up(future)
            if given_up is not None:
                given_up(future)
            if isinstance(error, TimeoutError):
                raise DeviceTimeout(f"{self._name} took longer than {human(timeout)}") from error
            raise

    def give_up(self, future: Future[T]) -> None:
        """Stop waiting for a blocked call. Its thread is left alone, and another thread makes the calls after it."""
        if self._current is future and self._thread is not None and not future.done():
            self._stuck.append(self._thread)
            with contextlib.suppress(DeviceUnavailable):  # the next call tries again
                self._start()

    def stop(self) -> None:
        """End the thread after the calls that are queued."""
        self._jobs.put(None)

    def renew(self) -> "Worker":
        """End the thread after the calls that are queued, and return a worker for those that follow. Threads that are
        blocked count there, too: an adapter that is reopened again and again leaves no more of them behind."""
        self.stop()
        return Worker(self._name, self._stuck)

    def _start(self) -> None:
        self._thread = thread = threading.Thread(target=self._run, name=f"leadsman {self._name}", daemon=True)
        try:
            begin(thread)
        except DeviceUnavailable:
            self._thread = None
            raise

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            job = self._jobs.get()
            if job is None:
                return
            job()

    def _call(self, future: Future[T], call: Callable[[], T]) -> None:
        if future.set_running_or_notify_cancel():
            self._current = future
            _settle(future, call)
        else:
            count(-1)


class DaemonExecutor(ThreadPoolExecutor):
    """The loop's default executor: a daemon thread per call, so that no call waits behind one that hangs."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)  # its own threads are never started
        self._alive = threading.BoundedSemaphore(MAX_THREADS)
        self._calls: dict[object, str] = {}  # the name of each call, by its future

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make the call in a thread of its own.

        Raises:
            DeviceUnavailable: `MAX_THREADS` earlier calls are still running, or the system cannot start another thread.
        """
        if not self._alive.acquire(blocking=False):
            calls = Counter(self._calls.copy().values()).most_common(_NAMED)
            names = ", ".join(f"{number} × {name}" for name, number in calls)
            raise DeviceUnavailable(
                f"{MAX_THREADS} threads are blocked, most of them by {names}; set a timeout on the blocking calls"
            )
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        count(+1)
        self._calls[future] = _name(fn, args)
        run = functools.partial(self._run, future, lambda: fn(*args, **kwargs))
        try:
            begin(threading.Thread(target=run, name="leadsman call", daemon=True))
        except DeviceUnavailable:
            count(-1)
            self._over(future)
            raise
        return future

    def _run(self, future: Future[T], call: Callable[[], T]) -> None:
        try:
            _settle(future, call)
        finally:
            self._over(future)

    def _over(self, future: Future[T]) -> None:
        self._calls.pop(future)
        self._alive.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to wait for: the threads are daemons."""


def _name(fn: Callable[..., object], args: tuple[object, ...]) -> str:
    """The name of the function that is called; `asyncio.to_thread` wraps it."""
    inner = next(filter(callable, fn.args if isinstance(fn, functools.partial) else args), fn)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Call a function on an event loop: now, or soon if this is another thread."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:  # a thread without a loop
        here = False
    if here:
        function(*arguments)
    else:
        loop.call_soon_threadsafe(function, *arguments)


def begin(thread: threading.Thread) -> None:
    """Start a thread. Raises `DeviceUnavailable` if the system gives no further one."""
    try:
        thread.start()
    except RuntimeError as error:
        raise DeviceUnavailable(f"no thread for {thread.name}: {error}") from error


def end_of(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Make a call in this thread. Returns its value, or what it raised, for its caller in another thread."""
    try:
        return call(), None
    except StopIteration as stop:  # no future takes one: its caller would wait for ever
        error = RuntimeError("the call raised StopIteration")
        error.__cause__ = stop
        return None, error
    except BaseException as raised:
        return None, raised


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    value, error = end_of(call)
    if error is None:
        wake(future.set_result, value)  # type: ignore[arg-type]  # a call without an error has a value
    else:
        wake(future.set_exception, error)
