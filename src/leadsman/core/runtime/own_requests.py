"""Requests of the app's own code about a device: a poll, such as the one that reads it back after a write; and to mark
it as unavailable until its next reading.

Such a poll is a poll on request: the same runner makes it, under the same guards. But nobody waits for an answer, so
what a person is asked to do later is done later here: a poll follows the commands of the device, the poll under way and
the handler's ``throttle``, and several requests before it begins are one.

A device that is held, whose circuit is open, or that asked for a pause is not polled. The code goes on, since what it
wrote is written; the log has the refusal of the first of such requests.
"""

import asyncio
import logging
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from leadsman.core.loop.threads import call_on
from leadsman.core.readings.reading import Reading
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.poll_runner import PollRunner
from leadsman.core.runtime.runner import Runners
from leadsman.core.text import clean, describe, log_fields
from leadsman.errors import InvalidValue, PollRefused, UnknownDevice, two_parts

if TYPE_CHECKING:
    from leadsman.core.runtime.found_devices import FoundDevice, FoundDevices

logger = logging.getLogger("leadsman")


class OwnRequests:
    """Takes the requests of one app.

    Args:
        polls: the polled devices and side jobs, by name.
        runners: all that run.
        environment: the clock, and whether the app ends.
        loop: the event loop of the app.
        elsewhere: devices that another node of a cluster may poll, which gets the request if it is made there.
    """

    def __init__(
        self,
        polls: Mapping[str, PollRunner],
        runners: Runners,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        elsewhere: Container[str],
    ) -> None:
        self._polls = polls
        self._runners = runners
        self._environment = environment
        self._loop = loop
        self._found: FoundDevices | None = None
        self._elsewhere = elsewhere
        self._wanted: set[str] = set()
        """Devices whose poll has not begun."""
        self._refused: set[str] = set()
        """Devices whose last request was refused."""

    def leave(self, name: str, reason: str) -> None:
        """Mark a device as unavailable. May be called from any thread.

        Raises:
            UnknownDevice: no device of that name gives readings.
        """
        reader = self._runners.readers.get(name)
        if reader is None or (name in self._polls and self._polls[name].telemetry.job):
            raise UnknownDevice(f"there is no device {clean(name)!r} that gives readings; it has no availability")
        call_on(self._loop, reader.leave, reason)  # at once: before the poll ends whose handler calls this

    def find(self, found: "FoundDevices") -> None:
        """Take devices that handlers find; without this, no handler may find any.

        Raises:
            ConfigurationError: another part takes them.
        """
        if self._found is not None:
            raise two_parts(type(self._found).__module__, type(found).__module__, "take the devices that handlers find")
        self._found = found

    def device(self, finder: str, name: str, fields: Mapping[str, object] | None, title: str | None) -> "FoundDevice":
        """A device that a handler has found. May be called from any thread.

        Raises:
            InvalidValue: the handler may find none, or a field is invalid; so `InvalidType`.
        """
        if self._found is None:
            raise InvalidValue(f"{finder!r} may find no devices; write finds=Finds(…) at its registration")
        return self._found.device(finder, name, fields, title)

    def poll(self, name: str) -> None:
        """Ask for a poll of a device, and return at once. May be called from any thread.

        Raises:
            UnknownDevice: no device of that name is polled.
        """
        runner = self._polls.get(name)
        if runner is None and name in self._elsewhere:
            return
        if runner is None or runner.telemetry.job:
            raise UnknownDevice(
                f"there is no device {clean(name)!r} that can be polled; "
                f"register one with @app.telemetry({clean(name)!r}, …)"
            )
        self._loop.call_soon_threadsafe(self._want, runner)

    def _want(self, runner: PollRunner) -> None:
        if runner.name not in self._wanted:
            self._wanted.add(runner.name)
            self._begin(runner)

    def _begin(self, runner: PollRunner) -> None:
        """Begin the poll, or come back when what it follows has ended."""
        if self._environment.stopping.is_set():
            return
        if (under_way := self._under_way(runner)) is not None:
            under_way.add_done_callback(lambda _: self._begin(runner))
            return
        wait = runner.throttled_until - self._environment.clock.monotonic()
        if wait > 0:
            self._loop.call_later(wait, self._begin, runner)
            return
        self._wanted.discard(runner.name)
        try:
            runner.ask(_no_answer)
        except PollRefused as refused:
            if runner.name not in self._refused:
                about = log_fields("poll refused", runner.name)
                logger.info("%s: the app asked for a poll: %s", runner.name, describe(refused), extra=about)
            self._refused.add(runner.name)
        else:
            self._refused.discard(runner.name)

    def _under_way(self, runner: PollRunner) -> asyncio.Task[None] | None:
        """The commands or the poll of the device that run now."""
        queue = self._runners.commands.get(runner.name)
        return runner.task if queue is None or queue.task is None else queue.task


def _no_answer(result: Reading | BaseException | None) -> None:
    """Nobody waits: the reading is published, and a failure reported, as of every poll."""
