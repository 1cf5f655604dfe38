"""Runs one app as a process: signals, logging, and an end within the deadline whatever hangs.

Exit codes: 0 stopped as requested; 69 a handler with ``on_failure="stop"`` failed for good; 70 stopped as requested,
but something blocked the event loop until the deadline; 75 no device gave a reading for too long; 78 the configuration
is wrong; 79 the event loop was blocked for too long; 130 a second Ctrl-C.
"""

import asyncio
import atexit
import contextlib
import errno
import gc
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType, CoroutineType, FrameType, GeneratorType

from leadsman.core.loop.output import flush_outputs, flush_stream, tell
from leadsman.core.loop.threads import DaemonExecutor
from leadsman.core.monitoring.log_format import abandon_unwritable_streams, log_to_stderr
from leadsman.core.monitoring.loop_stalls import StallWatch
from leadsman.core.text import clean, count_noun, log_fields, without_secret_lines
from leadsman.errors import ConfigurationError, InvalidValue, NoFreshData, Stopped, VersionRefused

EX_UNAVAILABLE, EX_SOFTWARE, EX_TEMPFAIL, EX_CONFIG, INTERRUPTED = 69, 70, 75, 78, 130
"""As sysexits.h and the shell number them. 79, of `leadsman.core.parts.supervision`, is the first that neither uses."""

STOP_DEADLINE = 2.0
"""Seconds from the request to stop to the end of the process, whatever hangs."""
ONE_REQUEST = 0.2
"""Seconds in which further signals are the first one again: ``timeout``, for example, sends it to the process and to
its group."""

Serve = Callable[[], Coroutine[object, object, int]]
"""Runs the app; returns how many calls did not end."""


class EndDeadline:
    """Ends the process if it hangs, `STOP_DEADLINE` seconds after somebody asked it to stop.

    Attributes:
        app_has_ended: whether `run` returns. What the program does afterwards, such as running a second app, may take
            its time. Only the end of the process may not, which waits for threads, for example.
        code: the exit code of a process that hangs.
    """

    def __init__(self) -> None:
        self.app_has_ended = False
        self.code = EX_SOFTWARE
        self._program = _outermost(sys._getframe())  # noqa: SLF001  # of the main thread, which runs the app

    def begin(self) -> None:
        """Somebody has asked. The event loop may be blocked by a handler; this timer is not."""
        timer = threading.Timer(STOP_DEADLINE, self._expire)
        timer.daemon = True
        timer.start()

    def _expire(self) -> None:
        if self.app_has_ended and self._program_goes_on():
            self.begin()
        else:
            _leave(self.code)

    def _program_goes_on(self) -> bool:
        main = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  # only spelled so
        return main is not None and _outermost(main) is self._program


