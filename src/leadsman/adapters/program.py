"""The adapter for programs of this machine, such as ``vcgencmd``: it runs one, and gives what it writes to stdout.

A program has a time limit and a size limit. What goes wrong becomes an error of leadsman, whose class decides whether a
retry may help. Whatever happens, no process of the program is left behind by its call.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop import threads
from leadsman.core.loop.durations import Duration, human, positive_seconds
from leadsman.core.text import clean, without_secret_lines
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
    TransientError,
)

MAX_OUTPUT_BYTES = 64 * 1024
"""Of the output of one call, unless ``most_bytes=`` names another number."""
MAX_LIMIT_BYTES = 64 * 1024 * 1024
"""Bytes that ``most_bytes=`` may allow."""
MAX_PROCESSES = 8
"""Programs that run at once, unless ``most_processes=`` names another number."""
_KEPT_ERRORS = 4096
"""The last bytes of stderr that are kept."""
_SHOWN = 200
"""Characters of the last line of stderr that an error shows."""
_DYING = 1.0
"""Seconds that a killed process may take to end. One that waits for a disk or a driver can take longer."""
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""Why a program cannot be started just now (fork(2), execve(2)); each other reason is permanent."""


class ProgramFailed(TransientError):
    """The program ended with an error. A retry may help.

    Attributes:
        code: its exit code, 1 to 255; or the number of the signal that ended it, negative.
        output: what it had written to stdout, at most `most_bytes`. Some programs write all that they should and report
            in bits of their code how it is, as smartctl(8) does. What is not UTF-8 is replaced.
    """

    def __init__(self, message: str, code: int, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.output = output


class OutputTooLong(PermanentError):
    """The program wrote more than allowed. The same call would bring as much again."""


class Finished(NamedTuple):
    """How a program ended, and what it wrote."""

    code: int
    output: bytes
    """No more than one piece above the limit."""
    errors: bytes
    """The end of stderr."""


Run = Callable[[str, tuple[str, ...]], Awaitable[Finished]]
"""Runs a program with its arguments. Raises a `DeviceError` if that cannot start, or does not end in time."""


class Programs:
    """Runs programs, without a shell.

    A program gets no input, the environment of the app with ``LC_ALL=C.UTF-8``, so that numbers have a point, and a
    session of its own, whose processes end with the call.

    Args:
        timeout: for one call, with the wait for others to end; then the program and its children are killed.
        most_bytes: of the output of one call; 1 to `MAX_LIMIT_BYTES`.
        most_processes: how many programs run at once; others wait. 1 to 1,000.

    Raises:
        InvalidValue: at construction.
    """

    def __init__(
        self, *, timeout: Duration = 10.0, most_bytes: int = MAX_OUTPUT_BYTES, most_processes: int = MAX_PROCESSES
    ) -> None:
        self._timeout = positive_seconds(timeout, "timeout")
        self._most_bytes = _check_number("most_bytes", most_bytes, MAX_LIMIT_BYTES)
        self._most_processes = _check_number("most_processes", most_processes, 1000)
        self._slots = asyncio.Semaphore(self._most_processes)

    async def __aenter__(self) -> Self:
        """Nothing is opened."""
        self._slots = asyncio.Semaphore(self._most_processes)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing is open: each call ends its program."""

    async def probe(self) -> None:
        """Nothing to reopen, whatever a program does."""

    async def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end, and return what it wrote to stdout.

        Args:
            program: a name in ``$PATH``, or a path.
            arguments: each as it is; there is no shell, so nothing in them is expanded or needs quotes.

        Raises:
            PermanentError: there is no such program, or it may not be executed; `OutputTooLong` is one, too.
            ProgramFailed: its exit code is not 0. The message has the last line of stderr, and `output` what it wrote.
                A retry may help.
            DeviceTimeout: it did not end in time, or what it has started kept its output open. A retry may help.
            DeviceUnavailable: the system is out of processes, memory or descriptors. A retry may help.
            GarbledData: the output is not UTF-8. A retry may help.
            InvalidType, InvalidValue: an argument is no text, or has a zero byte; or the program has no name.
        """
        for word in (program, *arguments):
            if not isinstance(word, str):
                raise InvalidType(f"an argument of {program!r} is {word!r}; write text, each apart: run('echo', 'a')")
            if "\0" in word:
                raise InvalidValue(f"an argument of {program!r} has a zero byte, which no program can receive")
        if not program:
            raise InvalidValue("the program has no name; write one, such as vcgencmd")
        code, output, errors = await wire_of("program", "", lambda: self._run)(program, arguments)
        if len(output) > self._most_bytes:
            raise OutputTooLong(f"{program} wrote more than {self._most_bytes:,} bytes; see most_bytes=")
        if code != 0:
            message = f"{program} {_end_of(code)}{_last_line(errors)}"
            raise ProgramFailed(message, code, output.decode(errors="replace"))
        try:
            return output.decode()
        except UnicodeDecodeError as error:
            raise GarbledData(f"{program} wrote what is not UTF-8, from byte {error.start} on") from None

    async def _run(self, program: str, arguments: tuple[str, ...]) -> Finished:
        child = _Child(self._most_bytes)
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                return await _output(program, arguments, child)
        except TimeoutError:
            if child.ended:
                raise DeviceTimeout(
                    f"{program} ended, but a process that it has started kept its output open for "
                    f"{human(self._timeout)}; send the output of that one elsewhere: >/dev/null 2>&1"
                ) from None
            raise DeviceTimeout(f"{program} did not end within {human(self._timeout)}; see timeout=") from None
        except OSError as error:
            reason = _reason(program, error)
            kind = DeviceUnavailable if error.errno in _PASSING else PermanentError
            raise kind(f"{program} cannot be started: {reason}") from error


class _Child(asyncio.SubprocessProtocol):
    """The output of a running program."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.output = bytearray()
        self.errors = b""
        self.exited = asyncio.Event()
        self.enough = asyncio.Event()
        """Set when all is read, or too much."""
        self.ended = False
        """Whether the process ended by itself; one that it has started may still have its pipes."""
        self._killed = False
        self.all_read = False
        """Whether the process has ended, and nobody has its pipes."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.errors = (self.errors + data)[-_KEPT_ERRORS:]
        elif not self.enough.is_set():
            self.output += data
            if len(self.output) > self._most:
                self.enough.set()

    def process_exited(self) -> None:
        self.ended = not self._killed
        self.exited.set()

    def killed(self) -> None:
        """What comes now is the end of a killed process."""
        self._killed = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.all_read = True
        self.enough.set()


async def _output(program: str, arguments: tuple[str, ...], child: _Child) -> Finished:
    # A task of its own, since asyncio does not bear a cancellation here: it ends the program alone, not what that has
    # started, and may then wait for ever.
    starting = asyncio.create_task(_start(child, program, arguments))
    try:
        transport = await asyncio.shield(starting)
        await child.enough.wait()
    finally:
        await asyncio.wait({starting})
        if starting.exception() is None:
            await _end(starting.result(), child)
    code = transport.get_returncode()
    return Finished(-signal.SIGKILL if code is None else code, bytes(child.output), child.errors)


async def _start(child: _Child, program: str, arguments: tuple[str, ...]) -> asyncio.SubprocessTransport:
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: child,
        program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    return transport


async def _end(transport: asyncio.SubprocessTransport, child: _Child) -> None:
    try:
        if not child.all_read:
            await _kill(transport.get_pid(), child)
    finally:
        transport.close()


async def _kill(group: int, child: _Child) -> None:
    """Kill a program and what it has started, stopped or not, and wait until the system has taken it back."""
    child.killed()
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended; or it runs as another user
        os.killpg(group, signal.SIGKILL)
    threads.count(+1)  # it dies in real time, for which a virtual clock waits
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DYING):
                await child.exited.wait()
    finally:
        threads.count(-1)


def _reason(program: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if shutil.which(program) is not None:
            return "the interpreter that its first line names does not exist"
        if len(words := program.split()) > 1:
            return f"there is no such program; give its arguments apart: run({', '.join(map(repr, words))})"
        if "/" in program:
            return "there is no such file; correct the path, in which ~ and * are not expanded"
        return "it is not installed, or not in $PATH; install it, or write its whole path"
    if isinstance(error, PermissionError):
        return "this user may not execute it; make it executable: chmod +x"
    return error.strerror or str(error)


def _end_of(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {-code}"


def _last_line(errors: bytes) -> str:
    lines = without_secret_lines(errors.decode(errors="replace")).split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {clean(last)[:_SHOWN]}" if last else ""


def _check_number(name: str, value: int, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidValue(f"{name} is {value!r}; it must be 1 to {most:,}")
    return value
