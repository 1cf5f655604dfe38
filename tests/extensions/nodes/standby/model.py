"""Nodes of one app, and a broker, in virtual time: the machine of `leadsman.extensions.nodes.standby.machine` with
everything around it that matters, and nothing else."""

from leadsman.extensions.nodes.standby.machine import (
    AppEnded,
    Begin,
    Blind,
    Connected,
    Disconnected,
    Drain,
    Fenced,
    LeaseHeard,
    Leave,
    Moment,
    NodeRule,
    Observing,
    Release,
    Renew,
    StatusHeard,
    Stop,
    Tick,
    first,
    may_act,
    may_connect,
    step,
)
from leadsman.extensions.nodes.standby.renewal import Renewal

TICK = 0.5
TTL = 6.0
ENDS_AFTER = 0.5
"""Seconds that the app takes to stop."""
KEEPALIVE = 9.0
"""Seconds after which the broker gives up a client that is silent."""
NOTICES = 1.0
"""Seconds after which a node notices that the broker is out of reach."""

FAULTS = (
    *("kill", "start", "pause", "resume", "partition", "heal", "end", "drain", "undrain"),
    *("broker down", "broker empty", "broker up"),
)
"""What `apply` lets happen to a node, or to the broker."""


class Broker:
    """What the nodes share."""

    def __init__(self, codes, expires):
        self.codes, self.expires = codes, expires
        self.up = True
        self.lease, self.lease_until = None, 0.0
        self.online = None
        self.session = None
        """The node that is connected with the id of the app."""
        self.accepted = []
        """Of each reading that the broker took: when, the node, and its token."""

    def publish(self, world, node, lease):
        if self.session is node and node.reachable and self.up:
            self.set_lease(world, lease)

    def set_lease(self, world, lease):
        self.lease, self.lease_until = lease, world.now + TTL
        for each in world.nodes:
            each.send(LeaseHeard(lease))

    def set_online(self, world, online):
        self.online = online
        for each in world.nodes:
            each.send(StatusHeard(online))

    def retained(self, now):
        return None if self.expires and now >= self.lease_until else self.lease


class Machine:
    """One node with its process."""

    def __init__(self, world, number, offset):
        self.world, self.offset, self.number = world, offset, number
        self.lives = 0
        self.reachable, self.paused, self.alive = True, False, False
        self.unreachable_since = self.silent_since = 0.0
        self.start()

    def start(self):
        self.lives += 1
        self.alive, self.paused = True, False
        name = f"n{self.number}.{self.lives}"
        self.node = first(NodeRule(name, TTL), self.moment())
        self.observing = self.connected = self.running = False
        self.inbox, self.ends_at, self.tokens = [], None, []

    def moment(self):
        return Moment(self.world.now + self.offset, self.world.draw())

    @property
    def acts(self):
        return self.alive and not self.paused and self.running and may_act(self.node, self.moment().now)

    def send(self, event):
        """The broker sends, where the observing connection is there."""
        if self.alive and self.observing and self.reachable:
            self.inbox.append((self.world.now + self.world.delay, event))

    def feed(self, event):
        self.node, actions = step(self.node, event, self.moment())
        for action in actions:
            match action:
                case Begin(token):
                    self.running, self.ends_at = True, None
                    self.tokens.append(token)
                case Renew(lease) if self.connected:
                    self.world.broker.publish(self.world, self, lease)
                case Stop():
                    self.ends_at = self.world.now + ENDS_AFTER
                case Release() if self.connected and self.world.broker.session is self:
                    self.world.broker.set_online(self.world, False)
                    self.world.broker.set_lease(self.world, None)

    def drain(self, draining=True):
        """What a person asks for arrives on the observing connection."""
        if self.alive and not self.paused and self.observing and self.reachable and self.world.broker.up:
            self.feed(Drain(draining))

    def kill(self):
        self.alive = False
        if self.reachable:
            self.world.dropped(self)

    def end(self):
        """SIGTERM."""
        if self.alive and not self.paused:
            self.feed(Leave())
            self.alive = False
            if self.reachable and self.world.broker.session is self:
                self.world.broker.session = None

    def run(self):
        """What a process that runs does in a tick."""
        broker, now = self.world.broker, self.world.now
        heard = [event for at, event in self.inbox if at <= now]
        self.inbox = [(at, event) for at, event in self.inbox if at > now]
        if self.world.timers_first:
            self.feed(Tick())
        for event in heard:
            self.feed(event)
        if not (self.reachable and broker.up):
            if now - max(self.unreachable_since, self.world.down_since) >= NOTICES or not broker.up:
                self.lose()
        elif not self.observing:
            self.observing = True
            self.feed(LeaseHeard(broker.retained(now)))
            self.feed(StatusHeard(broker.online))
            self.feed(Observing())
        if self.connected and self.reachable and broker.up and broker.session is not self:
            self.connected = False
            self.feed(Disconnected(taken_over=broker.codes and broker.session is not None))
        self.feed(Tick())
        if self.running and not self.connected and self.reachable and broker.up and self.ends_at is None:
            self.connect()
        if self.ends_at is not None and now >= self.ends_at:
            self.leave()
        if self.acts and self.connected and broker.session is self and self.reachable:
            broker.accepted.append((now, self, self.node.state.token))

    def connect(self):
        """Read the lease once more, then take the session."""
        world, broker = self.world, self.world.broker
        self.feed(LeaseHeard(broker.retained(world.now)))
        if not may_connect(self.node, self.moment().now):
            return
        if broker.session not in (None, self) and not broker.codes:
            broker.set_online(world, False)  # the will of the session that ends
        broker.session, self.connected = self, True
        world.sessions.append((world.now, self))
        broker.set_online(world, True)
        self.feed(Connected())

    def lose(self):
        self.inbox.clear()
        if self.observing:
            self.observing = False
            self.feed(Blind())
        if self.connected:
            self.connected = False
            self.feed(Disconnected())

    def leave(self):
        self.running, self.ends_at = False, None
        if self.connected and not isinstance(self.node.state, Fenced):
            self.feed(Leave())
        if self.connected:
            self.connected = False
            if self.world.broker.session is self and self.reachable:
                self.world.broker.session = None
                self.world.broker.set_online(self.world, False)
        self.feed(AppEnded())


