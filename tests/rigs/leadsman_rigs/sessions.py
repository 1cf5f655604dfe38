"""Records the sessions of apps, in virtual time and in real time, and writes them to files."""

import asyncio
import io
import time

from leadsman.core.adapters.wires import WIRES
from leadsman.extensions.sessions.mask import Mask
from leadsman.extensions.sessions.recorder import Recorder
from leadsman.testing import Harness, MemoryBroker
from leadsman.testing.loop import START


class Recording:
    """Records what an app does in a `Harness`, whose loop it learns."""

    def __init__(self, largest=10**9, mask=None, file=None):
        self.file = io.StringIO() if file is None else file
        self.harness = None
        self.recorder = Recorder(self.file, "house", self.clock, START, mask or Mask(), largest)
        self.before = None

    def clock(self):
        return 0.0 if self.harness is None else self.harness.now

    def wire(self, kind, name, make):
        between = make if self.before is None else lambda: self.before.wire(kind, name, make)
        return self.recorder.wire(kind, name, between)


def recorded(app, duration, sessions=(), **options):
    """The text of a session of an app, to which others may be played, and what it published."""
    recording = Recording(**options)
    harness = Harness(app, sessions=sessions)
    recording.before, harness.player = harness.player, None  # what plays them is recorded
    token = WIRES.set(recording)
    try:
        with harness:
            recording.harness = harness
            harness.run(duration)
            recording.recorder.end()
    finally:
        WIRES.reset(token)
    return recording.file.getvalue(), published(harness.broker)


def published(broker):
    """The readings and the availability that reached a broker."""
    return [(each.topic, each.payload) for each in broker.log if each.topic.endswith(("/state", "/availability"))]


def written(tmp_path, text, name="house.session"):
    path = tmp_path / name
    path.write_text(text)
    return path


def recorded_live(app, directory, until, **options):
    """The same in real time, until ``until(broker)`` is true."""
    file, broker = io.StringIO(), MemoryBroker()
    recorder = Recorder(file, app.name, time.monotonic, time.time(), Mask(**options))

    async def live():
        serving = asyncio.create_task(app.serve(broker.connect, environment={"STATE_DIRECTORY": str(directory)}))
        async with asyncio.timeout(60):
            while not until(broker):
                assert not serving.done()
                await asyncio.sleep(0.02)
        recorder.end()
        app.stop()
        await serving

    token = WIRES.set(recorder)
    try:
        asyncio.run(live())
    finally:
        WIRES.reset(token)
    return file.getvalue(), published(broker)


def contents(session):
    """What is in a session, without its times and the names of its wires."""
    return [(each.kind, each.n, each.what, each.data, each.more) for each in session.events]
