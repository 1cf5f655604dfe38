"""``make bench``: measure everything and print the table that stands in `benchmarks/README.md`."""

import argparse
import functools
import logging
import os
import platform
import statistics
from collections.abc import Callable

from benchmarks import (
    bare_python,
    budgets,
    calls,
    causes,
    cluster,
    described,
    extensions,
    footprint,
    frames,
    ledger,
    measures,
    million,
    network,
    nodes,
    overload,
    plain,
    recovery,
    service,
    simulated,
    slow,
    soak,
)
from benchmarks.measures import CLIENTS, SIDES
from benchmarks.rows import NONE, Row, interleaved, note, paired_row, ratio_row, written

IMPORT = "import leadsman"
LOADED = f"""{IMPORT}, leadsman.core.wiring.run, leadsman.core.settings.load
import leadsman.core.monitoring.log_format, leadsman.core.monitoring.loop_stalls"""
CLIENT = {"ours": "import leadsman.core.mqtt.codec_client", "aiomqtt": "import leadsman.core.mqtt.aiomqtt_client"}


def imports(times: int) -> list[Row]:
    note("import time")
    code = {"bare": measures.RUN, "import": IMPORT, **{side: f"{LOADED}\n{client}" for side, client in CLIENT.items()}}
    rounds = interleaved(lambda side: measures.import_time(code[side]), [*code], times)
    alone = [{"bare": each["bare"], "ours": each["import"]} for each in rounds]
    loaded = [{side: each[side] for side in CLIENTS} for each in rounds]
    return [
        paired_row("import, above the interpreter", "ms", alone, "≤ 1.5"),
        paired_row("the same, with all that a run loads", "ms", loaded, "≤ 1.5"),
    ]


def _first_reading(devices: int, side: str) -> float:
    return measures.first_reading(side, devices)


def starts(times: int) -> list[Row]:
    rows = []
    for devices, wanted in ((10, "≤ 1.0"), (1000, "≤ 0.9")):
        note(f"start to first reading, {devices} devices")
        rounds = interleaved(functools.partial(_first_reading, devices), CLIENTS, times)
        rows.append(paired_row(f"start to first reading received, {devices} devices", "ms", rounds, wanted))
    return rows


def memories(times: int) -> list[Row]:
    note("memory")
    few = interleaved(lambda side: measures.memory(side, 10), CLIENTS, times)
    many = interleaved(lambda side: measures.memory(side, 1010), CLIENTS, times)
    each = [{side: (m[side] - f[side]) * 1024 / 1000 for side in f} for f, m in zip(few, many, strict=True)]
    return [
        paired_row("memory with 10 devices", "MiB", few, "≤ 1.0"),
        paired_row("memory per further device", "KiB", each, "≤ 2 KiB"),
    ]


def weight(_: int) -> list[Row]:
    count, size = float(len(bare_python.packages())), bare_python.size() / 1e6
    return [
        Row("a base install: packages, leadsman among them", ours=written(count, ""), rounds=(count,)),
        Row("a base install: size on disk, without bytecode", ours=written(size, "MB"), rounds=(size,)),
    ]


def rates(times: int) -> list[Row]:
    rows = []
    for rate, wanted, late in ((1000, "≤ 0.20", "≤ 0.1"), (200, "≤ 0.30", NONE)):
        note(f"CPU and lateness at {rate:,} readings/s of 200 devices")
        sides = (*CLIENTS, "spread", "filtered")
        rounds = [{side: measures.measured(side, 200, rate, 6) for side in sides} for _ in range(times)]
        cpu, p99 = (
            [{side: figures[key] * scale for side, figures in each.items()} for each in rounds]
            for key, scale in (("cpu_per_10k", 1.0), ("p99_late", 1e3))
        )
        filtered = tuple(each["filtered"] / each["ours"] for each in cpu)
        taken = written(statistics.median(each["filtered"] for each in cpu), "s")
        rows += [
            paired_row(f"CPU per 10k readings, 200 devices, {rate:,}/s", "s", cpu, wanted),
            Row(
                f"… {rate:,}/s, with five filters of a field",
                ours=taken,
                ratio=f"{statistics.median(filtered):.2f} × without",
                wanted="≤ 1.15",
                rounds=filtered,
            ),
            paired_row(f"p99 lateness at {rate:,}/s, no option set", "ms", p99, late),
        ]
        spread = [{"bare": each["bare"], "ours": each["spread"]} for each in p99]
        rows.append(paired_row(f"… {rate:,}/s, with spread= over the interval", "ms", spread, NONE))
    return rows


