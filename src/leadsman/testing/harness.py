"""An app under virtual time, with a broker in memory: ten devices, one reading a minute, a whole day, in a second or two."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeVar

from leadsman.app import Adapters, App
from leadsman.resilience.catalogue import CATALOGUE, Catalogue
from leadsman.settings.sources import Where
from leadsman.testing.broker import MemoryBroker
from leadsman.testing.loop import START, VirtualLoop
from leadsman.timing.durations import Duration, seconds

A = TypeVar("A")


class Harness:
    """Serves `app` from ``with`` on, and stops it at the end. Time passes only in `run`.

    Each harness begins with the app as its module declares it, and leaves it so: one app serves many harnesses, one after the
    other, each with settings of its own. Neither the environment of the process nor a file is read, and nothing is written
    but in the state directory.

    Args:
        app: what to run.
        settings: of the app, by dotted path, such as ``{"boiler.port": "/dev/x"}``. None takes the defaults, or what the test
            itself gave to `App.load`.
        adapters: instead of those of the app; as ``App(adapters=…)`` takes them.
        twins: True takes the app's twins instead of its adapters. Or twins of the test's own: adapters, or a function of the
            settings that makes them; one for each adapter of the app.
        dry_run: run it as ``leadsman run --dry-run`` does, see `App.rehearse`.
        state_directory: what stores and ``keep_state=True`` are kept in. None makes one, and removes it at the end. Give the
            same to two harnesses to test a restart.
        environment: variables that the app sees instead of those of the process.
        wall: epoch seconds at the start.
        patience: real seconds before a blocked thread no longer holds up the time.
    """

    def __init__(
        self,
        app: App,
        *,
        settings: Mapping[str, Any] | None = None,
        adapters: Adapters | Callable[[Any], Adapters] | None = None,
        twins: bool | Adapters | Callable[[Any], Adapters] = False,
        dry_run: bool = False,
        state_directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        wall: float = START,
        patience: float = 5.0,
    ) -> None:
        self.app = app
        self.broker = MemoryBroker()
        self.loop = VirtualLoop(wall, patience)
        self.left_behind = 0
        """After the end: calls that would not end."""
        self.stopped_in = 0.0
        """After the end: virtual seconds from the request to stop to the end."""
        self._environment = environment or {}
        loaded_from = app.loaded_from if settings is None and environment is None else None
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
            self.app.load(self._where)
            if self._dry_run:
                self.app.rehearse(None if isinstance(self._twins, bool) else self._twins)
            elif self._twins is not False:
                self.app.use_twins(None if self._twins is True else self._twins)
            self._serving = self.loop.create_task(self._served(), context=_without_the_process())
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

    def _served(self) -> Coroutine[Any, Any, int]:
        directory = self._state_directory
        if directory is None:
            directory = Path(
                self._app.enter_context(TemporaryDirectory(prefix="leadsman-test-", ignore_cleanup_errors=True))
            )
        return self.app.serve(self.broker.connect, environment={**self._environment, "STATE_DIRECTORY": str(directory)})

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.loop.time()

    def run(self, duration: Duration) -> None:
        """Let virtual time pass, and let end what began at its last moment. Raises what the app raised, should it have ended."""
        self.loop.run_until_complete(_passed(seconds(duration)))
        if self._serving is not None and self._serving.done():
            self._serving.result()

    def at(self, when: Duration, action: Callable[[], object]) -> None:
        """Do something later, `when` seconds after the start of the app."""
        self.loop.call_at(seconds(when), action)

    def adapter(self, kind: type[A], name: str | None = None) -> A:
        """The adapter, or the twin, that handlers get who ask for `kind`; see `App.adapter`."""
        return self.app.adapter(kind, name)

    def stop(self) -> None:
        """Stop the app and wait for its end; done by the end of ``with`` too."""
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
        """End the app without its last steps: no goodbye, and stores and state are not written. Handlers are cancelled."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            self.loop.run_until_complete(asyncio.wait([serving]))
            self._app.close()

    def states(self, device: str) -> list[Any]:
        """The readings of a device that reached the broker, as JSON, in order."""
        return [delivered.json for delivered in self.broker.messages(self.app.topics.state(device))]

    def errors(self, device: str) -> list[Any]:
        """What was told on the error topic of a device."""
        return [delivered.json for delivered in self.broker.messages(self.app.topics.device_error(device))]

    def faults(self) -> list[Any]:
        """What was told on the app's own error topic."""
        return [delivered.json for delivered in self.broker.messages(self.app.topics.error)]

    def availability(self, device: str) -> list[str]:
        """``online`` and ``offline`` of a device, in order, repetitions left out."""
        said = [delivered.payload.decode() for delivered in self.broker.messages(self.app.topics.availability(device))]
        return [word for word, before in zip(said, [None, *said], strict=False) if word != before]

    def status(self) -> Any:
        """The latest status document that the broker holds."""
        return self.broker.retained[self.app.topics.status].json

    def statuses(self, device: str) -> list[str]:
        """The status of a device in each document so far, repetitions left out."""
        documents = [delivered.json for delivered in self.broker.messages(self.app.topics.status)]
        said = [
            document["devices"][device]["status"] for document in documents if device in document.get("devices", {})
        ]
        return [word for word, before in zip(said, [None, *said], strict=False) if word != before]


def _without_the_process() -> contextvars.Context:
    """A context in which ``execute_with_retry`` does not read the environment of the process."""
    context = contextvars.copy_context()
    context.run(CATALOGUE.set, Catalogue())
    return context


async def _passed(duration: float) -> None:
    await asyncio.sleep(duration)
    for _ in range(20):
        await asyncio.sleep(0)
