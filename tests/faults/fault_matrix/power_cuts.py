"""Broker, app and power fail at random. ``make faults ARGS="55c --minutes 10 --seed 7"`` goes on for ten minutes.

What was accepted is known from the app itself: it writes down each reading that the broker acknowledged or that was
committed to disk. Its disk is `leadsman_rigs.synced_disk`, so that a power cut costs what was not synced.
"""

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime

from benchmarks.ear import Ear

from fault_matrix.chaos import SECONDS, Chaos
from fault_matrix.row import P0, row
from fault_matrix.stand import Stand
from fault_matrix.tally import taken
from leadsman_rigs.synced_disk import cut_power

DEVICES = 10
TIME_OFF = 1.0
"""Seconds between the time of a reading and what its device says, at most."""
CODE = f"""
import json
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.spool.file import SpoolFile
from leadsman_rigs.synced_disk import install

disk = install(os.environ["SYNCED"])
ACKNOWLEDGED, COMMITTED = (
    os.open(os.environ[name], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) for name in ("ACKNOWLEDGED", "COMMITTED")
)

def note(messages, ledger):
    for message in messages:
        if message.topic.endswith("/state"):
            device, number = message.topic.split("/")[1], json.loads(message.payload)["n"]
            os.write(ledger, f"{{device}} {{number}} {{time.time()}}\\n".encode())

def accept(outbox, item, original=Outbox.accept):
    message = item.message
    found = original(outbox, item)
    note([message], ACKNOWLEDGED)
    return found

def write(file, add, settled, dead=(), original=SpoolFile.write):
    evicted = original(file, add, settled, dead)
    note(add, COMMITTED)
    return evicted

Outbox.accept, SpoolFile.write = accept, write

for number in range({DEVICES}):
    name = f"d{{number}}"
    app.add_telemetry(name, Meter(name), interval=0.2, delivery=Delivery(taken_at="payload"))
"""


@row(
    "55c",
    P0,
    f"broker (-9), app (-9, SIGSTOP), network and power fail at random, for {SECONDS:g} s",
    "all that was accepted arrives, in order, with its time",
)
def everything_at_random(stand: Stand) -> None:
    PowerCuts(stand).run_all()


class PowerCuts(Chaos):
    """An app on a disk whose power can be cut, and a broker that keeps what is retained. It saves each second: if it
    saved each message, it would take fewer readings than come."""

    def __init__(self, stand: Stand) -> None:
        self.synced = stand.directory / "synced"
        self.acknowledged, self.committed = stand.directory / "acknowledged", stand.directory / "committed"
        kept = stand.directory / "mosquitto"
        kept.mkdir()
        conf = f"persistence true\npersistence_location {kept}/\nautosave_interval 1\n"
        ledgers = {"ACKNOWLEDGED": str(self.acknowledged), "COMMITTED": str(self.committed)}
        super().__init__(stand, CODE, conf, SYNCED=str(self.synced), **ledgers)

    def run_all(self) -> None:
        """Let everything fail, and compare what was accepted with what came."""
        self.stand.until(lambda: self.stand.tally.came >= 50, "50 readings")
        faults = [self.kill_broker, self.freeze, self.cut, self.lead_nowhere, self.stop_for_a_while]
        faults += [self.kill_app, self.kill_without_broker, self.cut_power, self.cut_power_without_broker]
        self.fail(faults)
        with_kills = self.done["kill_app"] + self.done["kill_without_broker"]
        cuts = self.done["cut_power"] + self.done["cut_power_without_broker"]
        stand = self.stand
        stand.figure("faults", self.done.total(), least=3)
        for name, number in (("broker killed", self.done["kill_broker"]), ("app killed", with_kills), ("cuts", cuts)):
            stand.figure(name, number)
        self._compare()

    def _compare(self) -> None:
        stand = self.stand
        came = stand.tally.came
        stand.until(lambda: stand.tally.came >= came + 5 * DEVICES, "readings after the last fault")
        acknowledged, expected = taken(self.acknowledged), taken(self.committed)
        committed = sum(map(len, expected.values()))
        for device, numbers in acknowledged.items():
            expected[device] |= numbers
        began = time.monotonic()
        while stand.tally.lost(expected) and time.monotonic() - began < 60:
            time.sleep(0.1)
        took = stand.stop(self.app)
        stand.figure("taken", self.app.readings)
        stand.figure("committed", committed, least=1)
        stand.figure("acknowledged", sum(map(len, acknowledged.values())), least=1)
        stand.figure("accepted and lost", sum(map(len, stand.tally.lost(expected).values())), most=0)
        numbers = {device: [*each] for device, each in stand.tally.numbers.items()}
        stand.figure("accepted and out of order", disordered(numbers, expected), most=0)
        stand.figure("with a wrong time", wrong_times(stand.heard), most=0)
        stand.figure("duplicates", stand.tally.duplicates, most=200 * self.done.total())
        stand.figure("topics whose retained reading is not the newest", self._stale(), most=0)
        state = stand.directory / "app-state"
        stand.figure("damaged files", len(list(state.glob("*.bad-*"))), most=0)
        stand.figure("exit took", took, "s")

    def _stale(self) -> int:
        """Topics whose retained reading is not the newest that came."""
        found = dict[str, int]()

        def hear(topic: str, payload: bytes) -> None:
            found[topic.split("/")[1]] = json.loads(payload)["n"]

        ear = Ear(self.broker.port, ("row/+/state",), hand_on=lambda heard: hear(heard.topic, heard.payload))
        self.stand.until(lambda: len(found) == DEVICES, "a retained reading of each device")
        ear.close()
        return sum(found[device] != max(numbers) for device, numbers in self.stand.tally.numbers.items())

    def stop_for_a_while(self) -> None:
        """Stop the app as a debugger does."""
        self.app.process.send_signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.2, 3))
        self.app.process.send_signal(signal.SIGCONT)

    def cut_power(self) -> None:
        """Cut the power of the machine with the app, sometimes that of the broker as well."""
        if self.dice.random() < 0.3:
            self.kill_broker()
        self.app.kill()
        cut_power(self.stand.directory / "app-state", self.synced, self.dice)
        self.app.start()

    def kill_without_broker(self) -> None:
        """Kill the app some time after it lost its broker."""
        self._without_broker(self.kill_app)

    def cut_power_without_broker(self) -> None:
        """Cut the power some time after the app lost its broker."""
        self._without_broker(self.cut_power)

    def _without_broker(self, fault: Callable[[], None]) -> None:
        self.stand.lead_nowhere(self.proxy)
        time.sleep(self.dice.uniform(0.1, 3))
        fault()
        time.sleep(self.dice.uniform(0.1, 3))
        self.proxy.target = self.broker.port


def disordered(numbers: Mapping[str, Sequence[int]], accepted: Mapping[str, Set[int]]) -> int:
    """How many accepted readings came after a later accepted one of their device. `numbers`: as they came first."""
    found = 0
    for device, each in numbers.items():
        latest = 0
        for number in (number for number in each if number in accepted.get(device, ())):
            found += number < latest
            latest = max(latest, number)
    return found


def wrong_times(heard: Sequence[tuple[str, bytes]]) -> int:
    """How many messages have another time than that at which their device was read."""
    readings = [json.loads(payload) for topic, payload in heard if topic.endswith("/state")]
    offs = (datetime.fromisoformat(each["taken_at"]).timestamp() - each["at"] for each in readings)
    return sum(abs(off) > TIME_OFF for off in offs)
