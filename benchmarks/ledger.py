"""``python -m benchmarks ledger --minutes 10``: whether the ledger of an app agrees with what a subscriber received.

The devices of `benchmarks.ledger_job` are read in real time, and publish to a real mosquitto. The broker is killed each
minute, as in `benchmarks.soak`, for long enough that readings wait. Each reading has a number, and it is known what
each call does. So for each device these must be equal, to the last one:

* the readings that were received, and ``published`` and ``replayed`` together;
* which readings were received, and which the plan of the device lets through;
* each other disposition, and the calls that cause it; an open circuit, a pause and a slow call cost further slots;
* the slots, and the sum of the dispositions.

The slots may differ by one from the time that passed, since the last one is due about when the app ends.
"""

import gc
import json
import signal
import subprocess
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import Any

from benchmarks import bare_python
from benchmarks.ear import Ear, Heard
from benchmarks.ledger_job import FAIL, HANG, HUGE, KINDS, NOTHING, PAUSE, READ, SLOW, Kind, names
from benchmarks.measures import ROOT, with_state
from benchmarks.rows import NONE, Row, note
from benchmarks.soak import restarted
from leadsman.extensions.ledger.ledger import PERIODS, Ledger
from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy

KILL_EVERY = 60.0
AWAY = 5.0
"""Seconds from the death of the broker to its return."""
REST = 15.0
"""Seconds before the end in which the broker is not killed any more, so that nothing waits."""
SHOWN = ("published", "replayed", "suppressed", "failed", "timed_out", "circuit_open", "deferred", "missed", "dropped")
MEASURED = 200
"""Ledgers of which the bytes are counted."""
HOUR = 3600.0


def differences(kind: Kind, said: Mapping[str, Any], received: Set[int]) -> Iterator[str]:
    """Where the ledger of one device differs from what a subscriber received and from the plan of its kind.

    Args:
        kind: that of the device.
        said: what the job printed of it.
        received: the numbers of the readings that the subscriber received.
    """
    counts, slots = Counter[str](said["counts"]), said["slots"]
    ended = range(1, said["calls"] + (not said["stopped"]))
    acts = Counter(map(kind.act, ended))
    taken = [number for number in ended if kind.act(number) in (READ, SLOW)]
    let_through = set(map(kind.shown, taken))
    exact = {
        "published and replayed": (counts["published"] + counts["replayed"], len(received)),
        "suppressed": (counts["suppressed"], acts[NOTHING] + len(taken) - len(let_through)),
        "failed": (counts["failed"], 0 if kind.retried else acts[FAIL]),
        "timed out": (counts["timed_out"], acts[HANG]),
        "dropped": (counts["dropped"], acts[HUGE]),
        "buffered": (counts["buffered"], 0),
        "all dispositions": (counts.total(), slots),
    }
    yield from (f"{word}: {ours:,} instead of {others:,}" for word, (ours, others) in exact.items() if ours != others)
    least = {
        "deferred": acts[PAUSE],
        "circuit_open": "circuit_breaker" in kind.options and acts[FAIL] > 3,
        "missed": 2 * acts[SLOW],
    }
    for word, fewest in least.items():
        if counts[word] < fewest or (counts[word] and not fewest and word != "missed"):
            yield f"{word}: {counts[word]:,}, and there were {fewest:,} at least"
    if unequal := let_through ^ received:
        yield f"readings that came and should not, or the reverse: {sorted(unequal)[:10]}"
    if abs(slots - 1 - said["seconds"] / kind.interval) > 1:
        yield f"slots: {slots:,} in {said['seconds']:.1f} s at {kind.interval:g} s"


class _Subscriber:
    """Counts the readings of each device."""

    def __init__(self) -> None:
        self.received: dict[str, set[int]] = defaultdict(set)
        self.twice = 0
        """Readings that came once more: after a break, or because they are retained."""

    def heard(self, heard: Heard) -> None:
        """Count a message."""
        numbers, number = self.received[heard.topic.split("/")[1]], int(heard.reading["n"])
        self.twice += number in numbers
        numbers.add(number)