class World:
    """The nodes and their broker."""

    def __init__(
        self, nodes=2, *, codes=True, expires=True, offsets=(0.0, 3600.0, -7200.0), timers_first=False, delay=0.0
    ):
        self.now, self.down_since = 1000.0, 0.0
        self.timers_first, self.delay = timers_first, delay
        self.draws = 0
        self.broker = Broker(codes, expires)
        self.sessions = []
        """Each time that a node took the session."""
        self.nodes = []
        self.nodes = [Machine(self, number, offsets[number]) for number in range(nodes)]
        self.overlap = 0.0
        """Seconds in which several nodes could act."""

    def draw(self):
        self.draws += 1
        return (self.draws * 0.618) % 1.0

    def dropped(self, node):
        """The broker sees that a client is gone."""
        if self.broker.session is node:
            self.broker.session = None
            self.broker.set_online(self, False)

    def run(self, seconds):
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            for node in self.nodes:
                if node.alive and not node.paused:
                    node.run()
                    node.silent_since = self.now
                if not node.reachable:
                    node.silent_since = min(node.silent_since, node.unreachable_since)
                if self.now - node.silent_since >= KEEPALIVE:
                    self.dropped(node)
            acting = sum(node.acts for node in self.nodes)
            self.overlap += TICK * (acting > 1)

    @property
    def acting(self):
        return [node for node in self.nodes if node.acts]

    def partition(self, node):
        if node.reachable:
            node.reachable, node.unreachable_since = False, self.now

    def heal(self, node):
        if not node.reachable:
            node.reachable = True
            if not node.alive:
                self.dropped(node)

    def restart_broker(self, *, forget):
        self.broker.up = False
        self.broker.session = None
        self.down_since = self.now
        if forget:
            self.broker.lease = self.broker.online = None

    def broker_back(self):
        self.broker.up = True

    def fix(self):
        """Let the broker and all nodes be well."""
        self.broker_back()
        for node in self.nodes:
            self.heal(node)
            node.paused = False
            if node.node.draining:
                node.feed(Drain(False))
            if not node.alive:
                node.start()


def lease(owner="n1", token=5, ttl=TTL, sent=0.0):
    return Renewal(owner, token, ttl, sent)


def apply(world, fault, number):
    """Let a fault happen, to the node of this number if it is one of a node."""
    node = world.nodes[number % len(world.nodes)]
    match fault:
        case "kill" if node.alive:
            node.kill()
        case "start" if not node.alive:
            node.start()
        case "pause":
            node.paused = True
        case "resume":
            node.paused = False
        case "partition":
            world.partition(node)
        case "heal":
            world.heal(node)
        case "end":
            node.end()
        case "drain":
            node.drain()
        case "undrain":
            node.drain(False)
        case "broker down" | "broker empty":
            world.restart_broker(forget=fault == "broker empty")
        case "broker up":
            world.broker_back()
