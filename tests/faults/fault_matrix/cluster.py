"""Three nodes of a cluster, a real NATS server and a real broker: one of them dies, freezes, or is away for a while."""

import itertools
import json
import signal
import threading
import time
from contextlib import ExitStack

from fault_matrix.row import P0, P1, row
from fault_matrix.stand import Stand
from leadsman_rigs.listener import Listener
from leadsman_rigs.nats_server import NatsServer, nats_cluster

NODES = ("one", "two", "three")
DEVICES = 12
INTERVAL = 0.25
METERS = f"meters({DEVICES}, {INTERVAL})"
LEASE = 3.0
"""Seconds: the shortest TTL that an app accepts."""
LONG_LEASE = 15.0
"""Seconds: the default, which is longer than an election of NATS."""
LATE = 1.5 * LEASE + 2.0
"""Seconds until devices of a lost node are read; a busy machine may need two more."""
FENCED = 0.8 * LEASE + 1.0
"""Seconds until an owner stops that its engine does not answer; a busy machine may need one more."""
AWAY = 5.0
"""Seconds that an engine or a broker is away."""


class House:
    """A broker behind a proxy, three nodes that share twelve devices, and what came at the broker, with its tokens."""

    def __init__(self, stand, parts, engine, ttl=LEASE):
        self.stand, self.broker = stand, self._broker(stand)
        self.proxy = stand.proxy(self.broker.port)
        self.subscribed = threading.Event()
        self.heard = []
        """The device, the number and the time of its reading, and the token, in the order in which they came."""
        listener = Listener(self.broker.port)
        listener.client.on_message = self._hear
        listener.client.on_subscribe = lambda *_: self.subscribed.set()
        parts.enter_context(listener)
        self.subscribed.wait(30)
        self.jobs = {name: self._node(name, engine, CLUSTER__NODE=name, CLUSTER__TTL=f"{ttl:g}s") for name in NODES}
        stand.until(self.shared, "three nodes share the devices")

    def _broker(self, stand):
        return stand.broker()

    def _node(self, name, engine, **cluster):
        return self.stand.app(self.proxy.url, METERS, name, CLUSTER__ENGINE=engine, **cluster)

    def shared(self):
        """Whether each node reads devices, and all are read, each by one node."""
        owned = [self.read_by(job, time.time() - 6 * INTERVAL) for job in self.jobs.values()]
        return all(owned) and sum(map(len, owned)) == DEVICES == len(set().union(*owned))

    def polls(self, job):
        """The polls of a node: the device, and when, seconds of `time.time`."""
        return [(device, at) for device, at, _ in self.numbered(job)]

    def numbered(self, job):
        """The polls of a node with the number of the reading."""
        lines = job.ledger.read_text().splitlines() if job.ledger.exists() else []
        return [(device, float(at), int(number)) for device, number, at in map(str.split, lines)]

    def read_by(self, job, since):
        """The devices that a node has read from then on."""
        return {device for device, at in self.polls(job) if at >= since}

    def takes_over(self, jobs, devices, since):
        """Wait until these nodes have read all the devices; the seconds from `since` to the last of them."""

        def read():
            first = {}
            for job in jobs:
                for device, at in self.polls(job):
                    if at >= since and device in devices:
                        first[device] = min(at, first.get(device, at))
            return first

        self.stand.until(lambda: len(read()) == len(devices), "others read its devices", 60)
        return max(read().values()) - since

    def others(self, name):
        """The other nodes."""
        return [job for each, job in self.jobs.items() if each != name]

    def falls(self):
        """How many messages came with a smaller token than one before them on their topic."""
        greatest, count = {}, 0
        for device, _, _, token in list(self.heard):
            count += token < greatest.get(device, 0)
            greatest[device] = max(token, greatest.get(device, 0))
        return count

    def tokens(self, since):
        """The tokens of each device from then on."""
        return {(device, token) for device, _, at, token in list(self.heard) if at > since}

    def gap(self, since):
        """The longest time from a poll of a device to the next one, by whatever node, from then on."""
        polls = sorted(poll for job in self.jobs.values() for poll in self.polls(job) if poll[1] >= since)
        return max(two[1] - one[1] for one, two in itertools.pairwise(polls) if one[0] == two[0])

    def beside(self):
        """How many polls of a device lie between two of another node that are at most three intervals apart."""
        count = 0
        for device in {device for job in self.jobs.values() for device, _ in self.polls(job)}:
            polls = sorted(
                (at, name) for name, job in self.jobs.items() for each, at in self.polls(job) if each == device
            )
            for before, here, after in zip(polls, polls[1:], polls[2:], strict=False):
                count += before[1] == after[1] != here[1] and after[0] - before[0] <= 3 * INTERVAL
        return count

    def account(self):
        """Note the figures that every row has, and stop the nodes."""
        self.stand.figure("messages", len(self.heard), least=DEVICES)
        self.stand.figure("without a token", sum(not token for *_, token in list(self.heard)), most=0)
        self.stand.figure("after one with a greater token", self.falls(), most=0)
        for job in self.jobs.values():
            self.stand.stop(job)

    def _hear(self, client, userdata, message):
        self.stand.hear(message.topic, message.payload, message.retain)
        if message.topic.endswith("/state") and not message.retain:
            found = dict(getattr(message.properties, "UserProperty", []))
            reading = json.loads(message.payload)
            self.heard.append((message.topic.split("/")[1], reading["n"], reading["at"], int(found.get("fence", 0))))