def report(minutes: float) -> str:
    """Run it for so long. Returns what came of it, as Markdown.

    Raises:
        SystemExit: the ledger differs from what was received. It has the report.
    """
    subscriber, kills, seconds = _Subscriber(), 0, minutes * 60
    with Mosquitto() as broker, Proxy(broker.port) as proxy:
        ear = Ear(broker.port, hand_on=subscriber.heard)
        command = [bare_python.executable(), "-m", "benchmarks.ledger_job", str(proxy.port)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=with_state(), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            began = time.monotonic()
            while (passed := time.monotonic() - began) < seconds:
                time.sleep(min(1.0, seconds - passed))
                if KILL_EVERY * (kills + 0.5) < passed < seconds - AWAY - REST:
                    kills += 1
                    ear = restarted(broker, proxy, ear, subscriber.heard, AWAY)
                    note(f"killed {kills} times; {sum(map(len, subscriber.received.values())):,} readings came")
            process.send_signal(signal.SIGTERM)
            said = json.loads(process.communicate(timeout=30)[0])
        finally:
            process.kill()
        ear.close()
    return _judged(said, subscriber, f"{minutes:g} minutes; the broker was killed {kills} times, for {AWAY:g} s each")


def _judged(said: Mapping[str, Any], subscriber: _Subscriber, heading: str) -> str:
    lines = [
        "",
        f"| kind | devices | slots | received | {' | '.join(word.replace('_', ' ') for word in SHOWN)} |",
        "|---" * (len(SHOWN) + 4) + "|",
    ]
    found: list[str] = []
    for word, kind in KINDS.items():
        counts = sum((Counter(said[name]["counts"]) for name in names(word)), Counter[str]())
        slots = sum(said[name]["slots"] for name in names(word))
        received = sum(len(subscriber.received[name]) for name in names(word))
        cells = [kind.devices, slots, received, *(counts[each] for each in SHOWN)]
        lines.append(f"| {word} | {' | '.join(f'{cell:,}' for cell in cells)} |")
        for name in names(word):
            found += [f"* {name}: {each}" for each in differences(kind, said[name], subscriber.received[name])]
    lines[:0] = [
        f"* {sum(kind.devices for kind in KINDS.values())} devices, {heading}.",
        f"* {subscriber.twice:,} readings came once more. **Differences: {len(found)}**",
    ]
    if found:
        raise SystemExit("\n".join([*lines, "", *found]))
    return "\n".join(lines)


def history(_: int) -> list[Row]:
    """Rows of what the history of a device costs."""
    note("the history of the ledger")
    steady, gaps = bytes_per_hour(gap_each_hour=False), bytes_per_hour(gap_each_hour=True)
    return [
        Row("ledger: a device and hour, nothing lost", NONE, f"{steady:.0f} bytes", wanted="≤ 200"),
        Row("… with a gap each hour", NONE, f"{gaps:.0f} bytes", wanted="≤ 700"),
    ]


def bytes_per_hour(*, gap_each_hour: bool) -> float:
    """Bytes by which the ledger of a device grows in an hour, the mean of the two days that it keeps. They are those
    that were asked for, see `benchmarks.footprint`."""
    tracemalloc.start()
    ledgers = [Ledger(0.0) for _ in range(MEASURED)]
    before, _ = tracemalloc.get_traced_memory()
    for hour in range(PERIODS):
        for ledger in ledgers:
            period, begin = ledger.period, hour * HOUR
            period.sent, period.published, period.suppressed = 50, 50, 10
            if gap_each_hour:
                ledger.lost(period, "failed", begin + 60.0, 2)
                ledger.heard(begin + 180.0)
            ledger.begin(begin + HOUR, begin + HOUR)
    gc.collect()  # also frees the tuples that Python keeps for the next ones of their size
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / MEASURED / PERIODS
