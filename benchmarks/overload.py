"""More asked than can be delivered, and many devices that ask for little."""

import json
import math
import signal
import subprocess
import time

import psutil

from benchmarks.ear import Ear
from benchmarks.measures import CLIENTS, MAX_RATE_PER_DEVICE, SIDES, end, highest_rates, job, measured
from benchmarks.rows import NONE, Row, note, ratio_row
from leadsman.testing import Mosquitto

PROBED = (3000, 5000, 8000, 12_000, 16_000, 20_000, 24_000, 32_000, 40_000, 48_000)
"""Readings a second, to find what a side delivers at most."""
STARTS, MORE = 5, 1.4
"""An app that is asked for a little more than it can do begins with a backlog, since it polls before it is connected.
It must catch up each time: seven of thirteen starts did not once, and went on with a quarter of what it can."""
MANY, REST = 10_000, 60.0


def overloaded(times: int) -> list[Row]:
    """200 devices or more, of which four times as much is asked as can be delivered."""
    shares, starts, sizes = dict[str, float](), dict[str, float](), dict[str, float]()
    for side in CLIENTS:
        most, _ = highest_rates(side, 2, PROBED)
        note(f"overload, {side}: at most {most:,.0f} readings/s, and four times that are asked")
        figures = _asked(side, 4 * most, 8)
        note(f"  {figures['delivered']:,.0f} delivered; then {STARTS} starts with {MORE} times that")
        worst = min(measured(side, 200, MORE * most, 2)["delivered"] for _ in range(STARTS))
        starts[side] = worst / most
        shares[side], sizes[side] = figures["delivered"] / most, figures["resident"]
    return [
        ratio_row("asked 4 × what it can: delivered / its own maximum", "", shares, "≥ 0.9"),
        ratio_row(f"… {MORE} × what it can, the worst of {STARTS} starts", "", starts, "≥ 0.9"),
        ratio_row("… memory at most", "MiB", sizes, "bounded"),
    ]


def _asked(side: str, rate: float, duration: float) -> dict[str, float]:
    """The job's figures."""
    devices = max(200, math.ceil(rate / MAX_RATE_PER_DEVICE))
    with Mosquitto() as broker:
        process = job(side, broker.port, devices, devices / rate, duration, "stamped")
        out, _ = process.communicate(timeout=2 * duration + 60)
    figures: dict[str, float] = json.loads(out)
    return figures


def many(times: int) -> list[Row]:
    """10,000 devices at 60 s."""
    note(f"{MANY:,} devices at {REST:.0f} s: about two minutes")
    with Mosquitto() as broker, Mosquitto() as other:
        jobs = {
            "bare": job("bare", other.port, MANY, REST),
            "ours": job("ours", broker.port, MANY, REST, 0, "watched"),
        }
        assert jobs["ours"].stdout is not None
        assert jobs["ours"].stdout.readline() == "watched\n"
        time.sleep(15)
        blocks = {"the start": _longest(jobs["ours"])}
        before = {side: _cpu(jobs[side]) for side in SIDES}
        time.sleep(REST)
        shares = {side: (_cpu(jobs[side]) - before[side]) / REST * 100 for side in SIDES}
        blocks["polls and heartbeats"] = _longest(jobs["ours"])
        blocks["introspection"] = _introspected(broker, jobs["ours"])
        jobs["ours"].send_signal(signal.SIGTERM)
        said, _ = jobs["ours"].communicate(timeout=60)
        lost = f"{json.loads(said)['lost']:,}" if said else "it did not end by itself"
        end(jobs["bare"])
    rows = [ratio_row(f"{MANY:,} devices at 60 s: CPU", "%", shares, "≤ 1 %")]
    rows += [
        Row(f"… event loop blocked at most by {part}", NONE, f"{block * 1e3:.1f} ms", wanted="≤ 5 ms")
        for part, block in blocks.items()
    ]
    return [*rows, Row("… messages undelivered at the stop", NONE, lost, wanted="0")]


def _cpu(process: "subprocess.Popen[str]") -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _longest(process: "subprocess.Popen[str]") -> float:
    """The longest time in seconds that a callback blocked the event loop, since it was asked for before."""
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None
    answer = json.loads(process.stdout.readline())
    note(f"  blocked for {answer['longest'] * 1e3:.1f} ms by {answer['where']}")
    return float(answer["longest"])


def _introspected(broker: Mosquitto, process: "subprocess.Popen[str]") -> float:
    """As `_longest`, while everything is asked for."""
    ear = Ear(broker.port, ("job/introspect/response",))
    ear.publish("job/introspect", b"")
    time.sleep(8)
    ear.close()
    note(f"  introspection: {len(ear.heard)} messages, {sum(len(heard.payload) for heard in ear.heard):,} bytes")
    return _longest(process)
