"""``python -m benchmarks.simulated DAY``: CPU time of a simulated day of 50 devices, each read once a minute."""

import statistics
import subprocess
import sys
import time

from benchmarks.rows import NONE, Row, note
from leadsman import App
from leadsman.core.settings.sources import Where
from leadsman.tools.simulation.scenario import DAY, SCENARIOS
from leadsman.tools.simulation.simulator import Simulation, simulate, stage_of
from leadsman.tools.simulation.variant import AS_WRITTEN

DEVICES = 50


def day(name: str) -> float:
    """CPU seconds of one day under the app's own policy, without its imports. A simulation never waits, and other work
    on the machine changes them less than the time that passes."""
    app = App("job", mqtt="mqtt://nowhere.invalid", twins=lambda _: ())  # so that handlers are called

    async def read() -> dict[str, float]:
        return {"temperature": 21.5, "humidity": 45.0}

    app.add_telemetry([f"d{number}" for number in range(DEVICES)], read, interval=60, retry=3)
    simulation = Simulation(app, Where.nowhere({}), SCENARIOS[name], DAY, seed=1)
    stage = stage_of(simulation)
    before = time.process_time()
    simulate(simulation, stage, AS_WRITTEN, lambda _: None)
    return time.process_time() - before


def in_a_process(name: str) -> float:
    """The same in a process of its own, so that the other benchmarks change nothing."""
    from benchmarks import bare_python
    from benchmarks.measures import ROOT

    command = [bare_python.executable(), "-m", "benchmarks.simulated", name]
    return float(subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout)


def days(times: int) -> list[Row]:
    """The rows of the table."""
    note("simulated days")
    return [
        Row(
            f"a simulated day of {DEVICES} devices at 60 s, {name}: CPU",
            NONE,
            f"{statistics.median(in_a_process(name) for _ in range(times)):.2f} s",
            wanted="≤ 2 s",
        )
        for name in SCENARIOS
    ]


if __name__ == "__main__":
    print(day(sys.argv[1]))