def limits(_: int) -> list[Row]:
    rows = []
    for name, conf in (("", ""), (", Receive Maximum 1000", measures.WIDE)):
        note(f"the highest rates{name}")
        found = {side: measures.highest_rates(side, 3, conf=conf) for side in CLIENTS}
        most, held = ({side: rates[which] for side, rates in found.items()} for which in (0, 1))
        rows.append(ratio_row(f"sustained readings/s on one core{name}", "/s", most, "≥ 3"))
        rows.append(ratio_row(f"rate held within 5 % of schedule{name}", "/s", held, "≥ 10"))
    return rows


def silent(times: int) -> list[Row]:
    note("start to first reading at a broker that is silent to MQTT 5")
    name = "start to first reading at a broker that is silent to MQTT 5 (amqtt)"
    taken = measures.silent_broker(times)
    return [
        Row(f"{name}: median", NONE, written(statistics.median(taken), "s"), wanted="≤ 12 s"),
        Row("… at most", NONE, written(max(taken), "s"), wanted="≤ 12 s"),
    ]


def ends(times: int) -> list[Row]:
    note("SIGTERM to exit")
    idle = interleaved(lambda side: measures.stopping(side, "idle"), CLIENTS, times)
    frozen = {
        devices: {side: measures.stopping(side, "frozen", devices) for side in CLIENTS[1:]} for devices in (1, 200)
    }
    lost, first = zip(*(measures.broker_killed(side) for side in SIDES), strict=True)
    return [
        paired_row("SIGTERM to exit, idle", "s", idle, "≤ 0.05 s"),
        ratio_row("SIGTERM to exit, in backoff", "s", {"ours": measures.stopping_in_backoff()}, "≤ 0.05 s"),
        *(
            ratio_row(f"SIGTERM to exit, frozen broker, {devices} devices", "s", sides, "≤ 0.5 s")
            for devices, sides in frozen.items()
        ),
        Row("broker killed for 10 s: readings lost around it", f"{lost[0]:.0f} %", f"{lost[1]:.0f} %", wanted="0"),
        Row("… first reading after it is back", f"{first[0]:.2f} s", f"{first[1]:.2f} s", wanted="≤ 1 s"),
    ]


def per_call() -> list[Row]:
    note("retry and breaker per successful call, a step of a policy, and a registration")
    taken = calls.measure()
    step = calls.step_of_ten()
    bare, ours, timeout = taken["bare await"], taken["leadsman"], taken["leadsman with timeout"]
    rows = [
        ratio_row("retry + breaker per successful call, no timeout", "µs", {"bare": bare, "ours": ours}, "≤ 4"),
        Row("the same with the default timeout", f"{bare:.3g} µs", f"{timeout:.3g} µs", wanted="≤ 6 µs on 3.11"),
    ]
    for name in ("hyx retry + breaker", "stamina retry", "tenacity retry"):
        target = {"hyx retry + breaker": "≥ 4 × ours", "stamina retry": "≥ 40 × ours"}.get(name, NONE)
        ratio = f"{taken[name] / ours:.1f} × ours"
        rows.append(Row(f"… {name}", f"{bare:.3g} µs", f"{taken[name]:.3g} µs", NONE, ratio, target))
    return [
        *rows,
        ratio_row("a step of a policy of ten nodes", "µs", {"bare": bare, "ours": step}, "≤ 50"),
        Row("registering a device, of 1,000: CPU", NONE, written(calls.registering(), "µs"), wanted="≤ 35 µs"),
    ]


def framers(times: int) -> list[Row]:
    note("framers")
    rows: list[Row] = []
    for group, wanted in ((frames.PLAIN, "≥ 20 MB/s, lines ≥ 50,000/s"), (frames.CHECKED, "≥ 2 MB/s")):
        for name, framer, frame in group:
            megabytes, messages = frames.through(framer, frame, times)
            rows.append(Row(f"framer: {name}", NONE, f"{megabytes:.0f} MB/s, {messages:,.0f}/s", wanted=wanted))
    return rows


def with_devices(times: int) -> list[Row]:
    from benchmarks import devices  # needs what only the tests install

    note("adapters")
    read, air, bus = devices.radio(times)
    expanded, blocked = devices.calendars(times)
    return [
        Row("Bluetooth: connect, read four, hang up", NONE, f"{read:.2f} s", wanted="≤ 0.3 s"),
        Row("… 200 notifications through GATT stacks", NONE, f"{air:.3f} s", wanted="≤ 0.1 s"),
        Row("… 2,000 over D-Bus", NONE, f"{bus:.3f} s", wanted="≤ 0.5 s"),
        Row("300 weekly series read and expanded", NONE, f"{expanded:.2f} s"),
        Row("… the event loop blocked for at most", NONE, f"{blocked * 1e3:.0f} ms", wanted="≤ 20 ms"),
        Row("serial port plugged in again to first message", NONE, f"{devices.replug(times):.3f} s", wanted="≤ 1 s"),
    ]


