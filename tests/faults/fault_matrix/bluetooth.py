"""What a Bluetooth sensor says, and what it says no more."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fault_matrix.row import P1, row
from fault_matrix.stand import Stand
from leadsman_rigs.esphome_board import Board, of_maker, packet

GATEWAY = """
from leadsman.adapters.ble import BleRadio, Decoders
from leadsman.adapters.ble.proxy import Proxy

board = Proxy(host="127.0.0.1", port=int(os.environ["BOARD"]))
adapters = (BleRadio(local=False, proxies=[board]), Decoders())
app = App("row", mqtt=os.environ["URL"], settings=Settings, heartbeat=1, adapters=adapters)

@app.source("gateway", finds=Finds(stale_after="3s"), silence=None)
async def gateway(radio: BleRadio, decoders: Decoders, context: Context):
    number = 0
    async for heard in decoders.measurements(radio):
        number += 1
        context.device("attic", fields=heard.fields).publish({"n": number, **heard.recent})
        yield

meters(2, 0.2)
"""
ADDRESS = "A4:C1:38:00:11:22"
NAME = (0x09, b"Govee_H5074_1122")
VALUES = of_maker({0xEC88: bytes.fromhex("004a082c116402")})
"""Of a thermometer that has its name in one packet, and its values in another (home-assistant/core#174507)."""
STALE, SLOW, LISTENED = 3.0, 5.0, 3.0
"""Seconds after which a device is stale, that a busy machine may take longer, and for which names are heard then."""


class Air:
    """A board, and a sensor that it hears ten times a second."""

    def __init__(self) -> None:
        self.says: list[tuple[int, bytes]] = [NAME, *VALUES]
        self.packets = 0
        self.board = Board()
        self._loop = asyncio.new_event_loop()
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> "Air":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        async with self.board:
            self._ready.set()
            while not self._end.is_set():
                self.board.hear(ADDRESS, packet(*self.says))
                self.packets += self.board.subscriber is not None
                await asyncio.sleep(0.1)


@contextmanager
def gateway(stand: Stand) -> Iterator[Air]:
    """An app that hears a sensor, and two other devices. At the end these have lost nothing."""
    broker = stand.broker()
    stand.listen(broker.port)
    with Air() as air:
        app = stand.app(broker.url, GATEWAY, BOARD=str(air.board.port))
        stand.until(lambda: len(stand.tally.numbers["attic"]) >= 3, "values of the sensor")
        yield air
        stand.arrive(app)
        stand.stop(app)


@row(
    "48b",
    P1,
    "of a Bluetooth sensor only the name is heard, ten times a second",
    "it is offline, nothing old is published as new, and it is back with its values",
)
def name_alone(stand: Stand) -> None:
    def availability() -> bytes:
        return [each for topic, each in list(stand.heard) if topic == "row/attic/availability"][-1]

    with gateway(stand) as air:
        air.says = [NAME]
        took = stand.until(lambda: availability() == b"offline", "the sensor is offline")
        stand.figure("offline after", took, "s", most=STALE + SLOW)
        values, packets = len(stand.tally.numbers["attic"]), air.packets
        stand.until(lambda: air.packets - packets >= 10 * LISTENED, "names of the sensor")
        stand.figure("names heard then", air.packets - packets, least=10 * LISTENED)
        stand.figure("values published then", len(stand.tally.numbers["attic"]) - values, most=0)
        stand.expect(availability() == b"offline", "the sensor is online, of which only the name is heard")
        air.says = [NAME, *VALUES]
        stand.figure(
            "online again after", stand.until(lambda: availability() == b"online", "values again"), "s", most=SLOW
        )
