"""``make bench``: measure everything and print the table that stands in `benchmarks/README.md`."""

import argparse
import logging
import os
import platform
import statistics
from collections.abc import Callable

from benchmarks import calls, frames, measures, recovery
from benchmarks.measures import medians, note

Row = tuple[str, str, str, str, str]
RUN = "import asyncio, json, aiomqtt"
IMPORT = "import leadsman"
LOADED = f"""{IMPORT}, leadsman.wiring.run, leadsman.settings.load, leadsman.mqtt.client
import leadsman.monitoring.log_format, leadsman.monitoring.loop_stalls"""


def ratio_row(name: str, unit: str, bare: float, ours: float, target: str) -> Row:
    """A row with both values and their ratio."""
    return name, f"{bare:.3g} {unit}", f"{ours:.3g} {unit}", f"{ours / bare:.2f}" if bare else "–", target


def paired_row(name: str, unit: str, pairs: list[tuple[float, float]], target: str) -> Row:
    """A row of medians, with the median of the ratios: each round ran both sides one after the other, so that a
    neighbour on a shared machine spoils a round and not a side."""
    bare, ours = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    return name, f"{bare:.3g} {unit}", f"{ours:.3g} {unit}", f"{ratio:.2f}", target


def imports(times: int) -> list[Row]:
    note("import time")
    bare, ours, loaded = (measures.import_time(code, times) for code in (RUN, IMPORT, LOADED))
    return [
        ratio_row("import, above the interpreter", "ms", bare, ours, "≤ 1.5"),
        ratio_row("the same, with all that a run loads", "ms", bare, loaded, "≤ 1.5"),
    ]


def starts(times: int) -> list[Row]:
    rows = []
    for devices in (10, 1000):
        note(f"start to first reading, {devices} devices")
        pair = medians(lambda side, devices=devices: measures.first_reading(side, devices), times)  # type: ignore[misc]
        rows.append(
            ratio_row(f"start to first reading received, {devices} devices", "ms", pair["bare"], pair["ours"], "≤ 1.6")
        )
    return rows


def memories(times: int) -> list[Row]:
    note("memory")
    few = medians(lambda side: measures.memory(side, 10), times)
    many = medians(lambda side: measures.memory(side, 1010), times)
    each = {side: (many[side] - few[side]) * 1024 / 1000 for side in few}
    return [
        ratio_row("memory with 10 devices", "MiB", few["bare"], few["ours"], "≤ 1.4"),
        ratio_row("memory per further device", "KiB", each["bare"], each["ours"], "≤ 4 KiB, aim 2"),
    ]


def rates(times: int) -> list[Row]:
    note("CPU and lateness at 1,000 readings/s of 200 devices")
    sides = (*measures.SIDES, "spread")
    rounds = [{side: measures.measured(side, 200, 1000, 8) for side in sides} for _ in range(times)]
    wanted = {"ours": "≤ 0.9, aim 0.65", "spread": "≤ 0.9"}
    rows = [
        paired_row(
            name, "s", [(taken["bare"]["cpu_per_10k"], taken[side]["cpu_per_10k"]) for taken in rounds], wanted[side]
        )
        for side, name in (
            ("ours", "CPU per 10k readings, 200 devices, 1,000/s"),
            ("spread", "… with spread= over the interval"),
        )
    ]
    return rows + [
        paired_row(
            name, "ms", [(taken["bare"]["p99_late"] * 1e3, taken[side]["p99_late"] * 1e3) for taken in rounds], "≤ 0.2"
        )
        for side, name in (
            ("ours", "p99 lateness at 1,000/s, all due at once"),
            ("spread", "… with spread= over the interval"),
        )
    ]


def limits(_: int) -> list[Row]:
    note("the highest rates")
    bare, ours = (measures.highest_rates(side, 4) for side in measures.SIDES)
    return [
        ratio_row("sustained readings/s on one core", "/s", bare[0], ours[0], "≥ 1.2, aim 1.4"),
        ratio_row("rate held within 5 % of schedule", "/s", bare[1], ours[1], "≥ 3"),
    ]


