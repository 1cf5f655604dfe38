"""The test harness: runs an app in virtual time with a broker in memory. Ten devices with one reading a minute pass
a whole day in a second or two. Handlers that follow a script fail, hang or answer there."""

import asyncio
import contextvars
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from leadsman.core.adapters.wires import WIRES, Wires
from leadsman.core.app import App
from leadsman.core.loop.durations import Duration, seconds
from leadsman.core.mqtt.answers import Json
from leadsman.core.question import Question
from leadsman.core.registration.setup import Adapters
from leadsman.core.resilience.catalogue import CATALOGUE, Catalogue
from leadsman.core.settings.sections import OutboxSettings
from leadsman.core.settings.sources import Where
from leadsman.errors import NotInstalled, SessionDiffers
from leadsman.testing.broker import MemoryBroker
from leadsman.testing.loop import START, VirtualLoop

A = TypeVar("A")


class Harness:
    """Runs `app` inside a ``with`` block and stops it at the end. Time passes only in `run`.

    Each harness starts with the app as its module declares it, and restores it at the end. So one app can be used by
    many harnesses, one after the other, each with its own settings. Neither the environment of the process nor a file
    is read, and only the state directory is written. Readings wait for the broker in memory, unless the settings have
    ``outbox.durability``, and the app is never a node among others, whatever ``[standby]`` sets.

    Args:
        app: the app to run.
        settings: values by dotted path, such as ``{"boiler.port": "/dev/x"}``. None takes the defaults, or what the
            test itself passed to `App.load`.
        adapters: adapters that replace those of the app; the same forms as ``App(adapters=…)``.
        twins: True replaces the app's adapters by its twins. Or twins of the test's own: adapters, or a function of
            the settings that makes them; one for each adapter of the app.
        sessions: files that ``leadsman record`` wrote; one, or several that begin together. The adapters of
            leadsman in the app get what was recorded, instead of a device. The time starts when the recording did.
        dry_run: run the app as ``leadsman run --dry-run`` does; see `App.rehearse`.
        state_directory: the directory for stores and for ``keep_state=True``. None makes one and removes it at the
            end. Give the same directory to two harnesses to test a restart.
        environment: variables that the app sees instead of those of the process.
        wall: epoch seconds at the start. None: when the recording began, or 2026-01-01 without one.
        patience: real seconds after which a blocked thread, or a child process, no longer stops the time.
    """

    def __init__(
        self,
        app: App,
        *,
        settings: Mapping[str, object] | None = None,
        adapters: Adapters | Callable[[Any], Adapters] | None = None,
        twins: bool | Adapters | Callable[[Any], Adapters] = False,
        sessions: Path | str | Sequence[Path | str] = (),
        dry_run: bool = False,
        state_directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        wall: float | None = None,
        patience: float = 5.0,
    ) -> None:
        self.app = app
        self.broker = MemoryBroker()
        self.player = _player_of(sessions)
        """Plays the sessions; None without one."""
        if wall is None:
            wall = START if self.player is None else self.player.began
        self.loop = VirtualLoop(wall, patience)
        self.left_behind = 0
        """After the end: the number of calls that did not end."""
        self.stopped_in = 0.0
        """After the end: the virtual seconds from the request to stop to the end."""
        self._environment = environment or {}
        loaded_from = app.setup.loaded_from if settings is None and environment is None else None
        self._where = loaded_from or Where.nowhere(settings or {}, self._environment)
        self._adapters = adapters
        self._twins = twins
        self._dry_run = dry_run
        self._state_directory = state_directory
        self._app = ExitStack()
        self._serving: asyncio.Task[int] | None = None

    def __enter__(self) -> Self:
        try:
            self._app.enter_context(self.app.unloaded(self._adapters))
            setup = self.app.setup
            setup.sections = setup.sections._replace(outbox=OutboxSettings("memory"))  # unless the settings have it
            self.app.load(self._where)
            setup.share_nothing()  # the broker in memory has one client
            if self._dry_run:
                self.app.rehearse(None if isinstance(self._twins, bool) else self._twins)
            elif self._twins is not False:
                self.app.setup.use_twins(None if self._twins is True else self._twins)
            self._serving = self.loop.create_task(self._served(), context=self._context())
        except BaseException:
            self._app.close()
            self.loop.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            for _ in range(3):  # a stubborn handler swallows some of them
                for task in asyncio.all_tasks(self.loop):
                    task.cancel()
                self.loop.run_until_complete(asyncio.sleep(0.01))
            self.loop.close()
            self._app.close()

    def _context(self) -> contextvars.Context:
        """A context of its own, in which adapters get what was recorded."""
        context = own_context()
        if self.player is not None:
            context.run(WIRES.set, self.player)
        return context

    async def _served(self) -> int:
        directory = self._state_directory
        if directory is None:
            directory = Path(
                self._app.enter_context(TemporaryDirectory(prefix="leadsman-test-", ignore_cleanup_errors=True))
            )
        return await self.app.serve(
            self.broker.connect, environment={**self._environment, "STATE_DIRECTORY": str(directory)}
        )

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.loop.time()

    def run(self, duration: Duration) -> None:
        """Let virtual time pass, and let calls end that began at its last moment. If the app has ended with an
        error, this raises it, once.

        Raises:
            SessionDiffers: the app asked a device for something else than its session has.
        """
        self.loop.run_until_complete(_passed(seconds(duration)))
        if self.player is not None and self.player.difference is not None:
            raise self.player.difference
        serving = self._serving
        if serving is not None and serving.done():
            self._serving = None if serving.exception() is not None else serving
            serving.result()

    def at(self, when: Duration, action: Callable[[], object]) -> None:
        """Call `action` at `when` seconds after the start of the app."""
        self.loop.call_at(seconds(when), action)

    def adapter(self, kind: type[A], name: str | None = None) -> A:
        """Return the adapter, or its twin, that handlers get for `kind`; see `App.adapter`."""
        return self.app.adapter(kind, name)

    def stop(self) -> None:
        """Stop the app and wait for its end. The end of ``with`` does this too."""
        serving, self._serving = self._serving, None
        if serving is not None:
            self.loop.run_until_complete(asyncio.sleep(0))  # an app that has not begun cannot be asked to stop
            asked = self.now
            self.app.stop()
            try:
                self.left_behind = self.loop.run_until_complete(serving)
            finally:
                self._app.close()
            self.stopped_in = self.now - asked

    def kill(self) -> None:
        """End the app without its last steps: it does not publish that it stops, and does not write stores and state.
        Handlers are cancelled."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            self.loop.run_until_complete(asyncio.wait([serving]))
            self._app.close()

    def states(self, device: str) -> list[Json]:
        """The readings of a device that reached the broker, decoded from JSON, in order."""
        return [delivered.json for delivered in self.broker.messages(self.app.topics.state(device))]

    def errors(self, device: str) -> list[Json]:
        """The messages on the error topic of a device, decoded from JSON."""
        return [delivered.json for delivered in self.broker.messages(self.app.topics.device_error(device))]

    def faults(self) -> list[Json]:
        """The messages on the app's own error topic, decoded from JSON."""
        return [delivered.json for delivered in self.broker.messages(self.app.topics.error)]

    def availability(self, device: str) -> list[str]:
        """``online`` and ``offline`` of a device, in order, without repetitions."""
        said = [delivered.payload.decode() for delivered in self.broker.messages(self.app.topics.availability(device))]
        return [word for word, _ in groupby(said)]

    def status(self) -> Json:
        """The latest status document that the broker holds."""
        return self.broker.retained[self.app.topics.status].json

    def statuses(self, device: str) -> list[str]:
        """The status of a device in each status document so far, without repetitions."""
        documents = [delivered.json for delivered in self.broker.messages(self.app.topics.status)]
        said = [
            document["devices"][device]["status"] for document in documents if device in document.get("devices", {})
        ]
        return [word for word, _ in groupby(said)]


