"""The process of the app ends, hangs or is killed."""

import json
import logging
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import mqtt5
from benchmarks.ear import Ear

from fault_matrix.answers import SILENCE, judging, reading, refusing
from fault_matrix.broker import FIVE, WINDOW
from fault_matrix.row import P0, P1, row
from fault_matrix.stand import MAX_EXIT_SECONDS, WITHIN, Job, Stand, good, greet
from leadsman import App, CircuitBreaker
from leadsman.testing import Harness, Scripted
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.byte_broker import Peer
from leadsman_rigs.proxy import Way

SETTLED = 150
"""Readings of some seconds. An outbox on disk may still hold them when they are acknowledged, and send them again."""
RESTART = 60.0
"""Seconds within which an app that starts again has delivered what it kept. A busy machine starts it slowly."""


@row("14", P0, "the app is killed (-9) while it is connected, 3 times", "every accepted reading arrives, in order")
def killed_online(stand: Stand) -> None:
    broker = stand.broker()
    stand.listen(broker.port)
    app = stand.app(broker.url, FIVE)
    kills = []
    for _ in range(3):
        came = stand.tally.came
        stand.until(lambda came=came: stand.tally.came >= came + 100, "100 readings")
        app.kill()
        kills.append(time.time())
        app.start()
    stand.until(lambda: stand.tally.came >= 350, "350 readings")
    stand.arrive(app, 20, kills)
    stand.figure("lost, of any age", sum(map(len, stand.tally.lost(app.taken(kills[-1])).values())))
    stand.order(duplicates=3 * (WINDOW + SETTLED))
    stand.stop(app)


