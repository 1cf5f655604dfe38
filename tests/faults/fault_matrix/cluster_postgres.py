"""Three nodes of a cluster whose engine is a real PostgreSQL server: it is killed, or frozen, and comes back."""

import time
from contextlib import ExitStack

from fault_matrix.cluster import AWAY, DEVICES, FENCED, LATE, LONG_LEASE, House, live_far_away
from fault_matrix.row import P1, row
from fault_matrix.stand import Stand
from leadsman_rigs.postgres_server import PostgresServer


@row("62h", P1, f"the PostgreSQL of a cluster is killed (-9) for {AWAY:g} s", "owners stop at 0.8 TTL, and come back")
def killed(stand: Stand) -> None:
    with ExitStack() as parts:
        engine = parts.enter_context(PostgresServer())
        house = House(stand, parts, engine.url())
        since = time.time()
        engine.kill()
        time.sleep(AWAY)
        _stopped(stand, house, since)
        back = time.time()
        engine.start()
        _read_again(stand, house, back)


@row(
    "62i",
    P1,
    f"the PostgreSQL of a cluster is frozen (SIGSTOP) for {AWAY:g} s",
    "owners stop at 0.8 TTL, and come back",
)
def frozen(stand: Stand) -> None:
    with ExitStack() as parts:
        engine = parts.enter_context(PostgresServer())
        house = House(stand, parts, engine.url())
        since = time.time()
        engine.freeze()
        time.sleep(AWAY)
        _stopped(stand, house, since)
        back = time.time()
        engine.thaw()
        _read_again(stand, house, back)


def _stopped(stand: Stand, house: House, since: float) -> None:
    last = max(at for job in house.jobs.values() for _, at in house.polls(job))
    stand.figure("the last poll after", last - since, "s", most=FENCED)


def _read_again(stand: Stand, house: House, back: float) -> None:
    devices = {f"d{number}" for number in range(DEVICES)}
    stand.figure("all are read after", house.takes_over(house.jobs.values(), devices, back), "s", most=LATE)
    stand.until(house.shared, "three nodes share the devices")
    house.account()


@row(
    "62k",
    P1,
    "PostgreSQL is 0.5, then 1 s away in each direction; TTL 15 s",
    "somebody reads each device, and nobody reads what another one reads; figures: the longest time between two polls",
)
def slow_postgres(stand: Stand) -> None:
    with ExitStack() as parts:
        engine = parts.enter_context(PostgresServer())
        road = stand.proxy(engine.port)
        url = engine.url().replace(f":{engine.port}/", f":{road.port}/")
        live_far_away(stand, House(stand, parts, url, LONG_LEASE), road, (0.5, 1.0))
