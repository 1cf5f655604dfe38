"""Starts and stops the polls of an app. See `leadsman.runtime.poll_runner` for one of them.

One heap holds everything that is due; a poll is a task only while it runs.
"""

import asyncio
from collections.abc import Callable, Mapping

from leadsman.errors import UnknownDevice
from leadsman.loop.slots import shifts
from leadsman.mqtt.answers import Json
from leadsman.registration.telemetry import Telemetry
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.poll_runner import PollContext, PollRunner
from leadsman.runtime.publisher import PublisherContext, PublishQueue
from leadsman.runtime.runner import Answer
from leadsman.text import clean


class Poller:
    """Polls all handlers of an app.

    Args:
        context: the environment, the topics, and how to send.
        resources: threads and bus locks, shared with everything else that calls handlers.
        end_app: ends the app, because a device that must work does not.
    """

    def __init__(
        self, context: PublisherContext, resources: SharedResources, end_app: Callable[[str, BaseException], None]
    ) -> None:
        self.publishing = context
        """What its runners publish with."""
        self._context = PollContext(
            context.environment, context, resources, PublishQueue(), asyncio.get_running_loop(), end_app
        )
        self._runners: list[PollRunner] = []

    def add(self, telemetry: Telemetry) -> PollRunner:
        """Make a handler ready to be polled."""
        runner = PollRunner(telemetry, self._context)
        self._runners.append(runner)
        return runner

    def start(self, pending: Mapping[str, float]) -> None:
        """Start all polls. `pending`: seconds until the next attempt, of handlers that waited for one when the app
        ended."""
        units: dict[str, float] = {}
        for runner in self._runners:
            unit, interval = runner.telemetry.unit, runner.telemetry.interval
            if unit is not None and interval is not None:
                units[unit] = min(interval, units.get(unit, interval))
        spread = shifts(units)
        for runner in self._runners:
            unit = runner.telemetry.unit
            runner.start(pending.get(runner.name, 0.0), 0.0 if unit is None else spread[unit])

    async def stop(self, grace: float) -> int:
        """Cancel what runs and wait at most `grace` seconds for it. Returns how many calls are still alive."""
        tasks = [runner.task for runner in self._runners if runner.task is not None]
        for task in tasks:
            task.cancel()
        pending: set[asyncio.Task[None]] = set()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=grace)
        for runner in self._runners:
            runner.stopped()
        return len(pending)


def ask(polls: Mapping[str, PollRunner], name: str, answer: Answer, request: Json, text: bytes) -> None:
    """Poll a device now; see `PollRunner.ask`.

    Args:
        polls: those of the app.
        name: the device.
        answer: called with the result.
        request: what was sent, decoded, without its transaction. Empty text and an empty object ask for the poll that
            the schedule makes. A handler that takes no payload is called as always.
        text: the same as it was sent.

    Raises:
        UnknownDevice: no device of that name is polled.
        PayloadError: the handler does not take this payload.
        PollRefused: it must not be polled now.
    """
    runner = polls.get(name)
    if runner is None or runner.telemetry.job:
        raise UnknownDevice(f"there is no device {clean(name)!r} that can be polled")
    takes = runner.telemetry.request
    if takes is None or request in ("", {}):
        runner.ask(answer)
    else:
        from leadsman.registration.command import convert_payload  # only handlers that take a payload pay for it

        runner.ask(answer, convert_payload(takes, request, text))