@row("62", P0, "of three nodes of a cluster, one is killed (-9)", "the others read its devices within 1.5 TTL of 3 s")
def killed_node(stand: Stand) -> None:
    with ExitStack() as parts:
        house = House(stand, parts, parts.enter_context(NatsServer()).url)
        victim = house.jobs["two"]
        since = time.time()
        devices = house.read_by(victim, since - 4 * INTERVAL)
        victim.kill()
        stand.figure("its devices", len(devices), least=1)
        stand.figure("all are read after", house.takes_over(house.others("two"), devices, since), "s", most=LATE)
        victim.start()
        stand.figure("it has devices again after", stand.until(house.shared, "it has its part"), "s")
        stand.figure("longest time without a reading then", house.gap(time.time() - 2.0), "s", most=1.0)
        since, ended = time.time(), house.jobs["three"]
        devices = house.read_by(ended, since - 4 * INTERVAL)
        stand.stop(ended)
        stand.figure("by SIGTERM after", house.takes_over(house.others("three"), devices, since), "s", most=2.0)
        house.account()


@row(
    "62b",
    P0,
    "of three nodes of a cluster, one is frozen (SIGSTOP) for longer than its TTL, and goes on",
    "it publishes nothing with its old token",
)
def frozen_node(stand: Stand) -> None:
    with ExitStack() as parts:
        house = House(stand, parts, parts.enter_context(NatsServer()).url)
        victim = house.jobs["two"]
        since = time.time()
        devices = house.read_by(victim, since - 4 * INTERVAL)
        victim.process.send_signal(signal.SIGSTOP)
        stand.figure("all are read after", house.takes_over(house.others("two"), devices, since), "s", most=LATE)
        before, thawed = len(house.heard), time.time()
        victim.process.send_signal(signal.SIGCONT)
        stand.until(house.shared, "it has its part again")
        time.sleep(2.0)
        late = [at for _, _, at, _ in house.heard[before:] if at < since]
        stand.figure("its old readings", len(late))
        stand.figure("longest time without a reading then", house.gap(thawed), "s", most=2.0)
        house.account()


