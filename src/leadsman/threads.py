"""Daemon threads for blocking calls: plain ``def`` handlers, opening ports, and `asyncio.to_thread`.

A blocked thread must neither keep the process alive nor delay other calls. A bounded, shared pool does both once enough
calls hang, and Python's standard pool is joined at exit.
"""

import contextvars
import functools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from leadsman.errors import DeviceUnavailable

MOST_STUCK = 8
"""A worker leaves at most this many blocked threads behind before it refuses further calls."""
MOST_THREADS = 128
"""Threads alive at once in a `DaemonExecutor`, blocked ones included."""

_busy = 0
_busy_lock = threading.Lock()


def busy() -> int:
    """Calls that threads are making or have waiting, in this process. Virtual time stands still while there are any."""
    return _busy


def _count(change: int) -> None:
    global _busy  # one number for the process, as the threads are
    with _busy_lock:
        _busy += change


_Job = tuple[Future[Any], Callable[[], Any]]


class Worker:
    """One daemon thread that makes calls one after another. It starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: Future[Any] | None = None
        self._stuck: list[threading.Thread] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Make the call in the thread, with the caller's context variables.

        Raises:
            DeviceUnavailable: too many earlier calls are still blocked.
        """
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= MOST_STUCK:
            raise DeviceUnavailable(
                f"{MOST_STUCK} threads of {self._name} are blocked; give the blocking call a timeout"
            )
        future: Future[Any] = Future()
        _count(+1)
        self._jobs.put((future, functools.partial(contextvars.copy_context().run, fn, *args)))
        if self._thread is None:
            self._start()
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Stop waiting for a blocked call. Its thread is left alone, and another thread makes the calls after it."""
        if self._current is future and self._thread is not None and not future.done():
            self._stuck.append(self._thread)
            self._start()

    def stop(self) -> None:
        """End the thread after the calls that are queued."""
        self._jobs.put(None)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"leadsman {self._name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            job = self._jobs.get()
            if job is None:
                return
            future, call = job
            if future.set_running_or_notify_cancel():
                self._current = future
                _settle(future, call)
            _count(-1)  # after whoever awaits it was woken


class DaemonExecutor(ThreadPoolExecutor):
    """The loop's default executor: a daemon thread per call, so that no call waits behind one that hangs."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)  # its own threads are never started
        self._alive = threading.BoundedSemaphore(MOST_THREADS)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make the call in a thread of its own.

        Raises:
            DeviceUnavailable: `MOST_THREADS` earlier calls are still running.
        """
        if not self._alive.acquire(blocking=False):
            raise DeviceUnavailable(f"{MOST_THREADS} threads are blocked; give the blocking calls a timeout")
        future: Future[Any] = Future()
        _count(+1)
        future.set_running_or_notify_cancel()
        threading.Thread(
            target=self._run, args=(future, lambda: fn(*args, **kwargs)), name="leadsman call", daemon=True
        ).start()
        return future

    def _run(self, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            _settle(future, call)
        finally:
            _count(-1)
            self._alive.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to wait for: the threads are daemons."""


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # a thread has nobody to raise to; the awaiting side raises it
        future.set_exception(error)
    else:
        future.set_result(result)