def own_context() -> contextvars.Context:
    """A context in which ``execute_with_retry`` does not read the environment of the process."""
    context = contextvars.copy_context()
    context.run(CATALOGUE.set, Catalogue())
    return context


class _Player(Wires, Protocol):
    """Plays sessions to the adapters of an app."""

    began: float
    """When the first one was recorded, epoch seconds."""
    difference: SessionDiffers | None
    """What the app asked a device for that its session has not."""


_PLAYER: "Question[Callable[[Sequence[Path | str]], _Player]]" = Question("player")


def _player_of(sessions: Path | str | Sequence[Path | str]) -> "_Player | None":
    files = (sessions,) if isinstance(sessions, str | Path) else tuple(sessions)
    if not files:
        return None
    play = _PLAYER.answer()  # a test without sessions does not wait for it
    if play is None:
        raise NotInstalled("this leadsman plays no sessions; leave out sessions, or install a whole one")
    return play(files)


async def _passed(duration: float) -> None:
    await asyncio.sleep(duration)
    for _ in range(20):
        await asyncio.sleep(0)


class _Fail:
    def __init__(self, times: int, error: Exception) -> None:
        self.times = times
        self.error = error


class _Hang:
    def __init__(self, duration: float, *, stubborn: bool) -> None:
        self.duration = duration
        self.stubborn = stubborn