@row("13", P0, "the app is killed (-9) while the broker is away", "every accepted reading arrives later")
def killed_offline(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    stand.lead_nowhere(proxy)
    app = stand.app(proxy.url, FIVE)
    kills = []
    for life in range(3):
        stand.until(lambda life=life: app.readings >= 80 * (life + 1), "80 readings are taken")
        time.sleep(WITHIN)
        app.kill()
        kills.append(time.time())
        app.start()
    proxy.target = broker.port
    stand.until(lambda: stand.tally.came >= 10, "10 readings")
    stand.arrive(app, 20, kills)
    stand.order(duplicates=0)
    stand.stop(app)


CEASING = """\
SILENT = os.environ["LEDGER"] + ".silent"

class Ceasing(Meter):
    async def __call__(self):
        if os.path.exists(SILENT):
            raise OSError("no answer")
        return await super().__call__()

def ceasing(count, interval):
    for number in range(count):
        app.add_telemetry(f"d{number}", Ceasing(f"d{number}"), interval=interval)

"""
"""Devices that give no reading as long as there is a file beside the ledger."""


@row(
    "13b",
    P1,
    "killed (-9) 0.15 to 0.9 s after the end of an outage, 4 times; the next life reads nothing",
    "the broker keeps the newest reading of each device",
)
def killed_after_an_outage(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    app = stand.app(proxy.url, CEASING + "ceasing(5, 0.1)")
    silent = silence(app)
    older = {}
    for delay in (0.15, 0.3, 0.6, 0.9):
        came = stand.tally.came
        stand.until(lambda came=came: stand.tally.came > came, "readings")
        stand.lead_nowhere(proxy)
        time.sleep(1.5)
        came = stand.tally.came
        proxy.target = broker.port
        stand.until(lambda came=came: stand.tally.came >= came + 50, "what waited")
        time.sleep(delay)
        app.kill()
        silent.touch()
        live_silently(stand, app)
        time.sleep(1)
        kept = retained_numbers(stand, broker.port)
        newest = {device: max(numbers) for device, numbers in stand.tally.numbers.items()}
        older |= {f"{device} after {delay} s": number for device, number in kept.items() if number < newest[device]}
        app.kill()
        silent.unlink()
        app.start()
    stand.figure("devices whose retained reading is older than the newest", len(older), most=0)
    stand.expect(not older, f"older: {older}")
    came = stand.tally.came
    stand.until(lambda: stand.tally.came > came, "readings")
    stand.stop(app)


@row(
    "13c",
    P1,
    "a reading is not acknowledged, or refused for now (0x97), newer ones are taken; killed (-9); the next life reads"
    " nothing",
    "the older reading comes, and the broker keeps the newest of each device",
)
def killed_before_an_older_reading_arrived(stand: Stand) -> None:
    kept: dict[str, int] = {}
    withheld, newer = {"d0": SILENCE, "d1": 0x97}, {"d0": 0, "d1": 0}

    def judge(packet: mqtt5.PublishPacket) -> int:
        device, number = reading(packet)
        if withheld and number == 5 and device in withheld:
            return withheld[device]
        if device:
            newer[device] = max(newer[device], number)
            if packet.retain:
                kept[device] = number
        return 0

    broker = stand.faulty(judging(judge))
    proxy = stand.proxy(urlsplit(broker.url).port, Way(delay=0.03))
    app = stand.app(proxy.url, CEASING + "ceasing(2, 0.02)")
    stand.until(lambda: min(newer.values()) > 5, "newer readings of both")
    time.sleep(1)
    silence(app).touch()
    time.sleep(WITHIN + 1)  # the older ones are on disk, and the newer ones that were there are not any more
    app.kill()
    withheld.clear()
    live_silently(stand, app)
    stand.until(lambda: all(5 in stand.tally.numbers[device] for device in newer), "the older readings")
    time.sleep(1)
    older = {device: number for device, number in kept.items() if number < newer[device]}
    stand.figure("devices whose retained reading is older than the newest", len(older), most=0)
    stand.expect(not older, f"older: {older}, newest: {newer}")
    stand.stop(app)


def silence(app: Job) -> Path:
    """The file that keeps the devices of an app silent, see `CEASING`."""
    return app.ledger.with_name(f"{app.ledger.name}.silent")


def live_silently(stand: Stand, app: Job) -> None:
    """Start an app whose devices are silent, and wait until each of them failed."""
    before, devices = app.log.count("failing: OSError"), len(app.taken())
    app.start()
    stand.until(lambda: app.log.count("failing: OSError") >= before + devices, "each device fails")


def retained_numbers(stand: Stand, port: int) -> dict[str, int]:
    """The numbers of the readings that a broker keeps, by device: of each device that gave one."""
    ear = Ear(port, ("row/+/state",))

    def kept() -> dict[str, int]:
        heard = [each for each in list(ear.heard) if each.retained]
        return {each.topic.split("/")[1]: json.loads(each.payload)["n"] for each in heard}

    stand.until(lambda: kept().keys() >= stand.tally.numbers.keys(), "a retained reading of each device")
    ear.close()
    return kept()


class Phases:
    """One app in each phase of its connection, and the brokers that keep it there."""

    def __init__(self, stand: Stand) -> None:
        self.stand, self.opened = stand, time.monotonic()
        self.frozen = stand.broker()
        stand.listen(self.frozen.port)
        self.hole = socket.socket()
        self.hole.bind(("127.0.0.1", 0))
        self.hole.listen(0)
        self.fillers = [socket.socket() for _ in range(4)]
        for filler in self.fillers:  # the next connection attempt is never answered
            filler.setblocking(False)
            filler.connect_ex(self.hole.getsockname())
        self.jobs: dict[str, Job] = {}

    def __enter__(self) -> "Phases":
        hang, mute = Peer.hang, judging(lambda packet: SILENCE)
        for phase, url in {
            "backoff": f"mqtt://127.0.0.1:{free_port()}",
            "SYN": f"mqtt://127.0.0.1:{self.hole.getsockname()[1]}",
            "CONNACK": self.stand.faulty(hang).url,
            "PUBACK": self.stand.faulty(mute).url,
            "connected": self.stand.faulty(good).url,
            "SIGSTOP": self.frozen.url,
            "replay": self.stand.faulty(self._slow).url,
            "bad credentials": self.stand.faulty(refusing(0x86, [])).url,
        }.items():
            self.jobs[phase] = self.stand.app(url, "meters(5, 0.1)", phase.replace(" ", "-"))
        return self

    def _slow(self, peer: Peer) -> None:
        """Leave at once for some seconds; then acknowledge 20 messages a second."""
        if time.monotonic() - self.opened < 4:
            return
        greet(peer)
        while True:
            peer.answer(peer.packet())
            time.sleep(0.05)

    def reach(self) -> None:
        """Wait until each app has taken readings, and the one before the frozen broker has been connected."""
        for job in self.jobs.values():
            self.stand.until(lambda job=job: job.readings >= 50, "50 readings of each app")
        self.stand.until(lambda: self.stand.tally.came, "a reading at the broker that will be frozen")
        self.stand.until(lambda: "connected to the broker" in self.jobs["replay"].log, "the replay begins")
        self.frozen.freeze()
        time.sleep(1)

    def __exit__(self, *exc_info: object) -> None:
        self.frozen.thaw()
        for each in (*self.fillers, self.hole):
            each.close()


@row("15", P0, "SIGTERM in each of 8 phases of the connection", "ends within 1 s with exit code 0; figures: seconds")
def asked_to_end(stand: Stand) -> None:
    with Phases(stand) as phases:
        phases.reach()
        took = {phase: stand.stop(job) for phase, job in phases.jobs.items()}
    for phase, seconds in took.items():
        stand.figure(phase, seconds, most=MAX_EXIT_SECONDS)
    stand.figure("exits by the deadline", sum(job.process.returncode != 0 for job in phases.jobs.values()))


@row("15b", P0, "SIGTERM in 4 phases without delivery, and a restart", "no accepted reading is lost")
def asked_to_end_and_restarted(stand: Stand) -> None:
    accepted = {}
    with Phases(stand) as phases:
        phases.reach()
        for phase, job in phases.jobs.items():
            asked = time.time()
            stand.stop(job)
            # One that ended at its deadline was cut off, and what it took just before may be in no file.
            accepted[phase] = job.taken(asked - WITHIN) if job.process.returncode else job.taken()
    lost = {}
    for phase in ("backoff", "SYN", "CONNACK", "bad credentials"):
        broker, job, expected = stand.broker(), phases.jobs[phase], accepted[phase]
        stand.tally.clear()
        stand.listen(broker.port)
        job.environment["URL"] = broker.url
        job.start()
        began = time.monotonic()
        while stand.tally.lost(expected) and time.monotonic() - began < RESTART:
            time.sleep(0.05)
        lost[phase] = sum(map(len, stand.tally.lost(expected).values()))
        stand.expect(not lost[phase], f"{phase}: {lost[phase]} of {sum(map(len, expected.values()))} lost")
        job.kill()
    stand.figure("lost", sum(lost.values()), most=0)


STUBBORN = """
@app.telemetry("stubborn", interval=1, timeout=0.3)
async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

meters(5, 0.2)
"""


@row("20", P0, "a handler hangs and ignores its cancellation", "is left behind; the others run; the exit takes 1 s")
def stubborn(stand: Stand) -> None:
    broker = stand.broker()
    stand.listen(broker.port)
    app = stand.app(broker.url, STUBBORN)
    stand.until(lambda: stand.tally.came >= 5, "readings")
    came, began = stand.tally.came, time.monotonic()
    time.sleep(5)
    rate = (stand.tally.came - came) / (time.monotonic() - began)
    stand.figure("rate of the others, of 25", rate, "readings/s", least=20)
    reported = "row/stubborn/error"
    waited = stand.until(lambda: any(topic == reported for topic, _ in list(stand.heard)), "a report of it")
    stand.figure("reported after further", waited, "s")
    stand.arrive(app)
    stand.figure("exit took", stand.stop(app), "s")


@row("21", P0, "a handler raises each time, for an hour of virtual time", "slows down, reports; the others run on")
def raising(stand: Stand) -> None:
    app = App("row", heartbeat=30)
    bad, well = Scripted(RuntimeError("no")), Scripted({"t": 1.0})
    app.add_telemetry("bad", bad, interval=1, retry=2, circuit_breaker=CircuitBreaker())
    app.add_telemetry("good", well, interval=10)
    logger = logging.getLogger("leadsman")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with Harness(app) as harness:
            harness.run("1h")
            readings, errors = len(harness.states("good")), len(harness.errors("bad"))
            stand.expect(harness.status()["health"] == "degraded", "health is not degraded")
    finally:
        logger.setLevel(before)  # which also forgets what was not enabled
    stand.figure("calls of it", len(bad.calls), most=2000)
    stand.figure("messages about it", errors, least=1, most=60)
    stand.figure("readings of another device, of 360", readings, least=358)