@row("62c", P1, f"the engine of a cluster is killed (-9) for {AWAY:g} s", "owners stop at 0.8 TTL, and come back")
def engine_away(stand: Stand) -> None:
    with ExitStack() as parts:
        engine = parts.enter_context(NatsServer())
        house = House(stand, parts, engine.url)
        since = time.time()
        engine.kill()
        time.sleep(AWAY)
        last = max(at for job in house.jobs.values() for _, at in house.polls(job))
        stand.figure("the last poll after", last - since, "s", most=FENCED)
        back = time.time()
        engine.start()
        devices = {f"d{number}" for number in range(DEVICES)}
        stand.figure("all are read after", house.takes_over(house.jobs.values(), devices, back), "s", most=LATE)
        stand.until(house.shared, "three nodes share the devices")
        house.account()


@row("62d", P1, "of three servers of the engine, each is killed (-9) in turn", "no lease is lost at a TTL of 15 s")
def server_killed(stand: Stand) -> None:
    with ExitStack() as parts:
        servers = parts.enter_context(nats_cluster())
        house = House(stand, parts, ",".join(server.url for server in servers), LONG_LEASE)
        since = time.time()
        for server in servers:
            server.kill()
            time.sleep(1.5 * LONG_LEASE)
            server.start()
            time.sleep(AWAY)
        stand.figure("longest time without a reading", house.gap(since), "s", most=2.0)
        tokens = house.tokens(since)
        stand.figure("leases that changed", len(tokens) - DEVICES, most=0)
        house.account()


LATEST = 30.0
"""Seconds after which what has not come counts as lost."""


@row("62e", P1, f"the broker of a cluster is killed (-9) for {AWAY:g} s", "owners keep their devices; nothing is lost")
def broker_killed(stand: Stand) -> None:
    with ExitStack() as parts:
        house = House(stand, parts, parts.enter_context(NatsServer()).url)
        since = time.time()
        stand.lead_nowhere(house.proxy)
        house.subscribed.clear()
        house.broker.kill()
        time.sleep(AWAY)
        house.broker.start()
        stand.expect(house.subscribed.wait(30), "the listener did not come back")
        house.proxy.target = house.broker.port
        time.sleep(AWAY)
        until = time.time() - 2.0
        polls = [poll for job in house.jobs.values() for poll in house.numbered(job)]
        taken = {(device, number) for device, at, number in polls if since <= at <= until}
        latest = time.time() + LATEST
        while True:  # with other rows beside it, a node may be slow to send what has waited
            arrived = {(device, number) for device, number, at, _ in list(house.heard) if at >= since}
            if taken <= arrived or time.time() > latest:
                break
            time.sleep(0.1)
        stand.figure("taken", len(taken), least=DEVICES)
        stand.figure("lost", len(taken - arrived), most=0)
        tokens = house.tokens(since)
        stand.figure("leases that changed", len(tokens) - DEVICES, most=0)
        house.account()


@row(
    "62j",
    P1,
    "the engine is 0.5, then 1, then 2 s away in each direction; TTL 15 s",
    "somebody reads each device, and nobody reads what another one reads; figures: the longest time between two polls",
)
def slow_engine(stand: Stand) -> None:
    with ExitStack() as parts:
        engine = parts.enter_context(NatsServer())
        road = stand.proxy(engine.port)
        live_far_away(stand, House(stand, parts, f"nats://127.0.0.1:{road.port}", LONG_LEASE), road, (0.5, 1.0, 2.0))


def live_far_away(stand, house, road, delays):
    """Move the engine away, step by step."""
    for delay in delays:
        road.up.delay = road.down.delay = delay
        since = time.time()
        time.sleep(2 * LONG_LEASE)
        stand.figure(f"{delay:g} s away", house.gap(since), "s", most=LONG_LEASE)
        silent = DEVICES - len(set().union(*(house.read_by(job, time.time() - 5) for job in house.jobs.values())))
        stand.figure("devices that nobody reads then", silent, most=0)
    stand.figure("read by two at once", house.beside(), most=0)
    house.account()