def fail(times: int = 1, error: Exception | None = None) -> _Fail:
    """A step that fails this many calls, with `OSError` unless another error is given."""
    return _Fail(times, error or OSError("scripted"))


def hang(duration: Duration | None = None, *, stubborn: bool = False) -> _Hang:
    """A step that does not answer for `duration`, or never. A `stubborn` one ignores two cancellations: the
    timeout's and the shutdown's."""
    return _Hang(math.inf if duration is None else seconds(duration), stubborn=stubborn)


def garbage(size: int, seed: int = 0) -> bytes:
    """Random bytes that follow no protocol. A seed always gives the same bytes."""
    return random.Random(seed).randbytes(size)


class Scripted:
    """A handler that follows a script, one step per call, and repeats the last step for ever.

    A step is a result to return, an exception to raise, `fail` or `hang`. `calls` holds the virtual time of each call.
    """

    def __init__(self, *steps: object) -> None:
        self._steps = [step for given in steps for step in _unfolded(given)]
        self.calls: list[float] = []

    async def __call__(self) -> Any:
        """Follow the next step."""
        step = self._steps[min(len(self.calls), len(self._steps) - 1)]
        self.calls.append(asyncio.get_running_loop().time())
        if isinstance(step, _Hang):
            await _hung(step)
            return None
        if isinstance(step, BaseException):
            raise step
        return step


class Outages:
    """A handler that returns `reading` except during outages, which are pairs of start and end in virtual seconds.

    `calls` holds the time of each call, `answered` the times of those that succeeded.
    """

    def __init__(self, reading: object, outages: Iterable[Sequence[Duration]], error: Exception | None = None) -> None:
        self._reading = reading
        self._outages = [(seconds(start), seconds(end)) for start, end in outages]
        self._error = error or OSError("the device is away")
        self.calls: list[float] = []
        self.answered: list[float] = []

    async def __call__(self) -> Any:
        """Answer, or raise during an outage."""
        now = asyncio.get_running_loop().time()
        self.calls.append(now)
        if any(start <= now < end for start, end in self._outages):
            raise self._error
        self.answered.append(now)
        return self._reading() if callable(self._reading) else self._reading


def _unfolded(step: object) -> list[object]:
    return [step.error] * step.times if isinstance(step, _Fail) else [step]


async def _hung(step: _Hang) -> None:
    loop = asyncio.get_running_loop()
    end, swallowed = loop.time() + step.duration, 0
    while (left := end - loop.time()) > 0:
        try:
            await asyncio.sleep(min(left, 86_400.0))
        except asyncio.CancelledError:
            swallowed += 1
            if not step.stubborn or swallowed > 2:
                raise
