"""What the start of discovery costs the readings of 1,000 devices, beside a start without it.

``python -m benchmarks.described PORT CONVENTION SPREAD`` is the job: 1,000 devices with six fields, read every two
seconds. It prints by how many seconds the first poll of a device, and a later one, was late at most, and ends.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.ear import Ear
from benchmarks.measures import ROOT, with_state
from benchmarks.rows import Row, note, written
from leadsman.testing import Mosquitto

DEVICES, INTERVAL, MEASURED = 1000, 2.0, 8.0
"""Seconds."""
FIELDS = 6
CONVENTIONS = {"off": "without discovery", "homeassistant": "with discovery"}
STARTS = {0.0: "first polls at once", INTERVAL: "first polls spread over the interval"}


def described(times: int) -> list[Row]:
    """Pairs of rows, without and with discovery."""
    note(f"discovery of {DEVICES:,} devices: {4 * times} times {MEASURED:.0f} s")
    rounds = [{each: _measured(*each) for each in _all()} for _ in range(times)]
    took = [figures["published"] for each in rounds for (_, on), figures in each.items() if on == "homeassistant"]
    rows = [Row(f"{DEVICES:,} devices described: all at the broker, after the first", ours=_ms(took), wanted="≤ 10 s")]
    for spread, on in _all():
        first, later = ([each[spread, on][which] for each in rounds] for which in ("first", "later"))
        name = f"… {STARTS[spread]}, {CONVENTIONS[on]}: the first reading of a device is late by at most"
        rows += [
            Row(name, ours=_ms(first), wanted="≤ 100 ms"),
            Row("… … a later one", ours=_ms(later), wanted="≤ 100 ms"),
        ]
    return rows


def _all() -> list[tuple[float, str]]:
    return [(spread, on) for spread in STARTS for on in CONVENTIONS]


def _ms(seconds: list[float]) -> str:
    return written(statistics.median(seconds) * 1e3, "ms")


def _measured(spread: float, on: str) -> dict[str, float]:
    """The figures of the job, and the seconds from the first to the last configuration that came."""
    with Mosquitto() as broker:
        ear = Ear(broker.port, ["homeassistant/#"])
        command = [sys.executable, "-m", "benchmarks.described", str(broker.port), on, str(spread)]
        job = subprocess.run(command, cwd=ROOT, env=with_state(), stdout=subprocess.PIPE, text=True, check=True)
        ear.close()
    figures: dict[str, float] = json.loads(job.stdout)
    if on != "off":
        times = [heard.at for heard in ear.heard]
        assert len(times) == DEVICES + 1
        figures["published"] = times[-1] - times[0]
    return figures


def _job(port: str, convention: str, spread: float) -> None:
    from pydantic import create_model

    from leadsman import App
    from leadsman.core.runtime.poll_runner import PollRunner
    from leadsman.core.runtime.poll_schedule import IntervalSchedule

    fields: Any = {f"value_{number}": (float, ...) for number in range(FIELDS)}
    air = create_model("Air", **fields)
    reading = air(**dict.fromkeys(fields, 21.5))

    async def read() -> Any:
        return reading

    read.__annotations__["return"] = air
    app = App("job", mqtt=f"mqtt://127.0.0.1:{port}", discovery=None if convention == "off" else convention)
    options: Any = {"spread": spread} if spread else {}
    for number in range(DEVICES):
        app.add_telemetry(f"d{number}", read, interval=INTERVAL, retry=3, **options)
    late: dict[PollRunner, list[float]] = {}
    cycle = PollRunner.cycle

    def end() -> None:
        first, later = max(each[0] for each in late.values()), max(max(each[1:]) for each in late.values())
        print(json.dumps({"first": first, "later": later}), flush=True)
        app.stop()

    async def watched(poll: PollRunner) -> None:
        loop = asyncio.get_running_loop()
        if not late:
            loop.call_later(MEASURED, end)
        if isinstance(poll.schedule, IntervalSchedule):
            late.setdefault(poll, []).append(loop.time() - (poll.schedule.due - INTERVAL))
        await cycle(poll)

    PollRunner.cycle = watched  # type: ignore[method-assign,assignment]  # an app has no hook there
    app.run(log_level="WARNING")  # as users do: the interpreter then leaves the parts of the app alone


if __name__ == "__main__":
    os.sched_setaffinity(0, {0})
    _job(sys.argv[1], sys.argv[2], float(sys.argv[3]))
