"""What the servers of devices over HTTP do."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fault_matrix.row import P1, row
from fault_matrix.stand import Job, Stand
from leadsman.testing import Recorded
from leadsman_rigs.proxy import Proxy
from leadsman_rigs.web import Web

PLUG = """
from leadsman.adapters.http import HttpClient

http = HttpClient(os.environ["WEB"], timeout="1s")
app = App("row", mqtt=os.environ["URL"], settings=Settings, heartbeat=1, adapters=(http,))

@app.telemetry("plug", interval=0.5)
async def plug(http: HttpClient):
    return await http.get_json("/status")

meters(2, 0.2)
"""
AWAY, PAUSE = 4.0, 4
"""Seconds that a server is away, and that it asks a client to wait."""
SLOW = 2.0
"""Seconds that a call and a poll may take, on a busy machine."""


@contextmanager
def plug(stand: Stand, answer: Callable[[], object]) -> Iterator[tuple[Job, Proxy]]:
    """An app that reads a plug over HTTP, and two other devices. At the end these have lost nothing."""
    broker = stand.broker()
    stand.listen(broker.port)
    with Web({"/status": lambda request: answer()}) as web:
        proxy = stand.proxy(web.port)
        app = stand.app(broker.url, PLUG, WEB=f"http://127.0.0.1:{proxy.port}")
        stand.until(lambda: len(stand.tally.numbers["plug"]) >= 3, "readings of the plug")
        yield app, proxy
        stand.arrive(app)
        stand.order(duplicates=0)
        stand.stop(app)


def errors(stand: Stand) -> int:
    """How many errors of the plug were published."""
    return sum(topic == "row/plug/error" for topic, _ in list(stand.heard))


def read_again(stand: Stand) -> float:
    """Wait for the next reading of the plug; returns the seconds that it took."""
    before = len(stand.tally.numbers["plug"])
    return stand.until(lambda: len(stand.tally.numbers["plug"]) > before, "the plug is read again")


def away(stand: Stand, leave: Callable[[Proxy], object]) -> None:
    """Take the server away for some seconds."""
    numbers = itertools.count(1)
    with plug(stand, lambda: {"n": next(numbers)}) as (app, proxy):
        port = proxy.target
        leave(proxy)
        stand.figure("reported after", stand.until(lambda: errors(stand), "an error of the plug"), "s", most=SLOW)
        before = app.readings
        time.sleep(AWAY)
        stand.figure("readings of the others meanwhile, of 40", app.readings - before, least=30)
        proxy.target = port
        proxy.resume()
        stand.figure("read again after", read_again(stand), "s", most=SLOW)


@row(
    "46b",
    P1,
    "the server of an HTTP device accepts connections and is silent",
    "only its device fails, and is read again",
)
def silent(stand: Stand) -> None:
    away(stand, Proxy.stall)


@row("46c", P1, "the server of an HTTP device is gone, and comes back", "only its device fails, and is read again")
def gone(stand: Stand) -> None:
    away(stand, stand.lead_nowhere)


@row("46d", P1, f"an HTTP device answers 429 with Retry-After: {PAUSE}", "it is not asked meanwhile, and nothing fails")
def asked_to_wait(stand: Stand) -> None:
    asked: list[float] = []

    def answer() -> object:
        asked.append(time.monotonic())
        return Recorded("", 429, {"Retry-After": str(PAUSE)}) if len(asked) == 5 else {"n": len(asked)}

    with plug(stand, answer):
        stand.until(lambda: len(asked) > 5, "the plug is asked again")
        stand.figure("asked again after", asked[5] - asked[4], "s", least=PAUSE, most=PAUSE + SLOW)
        read_again(stand)
        stand.figure("errors", errors(stand), most=0)