def ends(times: int) -> list[Row]:
    note("SIGTERM to exit")
    idle = medians(lambda side: measures.stopping(side, "idle"), times)
    frozen = {devices: measures.stopping("ours", "frozen", devices) for devices in (1, 200)}
    lost, first = zip(*(measures.broker_killed(side) for side in measures.SIDES), strict=True)
    return [
        ratio_row("SIGTERM to exit, idle", "s", idle["bare"], idle["ours"], "–"),
        ("SIGTERM to exit, in backoff", "–", f"{measures.stopping_in_backoff():.3f} s", "–", "–"),
        (
            "SIGTERM to exit, frozen broker, 1 and 200 devices",
            "–",
            f"{frozen[1]:.2f} and {frozen[200]:.2f} s",
            "–",
            "≤ 2 s",
        ),
        ("broker killed for 10 s: readings lost around it", f"{lost[0]:.0f} %", f"{lost[1]:.0f} %", "–", "0"),
        ("… first reading after it is back", f"{first[0]:.2f} s", f"{first[1]:.2f} s", "–", "≤ 1 s"),
    ]


def per_call() -> list[Row]:
    note("retry and breaker per successful call, and a step of a policy")
    taken = calls.measure()
    step = calls.step_of_ten()
    bare, ours = taken["bare await"], taken["leadsman"]
    rows: list[Row] = [
        ratio_row("retry + breaker per successful call, no timeout", "µs", bare, ours, "≤ 4"),
        (
            "the same with the default timeout",
            f"{bare:.3g} µs",
            f"{taken['leadsman with timeout']:.3g} µs",
            "–",
            "≤ 6 µs on 3.11, ≤ 3.5 on 3.12+",
        ),
    ]
    for name in ("hyx retry + breaker", "stamina retry", "tenacity retry"):
        target = {"hyx retry + breaker": "≥ 4 × ours", "stamina retry": "≥ 40 × ours"}.get(name, "–")
        rows.append(
            (f"… {name}", f"{bare:.3g} µs", f"{taken[name]:.3g} µs", f"{taken[name] / ours:.1f} × ours", target)
        )
    return [*rows, ratio_row("a step of a policy of ten nodes", "µs", bare, step, "≤ 50")]


def framers(times: int) -> list[Row]:
    note("framers")
    rows: list[Row] = []
    for group, wanted in ((frames.PLAIN, "≥ 20 MB/s, lines ≥ 50,000/s"), (frames.CHECKED, "≥ 2 MB/s")):
        for name, framer, frame in group:
            megabytes, messages = frames.through(framer, frame, times)
            rows.append((f"framer: {name}", "–", f"{megabytes:.0f} MB/s, {messages:,.0f}/s", "–", wanted))
    return rows


def with_devices(times: int) -> list[Row]:
    from benchmarks import devices  # needs what only the tests install

    note("adapters")
    read, air, bus = devices.radio(times)
    expanded, blocked = devices.calendars(times)
    return [
        ("Bluetooth: connect, read four, hang up", "–", f"{read:.2f} s", "–", "≤ 0.3 s"),
        ("… 200 notifications through GATT stacks", "–", f"{air:.3f} s", "–", "≤ 0.1 s"),
        ("… 2,000 over D-Bus", "–", f"{bus:.3f} s", "–", "≤ 0.5 s"),
        ("300 weekly series read and expanded", "–", f"{expanded:.2f} s", "–", "–"),
        ("… the event loop blocked for at most", "–", f"{blocked * 1e3:.0f} ms", "–", "≤ 20 ms"),
        ("serial port plugged in again to first message", "–", f"{devices.replug(times):.3f} s", "–", "≤ 1 s"),
    ]


PARTS: dict[str, Callable[[int], list[Row]]] = {
    "imports": imports,
    "starts": starts,
    "memories": memories,
    "rates": rates,
    "limits": limits,
    "ends": ends,
    "calls": lambda _: per_call(),
    "frames": framers,
    "devices": with_devices,
    "day": lambda times: [
        (
            "a virtual day of ten devices at 60 s",
            "–",
            f"{statistics.median(measures.virtual_day() for _ in range(times)):.2f} s",
            "–",
            "< 2 s",
        )
    ],
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Compare leadsman with a bare aiomqtt loop.")
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, "recovery", []], help="only these; recovery prints its own tables"
    )
    parser.add_argument("--times", type=int, default=5, help="repetitions; medians are taken (default 5)")
    options = parser.parse_args()
    if options.parts == ["recovery"]:
        logging.disable()
        print(recovery.report())
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else our modules are compiled at each start, and only ours
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {options.times} repetitions\n"
    )
    print("| | bare aiomqtt loop | leadsman | ratio | wanted |\n|---|---|---|---|---|")
    for part in options.parts or PARTS:
        for row in PARTS[part](options.times):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