def _outermost(frame: FrameType) -> CodeType:
    """The code that the interpreter called first: the module of a program, or a function that ends the process."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code


logger = logging.getLogger("leadsman")

_only_looked_at: ContextVar[bool] = ContextVar("leadsman_only_looked_at", default=False)


@contextlib.contextmanager
def only_looked_at() -> Iterator[None]:
    """In this block `run` does nothing, so that the command line can import a module that ends with ``app.run()``."""
    token = _only_looked_at.set(True)
    try:
        yield
    finally:
        _only_looked_at.reset(token)


MIN_DESCRIPTORS = 16
"""Files and sockets that an app needs room for at its start: the event loop has three, the readings on disk five, the
broker two, the log, the health file and the service manager one each, and modules are loaded when they are needed."""


def check_descriptors(least: int = MIN_DESCRIPTORS) -> None:
    """Raise `InvalidValue` if this process can open fewer than `least` files: what fails later would do so in a place
    that says nothing about the limit."""
    taken: list[int] = []
    try:
        for _ in range(least):
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return  # no such device
        raise InvalidValue(
            f"this process can open {len(taken)} more files, and an app needs {least} at least; allow more, by "
            "LimitNOFILE= in the unit, or by ulimit -n"
        ) from None
    finally:
        for each in taken:
            os.close(each)


def run(
    name: str,
    load: Callable[[], None],
    serve: Serve,
    stop: Callable[[], None],
    log: tuple[str | None, str | None] = (None, None),
) -> None:
    """Run `serve` until SIGINT or SIGTERM, which call `stop`. Returns when all ended well, else ends the process.

    Args:
        name: of the app, for messages.
        load: reads the settings.
        serve: runs the app; returns how many calls would not end.
        stop: asks it to end; called on the event loop.
        log: level and format, as `leadsman.core.monitoring.log_format.log_to_stderr` takes them.
    """
    if _only_looked_at.get():
        return
    atexit.unregister(_end)  # one app may run after the other
    atexit.register(_end)
    deadline = EndDeadline()
    try:
        check_descriptors()
        log_to_stderr(*log)
        with no_search_until_built() as built:
            load()
            alive = _serve(name, serve, stop, deadline, built)
    except ConfigurationError as error:
        tell("".join(f"{name}: {clean(line)}\n" for line in without_secret_lines(str(error)).splitlines()))
        raise SystemExit(EX_CONFIG) from None
    except Stopped as end:
        stale = isinstance(end, NoFreshData)
        about = log_fields("no fresh data" if stale else "stopped by a device")
        logger.critical("%s ends: %s", name, end, extra=about)
        code = EX_CONFIG if isinstance(end, VersionRefused) else EX_TEMPFAIL if stale else EX_UNAVAILABLE
        if end.left_behind:
            _leave(code)
        deadline.app_has_ended, deadline.code = True, code
        deadline.begin()  # nobody asked, and a thread that hangs would keep the process
        raise SystemExit(code) from None
    finally:
        abandon_unwritable_streams()
    if alive:
        logger.warning(
            "%s not end in time; the process ends anyway",
            count_noun(alive, "call did", "calls did"),
            extra=log_fields("calls left behind", calls=alive),
        )
        _leave(0)
    deadline.app_has_ended = True


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Within it, a SIGTERM that comes before `run` is ready for it ends the process with exit code 0. Each ``with``
    block closes what it has opened, such as the broker of a demo, which would outlive the process otherwise."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def ended_after(seconds: float | None, first: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Ask the process to end after a time, unless the block ends before. None sets no limit. `first` is called before
    that, in a thread."""
    if seconds is None:
        yield
        return

    def end() -> None:
        first()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    with ended_by_sigterm():  # the time may be over before the app runs
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def no_search_until_built() -> Iterator[Callable[[], None]]:
    """Let nobody search for garbage until the function that it gives is called, and after that not in what exists by
    then: what is imported and built until then stays. See docs/adr/performance.md."""
    enabled = gc.isenabled()
    gc.disable()

    def built() -> None:
        gc.freeze()
        if enabled:
            gc.enable()

    try:
        yield built
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def _serve(name: str, serve: Serve, stop: Callable[[], None], deadline: EndDeadline, built: Callable[[], None]) -> int:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(DaemonExecutor())
    asked_at: float | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        if asked_at is not None:
            if time.monotonic() - asked_at > ONE_REQUEST:
                _leave(INTERRUPTED)
            return
        asked_at = time.monotonic()
        deadline.begin()
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_asked, number)

    def on_asked(number: int) -> None:  # not in the signal handler, which may have interrupted the log itself
        logger.info("%s stops, asked by %s", name, signal.Signals(number).name, extra=log_fields("stop"))
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    watch = StallWatch(loop)
    try:
        serving = loop.create_task(serve())
        loop.call_soon(built)  # the parts exist by then
        if asked_at is not None:
            loop.call_soon(stop)
        return loop.run_until_complete(serving)
    finally:
        watch.stop()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def only_memory(things: Sequence[object]) -> bool:
    """Whether nothing is lost if none of these objects is destroyed at the end of the process.

    What has a finalizer (``__del__``) must be destroyed, unless the finalizer has nothing to do, as that of a closed
    file. The standard streams are left out: the interpreter flushes them by itself.
    """
    finalized = {kind for kind in set(map(type, things)) if hasattr(kind, "__del__")}
    texts = sys.stdin, sys.stdout, sys.stderr
    buffers = [getattr(text, "buffer", None) for text in texts]
    standard = set(map(id, (*texts, *buffers, *(getattr(buffer, "raw", None) for buffer in buffers))))
    return all(id(thing) in standard or _is_done(thing) for thing in things if type(thing) in finalized)


def _is_done(thing: object) -> bool:
    """Whether the finalizer of an object has nothing to do, once the event loop has ended."""
    match thing:
        case io.IOBase():
            return thing.closed
        case asyncio.Task() if not thing.done():
            return False
        case asyncio.Future():
            return not thing._log_traceback  # noqa: SLF001  # else it logs its exception
        case CoroutineType():
            return thing.cr_frame is None
        case GeneratorType():
            return thing.gi_frame is None
        case asyncio.AbstractEventLoop():
            return thing.is_closed()
        case asyncio.SubprocessTransport():
            return False
    return isinstance(thing, asyncio.BaseTransport | socket.socket)  # the system closes it


def _end() -> None:
    """The process ends. A second Ctrl-C that comes only now ends it at once, too, and is no traceback."""

    def leave(number: int, frame: FrameType | None) -> None:
        _leave(INTERRUPTED)

    signal.signal(signal.SIGINT, leave)
    _spare_the_search()


def _spare_the_search() -> None:
    """Keep the interpreter from its last searches for garbage, if they find only memory, which the system takes back
    anyway. They take most of the time between the end of the app and that of the process: docs/adr/performance.md."""
    with contextlib.suppress(Exception):  # from code of others, such as a property; then the search takes place
        if only_memory(gc.get_objects()):
            gc.freeze()


def _leave(code: int) -> None:
    """End the process now, without waiting for threads or handlers that hang."""
    flush_outputs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(TimeoutError, AttributeError):  # nobody reads it, or it never was
            flush_stream(stream)
    os._exit(code)
