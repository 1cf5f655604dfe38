"""What a program asks of an app that it runs: a poll now, the trace, and notices."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from leadsman.errors import InvalidValue

if TYPE_CHECKING:
    from leadsman.monitoring.trace import Trace, TraceRow
    from leadsman.notices import Notice
    from leadsman.registration.injection import Handler


class LiveParts:
    """The parts of a running app that its program asks."""

    __slots__ = ("ask_poll", "listeners", "trace")

    def __init__(self) -> None:
        self.ask_poll: Callable[[str], None] | None = None
        """Asks for a poll of a device, while devices are polled."""
        self.listeners: list[tuple[type[Notice], Handler]] = []
        """The functions that get notices, each with the kind that it takes."""
        self.trace: Trace | None = None
        """The trace of the running app or of its last run, once there is something in it."""

    def end(self) -> None:
        """The app runs no more. Its trace stays."""
        self.ask_poll = None


class Live:
    """The methods of `App` that are about the running app."""

    name: str
    _live: LiveParts

    def poll(self, device: str) -> None:
        """Ask for a poll of a device, such as the one that reads it back after a write, and return at once. May be
        called from any thread.

        The reading is published whatever the publish rule says, and the schedule does not change. The poll follows the
        commands of the device that run or wait, and a poll under way, so that it reads what was written. Several
        requests before it begins are one poll; two such polls are at least the handler's ``throttle`` apart. A device
        that is held, whose circuit is open, or that asked for a pause is not polled, and the log says so.

        Raises:
            UnknownDevice: no device of that name is polled.
            InvalidValue: the app polls no device now, because it has not started, or has ended.
        """
        if self._live.ask_poll is None:
            raise InvalidValue(f"the app {self.name!r} polls no device now; call poll while it runs")
        self._live.ask_poll(device)

    def trace(self, handler: str | None = None, since: datetime | None = None) -> "list[TraceRow]":
        """The latest rows of the trace, of the running app or of its last run; see `leadsman.monitoring.trace`.

        Args:
            handler: return only rows of this device.
            since: return only rows from this time on; an aware datetime.
        """
        if self._live.trace is None:
            return []
        handlers = None if handler is None else frozenset((handler,))
        return self._live.trace.rows(handlers, 0.0 if since is None else since.timestamp())