def web(times: int) -> list[Row]:
    from benchmarks.web import web  # see above

    return web(times)


def heard(times: int) -> list[Row]:
    from benchmarks.advertisements import advertisements  # see above

    return advertisements(times)


def virtual_days(times: int) -> list[Row]:
    note("a virtual day")
    day = statistics.median(measures.virtual_day() for _ in range(times))
    rounds = interleaved(measures.virtual_day_of, ("async", "def"), times)
    quick, blocking = (statistics.median(each[kind] for each in rounds) for kind in ("async", "def"))
    more = statistics.median(each["def"] / each["async"] for each in rounds)
    return [
        Row("a virtual day of ten devices at 60 s", NONE, f"{day:.2f} s", wanted="< 2 s"),
        Row("… of two `async def` handlers at 10 s", NONE, f"{quick:.2f} s"),
        Row("… of two plain `def` handlers at 10 s", NONE, f"{blocking:.2f} s", NONE, f"{more:.2f} × async", "≤ 3"),
    ]


PARTS: dict[str, Callable[[int], list[Row]]] = {
    "imports": imports,
    "starts": starts,
    "silent": silent,
    "memories": memories,
    "weight": weight,
    "rates": rates,
    "extensions": extensions.extensions,
    "slow": slow.slow,
    "causes": causes.causes,
    "limits": limits,
    "ends": ends,
    "overload": overload.overloaded,
    "distant": network.distant,
    "backlog": network.backlog,
    "million": million.million,
    "durable": million.overhead,
    "many": overload.many,
    "plain": plain.plain,
    "service": service.service,
    "described": described.described,
    "calls": lambda _: per_call(),
    "frames": framers,
    "devices": with_devices,
    "web": web,
    "advertisements": heard,
    "day": virtual_days,
    "simulated": simulated.days,
    "cluster": cluster.clusters,
    "nodes": nodes.nodes,
    "history": ledger.history,
}
ALONE = ("recovery", "soak", "footprint", "ledger")
"""What prints something other than rows, and is measured only when it is asked for."""


def main() -> None:
    """Measure, and print a table. Exits with 1 if a row exceeds its budget by more than the noise of its rounds."""
    parser = argparse.ArgumentParser(description="Compare leadsman with a bare aiomqtt loop.")
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, *ALONE, []], help=f"only these; {', '.join(ALONE)} print their own"
    )
    parser.add_argument("--times", type=int, default=5, help="repetitions; medians are taken (default 5)")
    parser.add_argument("--minutes", type=float, default=20, help="of the soak and of the ledger (default 20)")
    parser.add_argument("--rate", type=float, help="readings a second of the soak (default half of the sustained)")
    parser.add_argument("--kill-every", type=float, default=60, help="seconds between kills of the soak (default 60)")
    parser.add_argument("--failing", action="store_true", help="let one read of ten fail in the soak")
    options = parser.parse_args()
    if {*options.parts}.intersection(ALONE):
        if len(options.parts) > 1:
            parser.error(f"{' and '.join(ALONE)} are measured alone")
        logging.disable()
        print(_alone(options.parts[0], options))
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else our modules are compiled at each start, and only ours
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {options.times} repetitions\n"
    )
    print("| | bare aiomqtt loop | leadsman | … on aiomqtt | ratio | wanted | budget | part |\n" + "|---" * 8 + "|")
    table, faults = budgets.read(budgets.PAGE.read_text()), list[str]()
    for part in options.parts or PARTS:
        rows = PARTS[part](options.times)
        for row in rows:
            print(f"| {row} | {table.get((part, row.name), NONE)} | `{part}` |", flush=True)
        faults += budgets.faults(part, rows, table)
    if faults:
        raise SystemExit("\n".join(["", *faults]))


def _alone(part: str, options: argparse.Namespace) -> str:
    match part:
        case "recovery":
            return recovery.report()
        case "footprint":
            return footprint.report()
        case "ledger":
            return ledger.report(options.minutes)
        case _:
            plan = soak.Plan(options.minutes, options.rate, options.kill_every, options.failing)
            return soak.soak(plan)


if __name__ == "__main__":
    main()
