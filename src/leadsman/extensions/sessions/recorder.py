"""Writes down what goes over the wires of an app."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TextIO, TypeVar

from leadsman.core.adapters.wires import WireKind
from leadsman.core.loop.output import Output, descriptor_of, to_descriptor
from leadsman.core.text import describe
from leadsman.extensions.sessions.mask import Mask
from leadsman.extensions.sessions.session import MAX_FILE_BYTES, Event, ReplyShape, end, fields_of, head

T = TypeVar("T")
W = TypeVar("W")

MODULES: dict[WireKind, str] = {
    "serial": "leadsman.extensions.sessions.serial",
    "http": "leadsman.extensions.sessions.http",
    "bluetooth": "leadsman.extensions.sessions.bluetooth",
    "calendars": "leadsman.extensions.sessions.calls",
    "i2c": "leadsman.extensions.sessions.calls",
    "onewire": "leadsman.extensions.sessions.calls",
    "program": "leadsman.extensions.sessions.calls",
}
"""By the kind of a wire, the module that has both halves of it: ``RECORDED[kind](log, wire)`` and
``PLAYED[kind](lanes)``."""


class Recorder:
    """Records the wires of an app while it is set as `leadsman.core.adapters.wires.WIRES`. Threads may use it.

    Args:
        file: gets a line for each event at once. One that cannot be written ends the recording, and not the app.
        app: the name of the app.
        clock: monotonic seconds.
        wall: epoch seconds now.
        mask: hides what the file must not show.
        largest: bytes of the file, at which the recording ends.
    """

    def __init__(
        self, file: TextIO, app: str, clock: Callable[[], float], wall: float, mask: Mask, largest: int = MAX_FILE_BYTES
    ) -> None:
        self.events = 0
        """How many were written."""
        self.fault: str | None = None
        """Why the recording ended before its time, or None."""
        self._output: Output | None = None
        self._put = self._into(file)
        self._clock = clock
        self._mask = mask
        self._left = largest - 100  # for the end
        self._began = clock()
        self._exchanges = 0
        self._lock = threading.Lock()
        self._ended = False
        self._write(head(app, wall))

    def wire(self, kind: WireKind, name: str, make: Callable[[], W]) -> W:
        """A wire whose events are recorded."""
        recorded: W = import_module(MODULES[kind]).RECORDED[kind](WireLog(self, kind, name), make())
        return recorded

    def write(self, event: Event) -> int:
        """Write an event, now. Returns the number of its exchange, which is a new one if the event has none."""
        with self._lock:
            if event.n == 0:
                self._exchanges += 1
                event = event._replace(n=self._exchanges)
            if not self._ended:
                self._write(self._mask.of(event._replace(at=self._now())).as_line())
                self.events += not self._ended
        return event.n

    def end(self) -> None:
        """End the recording. What follows is not recorded."""
        with self._lock:
            if not self._ended:
                self._left += 100
                self._write(end(self._now()))
                self._ended = True
                if self._output is not None:
                    self._output.close()
                    self._check_room(self._output)

    def _now(self) -> float:
        return self._clock() - self._began

    def _write(self, line: str) -> None:
        size = len(line.encode())
        if size > self._left:
            self.fault = "the session has reached its largest size"
            line = end(self._now())
        self._left -= size
        self._put(line)
        if self._output is not None:
            self._check_room(self._output)
        self._ended = self.fault is not None

    def _check_room(self, output: Output) -> None:
        if output.left_out or (self._ended and not output.flush(0.0)):
            self.fault = "the session cannot be written: nobody reads it"

    def _into(self, file: TextIO) -> Callable[[str], object]:
        """A function that writes a line, and blocks nobody for long: whoever records looks at it with a pager, too."""
        handle = descriptor_of(file)
        write = file.write if handle is None else to_descriptor(handle)

        def put(line: str) -> None:
            try:
                write(line)
            except (OSError, ValueError) as error:  # the disk is full, or the reader has gone; the app goes on
                self.fault = f"the session cannot be written: {describe(error)}"

        if handle is None:
            return put
        self._output = Output(put)
        return self._output.put


class WireLog:
    """The events of one wire."""

    def __init__(self, recorder: Recorder, kind: str, name: str) -> None:
        self.name = name
        self._recorder = recorder
        self._wire = f"{kind} {name}".rstrip()

    def ask(self, what: str, data: bytes | None = None, **more: object) -> int:
        """The app does something. Returns the number of the exchange that this begins."""
        return self._recorder.write(Event(0.0, self._wire, 0, what, data, more))

    def answer(self, n: int, what: str, data: bytes | None = None, **more: object) -> None:
        """The device does something."""
        self._recorder.write(Event(0.0, self._wire, n, what, data, more))

    def fail(self, n: int, error: Exception) -> None:
        """The wire raises an error."""
        self.answer(n, "failed", **fields_of(error))

    @contextlib.contextmanager
    def exchange(self, what: str, data: bytes | None = None, **more: object) -> Iterator[int]:
        """The app does something in the block, which gets the number of the exchange. An error of the block ends it."""
        n = self.ask(what, data, **more)
        try:
            yield n
        except Exception as error:
            self.fail(n, error)
            raise

    def call(
        self, reply: ReplyShape[T], real: Callable[[], T], what: str, data: bytes | None = None, **more: object
    ) -> T:
        """Make a call that blocks, as a whole exchange, which ends with the reply or with the error."""
        with self.exchange(what, data, **more) as n:
            found = real()
        kept, fields = reply.kept(found)
        self.answer(n, reply.what, kept, **fields)
        return found
