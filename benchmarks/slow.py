"""A small machine: the job with a tenth of a core, and its first start, for which nothing is compiled yet."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks import bare_python
from benchmarks.measures import LAUNCHER, SIDES, first_reading, measured
from benchmarks.rows import NONE, Row, interleaved, note, paired_row

SHARE = 0.1
"""Of a core: about what a Raspberry Pi Zero has of one of today's."""
PERIOD = 10_000
"""Microseconds after which the kernel gives the share again, so that a pause is not what lateness shows."""
PLACES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu"))
"""Where groups are made: of version 2, and of version 1."""
RATE = 200
_JOIN = 'echo $$ > "$0" && exec "$@"'
"""For ``sh -c``: joins the group, and becomes the job, so that also its start is slow."""


def slow(times: int) -> list[Row]:
    """The rows of a small machine; one that says why, where no group can be made."""
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(_group())
        except OSError as error:
            return [Row(f"a tenth of a core: not measured, as no cgroup can be made ({error.strerror}); try as root")]
        return _rows(group, times)


def _rows(group: Path, times: int) -> list[Row]:
    rows = []
    with _launched(group, bare_python.executable()):
        for devices in (10, 1000):
            note(f"a tenth of a core: start to first reading, {devices} devices")
            rounds = [{side: first_reading(side, devices) for side in SIDES} for _ in range(times)]
            rows.append(paired_row(f"a tenth of a core: start to first reading, {devices} devices", "ms", rounds, NONE))
        note(f"a tenth of a core: CPU and lateness at {RATE} readings/s of 200 devices")
        figures = [{side: measured(side, 200, RATE, 6) for side in SIDES} for _ in range(times)]
    for name, key, unit, scale in (
        (f"CPU per 10k readings, 200 devices, {RATE}/s", "cpu_per_10k", "s", 1.0),
        (f"p99 lateness at {RATE}/s", "p99_late", "ms", 1e3),
    ):
        rounds = [{side: found[key] * scale for side, found in each.items()} for each in figures]
        rows.append(paired_row(f"a tenth of a core: {name}", unit, rounds, NONE))
    note("a tenth of a core: a first start")
    python = bare_python.copied()

    def first_start(side: str) -> float:
        bare_python.forget_bytecode(python)
        return first_reading(side, 10)

    with _launched(group, python):
        rounds = interleaved(first_start, SIDES, times)
    return [*rows, paired_row("a tenth of a core: first start without bytecode, 10 devices", "ms", rounds, NONE)]


@contextlib.contextmanager
def _launched(group: Path, python: str) -> Iterator[None]:
    """Jobs join the group, and have this interpreter."""
    token = LAUNCHER.set(("sh", "-c", _JOIN, str(group / "cgroup.procs"), python))
    try:
        yield
    finally:
        LAUNCHER.reset(token)


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """A control group with `SHARE` of a core. Raises `OSError`: the system, or a missing right, does not allow one."""
    quota = int(SHARE * PERIOD)
    version_2 = (PLACES[0] / "cgroup.controllers").exists()
    group = PLACES[0 if version_2 else 1] / f"leadsman-bench-{os.getpid()}"
    group.mkdir()
    try:
        if version_2:
            (group / "cpu.max").write_text(f"{quota} {PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        yield group
    finally:
        group.rmdir()
