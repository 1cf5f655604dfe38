"""An app under virtual time, with a broker in memory: ten devices, one reading a minute, a whole day, in a second or two."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from leadsman.app import App
from leadsman.durations import Duration, seconds
from leadsman.settings.sources import Where
from leadsman.testing.broker import MemoryBroker
from leadsman.testing.loop import START, VirtualLoop


class Harness:
    """Serves `app` from ``with`` on, and stops it at the end. Time passes only in `run`.

    Args:
        app: what to run.
        settings: of the app, by dotted path, such as ``{"boiler.port": "/dev/x"}``. Environment and files are not read, so
            that a test gives the same everywhere; an app that is loaded already stays as it is.
        wall: epoch seconds at the start.
        patience: real seconds before a blocked thread no longer holds up the time.
        dry_run: take the app's twins instead of its adapters.
    """

    def __init__(
        self,
        app: App,
        *,
        settings: Mapping[str, Any] | None = None,
        wall: float = START,
        patience: float = 5.0,
        dry_run: bool = False,
    ) -> None:
        self.app = app
        self._dry_run = dry_run
        self._settings = settings or {}
        self.broker = MemoryBroker()
        self.loop = VirtualLoop(wall, patience)
        self.left_behind = 0
        """After the end: calls that would not end."""
        self.stopped_in = 0.0
        """After the end: virtual seconds from the request to stop to the end."""
        self._serving: asyncio.Task[int] | None = None

    def __enter__(self) -> Self:
        self.app.load(Where.nowhere(self._settings))
        if self._dry_run:
            self.app.rehearse()
        self._serving = self.loop.create_task(self.app.serve(self.broker.connect))
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

    def stop(self) -> None:
        """Stop the app and wait for its end; done by the end of ``with`` too."""
        serving, self._serving = self._serving, None
        if serving is not None:
            asked = self.now
            self.app.stop()
            self.left_behind = self.loop.run_until_complete(serving)
            self.stopped_in = self.now - asked

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


async def _passed(duration: float) -> None:
    await asyncio.sleep(duration)
    for _ in range(20):
        await asyncio.sleep(0)
