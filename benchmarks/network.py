"""A broker that is far away: what arrives, how old it is, and how soon a backlog is drained."""

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.ear import Ear, Heard
from benchmarks.measures import CLIENTS, end, job
from benchmarks.rows import Row, note, percentile, ratio_row
from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy, Way

STOCK, MANY = 20, 2000
"""Receive Maximum: mosquitto's default, and one that is in nobody's way. `max_inflight_messages` sets it."""
SETTLING, MEASURED = 20.0, 10.0
"""Seconds. At the start each device is announced too, with a message that takes its place in the window: 200 of them
take four seconds where 50 messages a second get through, and they take turns with the readings."""
BACKLOG_DEVICES, BACKLOG = 15, 9600  # benchmarks.job.BACKLOG of each


def distant(_: int) -> list[Row]:
    """200 devices at 1 s, a broker 200 ms away."""
    rows = []
    for most, wanted in ((MANY, ("200/s", "≤ 0.6 s")), (STOCK, ("≥ 45/s", "–"))):
        note(f"200 devices at 1 s, 200 ms each way, Receive Maximum {most}")
        with ThreadPoolExecutor() as pool:  # they compute little, and wait
            arrived = pool.map(lambda side, most=most: _arrived(side, most), CLIENTS)
        found = dict(zip(CLIENTS, arrived, strict=True))
        for place, name, unit in (
            (0, f"200 devices at 1 s, 200 ms each way, Receive Maximum {most}: arrive", "/s"),
            (1, f"… Receive Maximum {most}: age, median", "s"),
            (2, f"… Receive Maximum {most}: age, p99", "s"),
        ):
            rows.append(ratio_row(name, unit, {side: found[side][place] for side in CLIENTS}, wanted[min(place, 1)]))
    return rows


def _arrived(side: str, most: int) -> tuple[float, float, float]:
    """Readings a second after `SETTLING` seconds; the median and p99 of their ages."""
    with Mosquitto(f"max_inflight_messages {most}\n") as broker, Proxy(broker.port, Way(delay=0.2)) as proxy:
        ear = Ear(broker.port)
        process = job(side, proxy.port, 200, 1, 0, "stamped")
        ear.wait()
        time.sleep(SETTLING)
        first = len(ear.heard)
        time.sleep(MEASURED)
        heard = ear.heard[first:]
        end(process)
        ear.close()
    ages = [each.age for each in heard]
    return len(heard) / MEASURED, percentile(ages, 0.5), percentile(ages, 0.99)


def backlog(_: int) -> list[Row]:
    """15 devices that kept 9,600 readings while the broker, 25 ms away, did not run."""
    rows = []
    for most, wanted in ((MANY, "≥ 2,000/s"), (STOCK, "–")):
        note(f"a backlog of {BACKLOG:,}, 25 ms each way, Receive Maximum {most}")
        found = {side: _drained(side, most) for side in CLIENTS if side != "bare"}
        rows += [
            ratio_row(
                f"backlog of {BACKLOG:,} of 15 devices, 25 ms each way, Receive Maximum {most}: drained",
                "/s",
                {side: rate for side, (rate, _) in found.items()},
                wanted,
            ),
            ratio_row(
                "… age of live readings meanwhile, at most",
                "s",
                {side: age for side, (_, age) in found.items()},
                "≤ 2 s",
            ),
        ]
    return rows


def _drained(side: str, most: int, patience: float = 90.0) -> tuple[float, float]:
    """Readings a second from the first to the last of the backlog, and the greatest age in seconds of a reading that
    was taken after the first had come. What has not come after `patience` seconds is not waited for."""
    broker = Mosquitto(f"max_inflight_messages {most}\n")
    with Proxy(broker.port, Way(delay=0.025)) as proxy:
        process = job(side, proxy.port, BACKLOG_DEVICES, 1, 0, "backlog")
        assert process.stdout is not None
        assert process.stdout.readline() == "full\n"
        with broker:
            old, live = list[Heard](), list[Heard]()
            ear = Ear(broker.port, hand_on=lambda heard: (old if heard.reading["n"] >= 0 else live).append(heard))
            patient = time.perf_counter() + patience
            while len(old) < BACKLOG and time.perf_counter() < patient:
                time.sleep(0.1)
            time.sleep(1.5)  # for a live reading more
            end(process)
            ear.close()
    ages = [heard.age for heard in live if heard.reading["at"] > old[0].wall]
    return len(old) / (old[-1].at - old[0].at), max(ages, default=float("nan"))
