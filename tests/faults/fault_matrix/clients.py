"""What other clients of the broker do."""

import json
import socket
import struct
import time

from benchmarks.ear import CONNECT

from fault_matrix.process import retained_numbers
from fault_matrix.row import P1, row
from fault_matrix.stand import Stand
from leadsman_rigs.proxy import Way

INTERVAL = 0.2
"""Seconds between two readings of a device."""
COMMANDED = f"""
@app.command("boiler")
async def boiler(number: int): ...

meters(2, {INTERVAL})
"""
FAR = 0.025
"""Seconds to the broker, one way."""
RATE, FLOOD, AFTER = 2000, 8.0, 5.0
"""Commands a second; seconds for which they come, and for which the devices are watched after that."""
MIN_SHARE = 0.9
"""The part of the readings that are due in that time which a device must give. When they come is a figure without a
limit: broker, proxy and subscriber share the machine with the app, and they are as late as it is busy."""


def flood(port: int, topic: str, rate: float, seconds: float) -> int:
    """Publish numbers with QoS 0; returns how many."""
    sent, began = 0, time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(_packet(0x10, CONNECT + _text("flood")))
        client.recv(4)
        while (passed := time.monotonic() - began) < seconds:
            due = round(passed * rate)
            client.sendall(b"".join(_packet(0x30, _text(topic) + b"%d" % number) for number in range(sent, due)))
            sent = due
            time.sleep(0.01)
    return sent


def _packet(kind: int, content: bytes) -> bytes:
    """A packet of less than 128 bytes."""
    return bytes((kind, len(content))) + content


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


@row(
    "63",
    P1,
    "2,000 commands a second for one device, from a broker 25 ms away",
    "answers or refuses and counts them; the other devices lose nothing, during the flood and after it",
)
def flood_of_commands(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port, Way(delay=FAR))
    stand.listen(broker.port)
    app = stand.app(proxy.url, COMMANDED)
    stand.until(lambda: stand.tally.came >= 10, "10 readings")
    proxy.stall()
    time.sleep(1)
    proxy.resume()  # readings had to wait, so from now on they do so on disk, too
    stand.arrive(app)

    def came() -> int:
        return len(stand.tally.numbers["d0"])

    def taken(began: float, ended: float) -> float:
        """The part of the readings that were due, from `began` to `ended`."""
        return (len(app.taken(ended)["d0"]) - len(app.taken(began)["d0"])) / ((ended - began) / INTERVAL)

    began, before = time.time(), came()
    sent = flood(broker.port, "row/boiler/set", RATE, FLOOD)
    over, during = time.time(), came()
    time.sleep(AFTER)
    ended, after = time.time(), came()
    stand.figure("commands", sent, least=RATE * FLOOD / 2)
    stand.figure("readings during the flood, of those due", taken(began, over), least=MIN_SHARE)
    stand.figure("after it", taken(over, ended), least=MIN_SHARE)
    stand.figure("delivered during the flood", (during - before) / ((over - began) / INTERVAL))
    stand.figure("delivered after it", (after - during) / ((ended - over) / INTERVAL))
    stand.figure("answers", sum(topic == "row/boiler/set/result" for topic, _ in list(stand.heard)), least=1)
    stand.figure("connections", proxy.done.accepted, most=1)
    stand.arrive(app)
    stand.figure("out of order", stand.tally.disordered)
    stand.figure("duplicates", stand.tally.duplicates)
    newest = {device: max(numbers) for device, numbers in stand.tally.numbers.items()}
    kept = retained_numbers(stand, broker.port)
    older = [device for device, number in newest.items() if kept[device] < number]
    stand.figure("devices whose retained reading is older than the newest", len(older), most=0)
    status = [json.loads(payload) for topic, payload in list(stand.heard) if topic == "row/status"][-1]
    stand.figure("missed polls", status["devices"]["d0"].get("missed_polls", 0))
    stand.figure("dropped", status["mqtt"]["outbox"]["dropped"])
    stand.stop(app)
