"""The app's own tasks, when one of them dies."""

import asyncio
import itertools

from leadsman import App
from leadsman.testing import Scripted

READING = {"t": 21.5}


def test_a_part_of_the_app_that_dies_is_told_and_started_again_ever_more_slowly(harness, monkeypatch):
    from leadsman.core.monitoring.heartbeat import Heartbeat

    deaths = []

    async def dying(heartbeat):
        deaths.append(asyncio.get_running_loop().time())
        raise ZeroDivisionError

    monkeypatch.setattr(Heartbeat, "run", dying)
    app = App("app")
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run("5m")

    assert running.faults()[0]["where"] == "the heartbeat"
    assert len(running.states("d")) == 31
    waits = [after - before for before, after in itertools.pairwise(deaths)]
    assert waits[0] < 2 < waits[3] < 40
    assert 7 <= len(deaths) <= 11
