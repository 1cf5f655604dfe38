"""A backlog of a million readings on disk: the start, what goes on beside it, and what the outbox on disk costs."""

import atexit
import logging
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.ear import Ear, Heard
from benchmarks.measures import WIDE, end, job, measured, with_state
from benchmarks.rows import NONE, Row, note, percentile
from leadsman import App
from leadsman.core.spool.file import NAME, SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.testing import Harness, Mosquitto, Scripted

ROWS, TOPICS = 1_000_000, 20
"""Readings of the backlog, and of how many devices. These are not read any more, so that their topics have no newer
readings, which would have to wait behind the older ones."""
BATCH = 5000
ROOM = 2**30
"""Bytes that the backlog may have."""
DEVICES = 200
"""Devices that are read each second meanwhile."""
SETTLING, REPLAYED = 2.0, 30.0
"""Seconds after which the replay goes on evenly; and for which it is watched at most, as long as there is enough of
it."""
MIN_ROWS = 0.8 * ROWS
PATIENCE = 120.0
HOUR = 3600
AFTER_AN_HOUR = 20
"""Breaks of an hour."""


def million(times: int) -> list[Row]:
    """The rows of a backlog of a million readings, in medians of so many starts."""
    note(f"a file of {ROWS:,} readings")
    file = _file(Path(tempfile.mkdtemp(prefix="leadsman-million-")))
    found = list[tuple[float, float, float, float, float, float, float]]()
    for _ in range(times):
        note(f"two starts, and up to {REPLAYED:g} s of each")
        start, _, memory, *_ = _run(None)
        with_backlog, backlog, size, age, rate, stopped = _run(file)
        found.append((start, with_backlog, backlog, size - memory, age, rate, stopped))
    note("a start that is ended at once")
    opening = statistics.median(_ended_while_opening(file) for _ in range(times))
    medians = (statistics.median(each) for each in zip(*found, strict=True))
    start, with_backlog, backlog, memory, age, rate, stopped = medians
    name = f"backlog of {ROWS:,} on disk"
    return [
        Row(
            f"{name}: start to first live reading, {start:.2f} s without it",
            NONE,
            f"{with_backlog:.2f} s",
            wanted="≤ 2 s",
        ),
        Row("… start to first reading of the backlog", NONE, f"{backlog:.2f} s", wanted="≤ 2 s"),
        Row("… more memory, at most", NONE, f"{memory:.1f} MiB", wanted="≤ 20 MB"),
        Row(f"… p99 age of live readings of {DEVICES} devices during the replay", NONE, f"{age:.3f} s", wanted="< 2 s"),
        Row("… replayed", NONE, f"{rate:,.0f}/s", wanted="≥ 2,000/s"),
        Row("SIGTERM to exit, while a million readings are replayed", NONE, f"{stopped:.2f} s", wanted="≤ 1 s"),
        Row("SIGTERM to exit, while their file is opened", NONE, f"{opening:.2f} s", wanted="≤ 1 s"),
    ]


def _file(directory: Path) -> Path:
    """Make the file of the backlog."""
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    spool = SpoolFile(directory / NAME, Quota(ROOM))
    spool.open()
    at = time.time()
    for first in range(1, ROWS + 1, BATCH):
        spool.write([_stored(number, at) for number in range(first, first + BATCH)], ())
    spool.close()
    return directory / NAME


def _stored(number: int, at: float) -> SpoolRow:
    payload = b'{"temperature": 21.5, "n": %d, "at": %.3f}' % (number, at)
    return SpoolRow(number, 1, f"job/old{number % TOPICS}/state", payload, 1, True, at, None, False)


def _environment(file: Path | None) -> dict[str, str]:
    """The environment of a job with a copy of the backlog, or without one. The copy is on the disk: no job waits for
    that."""
    environment = {**with_state(), "OUTBOX__MAX_BYTES": str(ROOM)}
    if file is not None:
        with open(shutil.copy(file, environment["STATE_DIRECTORY"]), "rb") as copy:
            os.fsync(copy.fileno())
    return environment


