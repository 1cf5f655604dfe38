"""Where lines are written to. It may take nothing for hours: a pipe that nobody reads, a terminal after Ctrl-S, a disk
in the network.

::

    put ──▶ waiting ──▶ a thread writes ──▶ the stream or the file
             │
             ╰─ no room: counted, and reported in the place of those lines once others are taken again

Whoever puts a line waits until it is written, so that nothing is lost if the process dies just then, but `PUT_TIMEOUT`
seconds at most. After a wait in vain nobody waits for `IMPATIENT` seconds.
"""

import _thread
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO
from weakref import WeakSet

from leadsman.core.loop.threads import begin
from leadsman.errors import DeviceUnavailable

PUT_TIMEOUT = 0.02
"""Seconds that a line may take from whoever puts it."""
IMPATIENT = 60.0
"""Seconds without such waits after one that was in vain. An output that is always slow costs a thousandth of the time
or less."""
MAX_WAITING_CHARS = 256 * 1024
"""Characters that wait. After lines were left out, others are taken once half of the room is free."""
CLOSING = 0.5
"""Seconds that the last lines may take as the process ends."""
_NAP = 0.05
"""Seconds to wait for an output that somebody has set to be non-blocking, and that takes nothing now."""


class Output:
    """Writes lines in their order, and keeps nobody waiting. Its thread starts with the first line.

    Args:
        write: writes one line, and may block for as long as it likes. Its errors are dropped.
        report: makes the line about so many that were left out.
        end: called after the last line, in the thread if there is one.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        report: Callable[[int], str] = lambda _: "",
        end: Callable[[], object] = lambda: None,
    ) -> None:
        self._write = write
        self._report = report
        self._end = end
        self.begin_again()
        _OUTPUTS.add(self)

    def begin_again(self, patience: float | None = None) -> None:
        """Forget what waits, as in a forked child: the parent writes it, and only there is the thread. `patience`:
        seconds in the place of `PUT_TIMEOUT`."""
        self._patience = patience
        self.left_out = 0
        """Lines that had no room since the start."""
        self._lock = threading.RLock()  # a finalizer or a signal handler may log in the middle of this
        self._news = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._waiting: deque[str] = deque()
        self._characters = 0
        self._put = self._written = self._unreported = 0
        self._patient_from = 0.0
        self._in_vain_at = -1  # how many were written when `flush` gave up
        self._thread: threading.Thread | None = None
        self._ended = False

    def put(self, line: str) -> None:
        """Have a line written, with its line break."""
        with self._lock:
            if not self._has_room(len(line)):
                self.left_out += 1
                self._unreported += 1
                return
            self._report_those_left_out()
            self._add(line)
            number = self._put
            if self._ended or not self._is_started():
                self._write_here()
                return
            self._news.notify()
            if time.monotonic() < self._patient_from or threading.current_thread() is self._thread:
                return
            if not self._progress.wait_for(lambda: self._written >= number, self._patience or PUT_TIMEOUT):
                self._patient_from = time.monotonic() + IMPATIENT

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, so many seconds at most, and not again after that was in vain. Returns whether it
        is. It takes no lock: a signal handler may have interrupted `put`."""
        ends = time.monotonic() + seconds
        while self._written < self._put:
            if self._in_vain_at == self._written:
                return False
            if time.monotonic() >= ends:
                self._in_vain_at = self._written
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """Write what waits, for `CLOSING` seconds at most, and end the thread. Later lines are written at once, unless
        that was in vain."""
        self.flush(CLOSING)
        with self._lock:
            self._ended = True
            if self._thread is None:  # there was no line
                self._finish()
            self._news.notify()

    def _has_room(self, size: int) -> bool:
        if self._ended and self._waiting:  # nobody reads it, and the process ends
            return False
        return not self._waiting or self._characters + size <= (
            MAX_WAITING_CHARS // 2 if self._unreported else MAX_WAITING_CHARS
        )

    def _report_those_left_out(self) -> None:
        if self._unreported:
            self._add(self._report(self._unreported))
            self._unreported = 0

    def _add(self, line: str) -> None:
        self._waiting.append(line)
        self._characters += len(line)
        self._put += 1

    def _is_started(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="leadsman output", daemon=True)
            try:  # meanwhile a finalizer or a signal handler may log: it must not start another one
                begin(self._thread)
            except DeviceUnavailable:
                self._thread = None  # the next line tries again
        return self._thread is not None

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._ended:
                    if not self._unreported:
                        self._news.wait()
                    self._report_those_left_out()
                if not self._waiting:
                    break
            self._write_next()
        self._finish()

    def _finish(self) -> None:
        with contextlib.suppress(Exception):
            self._end()

    def _write_here(self) -> None:
        """Write what waits, without a thread: the system gives none, or the process ends."""
        while self._waiting:
            self._write_next()

    def _write_next(self) -> None:
        line = self._waiting[0]
        with contextlib.suppress(Exception):  # nobody reads it any more, or the disk is full
            self._write(line)
        with self._lock:
            self._waiting.popleft()
            self._characters -= len(line)
            self._written += 1
            self._progress.notify_all()


_OUTPUTS: WeakSet[Output] = WeakSet()


def _begin_again() -> None:
    for output in list(_OUTPUTS):
        output.begin_again(CLOSING)  # a child may end with `os._exit`, which flushes nothing


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_again)


def flush_outputs() -> None:
    """Write what waits, as the process ends at once. Takes `CLOSING` seconds at most."""
    ends = time.monotonic() + CLOSING
    for output in list(_OUTPUTS):
        output.flush(max(0.0, ends - time.monotonic()))


def descriptor_of(stream: TextIO) -> int | None:
    """The number of the descriptor behind a stream; None if it is in memory."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def to_descriptor(handle: int) -> Callable[[str], None]:
    """A function that writes text to a descriptor."""

    def write(text: str) -> None:
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(handle, rest) :]
            except BlockingIOError:
                time.sleep(_NAP)

    return write


def tell(text: str) -> None:
    """Write to stderr what is no record, such as why the process ends. Takes `CLOSING` seconds at most."""
    stream = sys.stderr
    if stream is None:
        return
    handle = descriptor_of(stream)
    if handle is None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(text)
        return
    flush_outputs()
    output = Output(to_descriptor(handle))
    output.put(text)
    output.close()


def flush_stream(stream: TextIO) -> OSError | ValueError | None:
    """Flush a stream of Python. Returns the error if it cannot be written.

    Raises:
        TimeoutError: it takes nothing for `CLOSING` seconds. A thread has its lock from now on.
    """
    errors: list[OSError | ValueError] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def flush() -> None:
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            errors.append(error)
        finally:
            ended.release()

    try:
        _thread.start_new_thread(flush, ())  # `threading` has locks that a signal handler may have interrupted
    except RuntimeError:  # the system cannot start another thread
        flush()
    if not ended.acquire(timeout=CLOSING):
        raise TimeoutError("nobody reads it")
    return errors[0] if errors else None