def _run(file: Path | None) -> tuple[float, float, float, float, float, float]:
    """Seconds to the first live reading, and to the first reading of the backlog; MiB at most; the p99 age in
    seconds of live readings; replayed readings a second; seconds from SIGTERM to the end."""
    live, replayed = list[Heard](), 0

    def hear(heard: Heard) -> None:
        nonlocal replayed
        if heard.topic.startswith("job/d"):
            live.append(heard)
        elif heard.topic.startswith("job/old"):
            replayed += 1

    with Mosquitto(WIDE) as broker:
        ear, environment = Ear(broker.port, ("job/+/state",), hand_on=hear), _environment(file)
        began = time.perf_counter()
        process = job("ours", broker.port, DEVICES, 1.0, 0, "stamped", environment=environment)
        _until(lambda: live, "a live reading")
        start = live[0].at - began
        _until(lambda: replayed or file is None, "a reading of the backlog")
        backlog = time.perf_counter() - began
        time.sleep(SETTLING)
        first, before, since = len(live), replayed, time.perf_counter()
        while time.perf_counter() < since + REPLAYED and replayed < MIN_ROWS:
            time.sleep(0.1)
        rate = (replayed - before) / (time.perf_counter() - since)
        ages = [heard.age for heard in live[first:]]
        memory, stopped = _most_memory(process), _stopped(process)
        ear.close()
    return start, backlog, memory, percentile(ages, 0.99), rate, stopped


def _until(look: Callable[[], object], what: str) -> None:
    deadline = time.perf_counter() + PATIENCE
    while not look():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{what} did not come within {PATIENCE:g} s")
        time.sleep(0.001)


def _most_memory(process: "subprocess.Popen[str]") -> float:
    """MiB resident at most."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["VmHWM"].split()[0]) / 1024


def _stopped(process: "subprocess.Popen[str]") -> float:
    """Seconds from SIGTERM to the end."""
    before = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    took = time.perf_counter() - before
    end(process)
    return took


def _ended_while_opening(file: Path) -> float:
    """Seconds from SIGTERM to the end of an app that has just begun to open its file."""
    with Mosquitto(WIDE) as broker:
        process = job("ours", broker.port, DEVICES, 1.0, 0, "stamped", environment=_environment(file))
        seen = psutil.Process(process.pid)
        _until(lambda: any(each.path.endswith(NAME) for each in seen.open_files()), "an open file")
        return _stopped(process)


def overhead(times: int) -> list[Row]:
    """What an outbox on disk costs while the broker answers, and how soon readings come after an outage of an hour."""
    note("CPU with an outbox in memory and on disk")
    rounds = [
        [measured("ours", DEVICES, 1000, 6, durability=each)["cpu_per_10k"] for each in ("memory", "acked-or-durable")]
        for _ in range(times)
    ]
    memory, disk = (statistics.median(each) for each in zip(*rounds, strict=True))
    more = statistics.median(with_disk / without - 1 for without, with_disk in rounds)
    note("the broker is back after an hour, in virtual time")
    logging.disable()  # each outage would be told
    waits = [_first_after_an_hour(number) for number in range(AFTER_AN_HOUR)]
    logging.disable(logging.NOTSET)
    return [
        Row(
            f"CPU per 10k readings, {DEVICES} devices, outbox on disk ({memory:.3g} s in memory)",
            NONE,
            f"{disk:.3g} s",
            ratio=f"{more * 100:+.1f} %",
            wanted="≤ 5 %",
        ),
        Row(
            "first reading after the broker is back, after an hour, in virtual time",
            NONE,
            f"{statistics.median(waits):.1f} s, at most {max(waits):.1f} s",
            wanted="≤ 0.5 s",
        ),
    ]


def _first_after_an_hour(number: int) -> float:
    """Seconds from the return of the broker to the first reading. `number` shifts the return by so many seconds."""
    app = App("job")
    app.add_telemetry("d", Scripted({"t": 21.5}), interval=10)
    back = 20 + HOUR + number
    with Harness(app) as harness:
        harness.at(20, harness.broker.stop)
        harness.at(back, harness.broker.start)
        harness.run(back + 60)
        return min(message.at for message in harness.broker.messages("job/d/state") if message.at > back) - back
