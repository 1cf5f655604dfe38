"""The measures of a running app, as families of samples with bounded labels. A door writes them in its own format.

The samples are read from the state of the app when somebody asks: nothing is counted for them while it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from leadsman.core.introspection.sections import Introspected
from leadsman.core.loop.clock import Clock
from leadsman.core.monitoring.health import WELL, Health, status
from leadsman.core.mqtt.outbox import OnDisk, Outbox
from leadsman.core.mqtt.topics import Identity
from leadsman.core.resilience.breaker import CircuitWord
from leadsman.extensions.ledger.ledger import Disposition, Ledger
from leadsman.extensions.ledger.ledgers import FINAL
from leadsman.extensions.nodes.brief import STATES

NOTHING_STORED = OnDisk("ok", 0, 0, 0, 0)
"""The store on disk as long as nothing had to be written."""
CIRCUITS: tuple[CircuitWord, ...] = get_args(CircuitWord)
"""The states of a circuit. Each is a series with the value 0 or 1."""


class MetricFamily(NamedTuple):
    """A family of samples: its name, without the suffix ``_total`` of counters, and the names of its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One sample: the values of its labels, and its value."""

    labels: tuple[str, ...]
    value: float


class Measures:
    """The measures of one running app.

    Args:
        about: the identity of the app.
        parts: its parts.
        clock: its clock.
        started: when it started, monotonic seconds.
    """

    def __init__(self, about: Identity, parts: Introspected, clock: Clock, started: float) -> None:
        self.about = about
        self.parts = parts
        self.link = parts.link
        self.clock = clock
        self._started = started

    @property
    def devices(self) -> Sequence[str]:
        """The devices and side jobs that run."""
        return list(self.parts.records.entities)

    def of_devices(self, family: MetricFamily, names: Sequence[str]) -> list[Sample]:
        """The samples of some devices in a family of `OF_DEVICES`."""
        read, now = OF_DEVICES[family], self.clock.monotonic()
        entities = self.parts.records.entities  # one may be forgotten meanwhile
        return [
            sample
            for name in names
            if name in entities
            for sample in _samples(read(MeasuredDevice(self.parts, name, entities[name], now)), (name,))
        ]

    def of_the_app(self) -> dict[MetricFamily, list[Sample]]:
        """The samples of the families of `OF_THE_APP`."""
        build = self.about.name, self.about.version, self.about.leadsman
        return {family: _samples(read(self)) for family, read in OF_THE_APP.items()} | {BUILD: [Sample(build, 1.0)]}

    @property
    def outbox(self) -> Outbox:
        """The messages that wait for the broker."""
        return self.link.outbox

    @property
    def on_disk(self) -> OnDisk:
        """The readings on disk."""
        return self.outbox.on_disk or NOTHING_STORED

    def oldest(self) -> float:
        """The age of the oldest reading that waits."""
        taken = self.outbox.oldest(self.clock.offset())
        return 0.0 if taken is None else max(0.0, self.clock.uptime() - taken)

    def lag(self) -> float:
        """The largest lag of the loop of late."""
        return 0.0 if self.parts.watching is None else self.parts.watching.lag.seconds

    def started(self) -> float:
        """When the app started, epoch seconds."""
        return self.clock.wall() - self.clock.monotonic() + self._started

    def nodes(self) -> Mapping[str, float]:
        """A number for each state; none of an app that runs alone."""
        found = None if self.parts.nodes is None else [node["state"] for node in self.parts.nodes()]
        return {} if found is None else {state: found.count(state) for state in STATES}


class MeasuredDevice(NamedTuple):
    """A device or a side job, for the families of devices."""

    parts: Introspected
    name: str
    health: Health
    now: float
    """Monotonic seconds."""

    def success(self) -> float | None:
        """0 for a device that never gave a reading, so that an alert on its age sees it; none for one that only takes
        commands."""
        return (self.health.success_wall or 0.0) if self.health.polled else None

    def circuit(self) -> Mapping[str, float]:
        """None for a device that only takes commands, which has no circuit."""
        if self.name not in self.parts.runners.readers:
            return {}
        state = self.parts.runners.snapshot(self.name)[0].circuit
        return {each: each == state for each in CIRCUITS}

    def slots(self) -> Mapping[str, float]:
        """All dispositions, from 0: ``increase()`` does not see the first one of a series that begins with it."""
        kept = self.parts.ledgers.get(self.name)
        return _counts(kept.ledger, FINAL) if kept is not None and kept.schedule.has_slots else {}

    def events(self) -> Mapping[str, float]:
        """As `slots`, of a device that sends events: each counts for itself."""
        kept = self.parts.ledgers.get(self.name)
        return _counts(kept.ledger, OF_EVENTS) if kept is not None and kept.schedule.events else {}

    def availability(self) -> float | None:
        """0 to 1; None for a device without slots."""
        kept = self.parts.ledgers.get(self.name)
        share = None if kept is None or not kept.schedule.has_slots else kept.ledger.availability()
        return None if share is None else share / 100


def _counts(ledger: Ledger, words: Sequence[Disposition]) -> Mapping[str, float]:
    counts = ledger.slots_since_start()
    return {word: counts.get(word, 0) for word in words}


Measured = float | None | Mapping[str, float]
"""A number, or none; or numbers by the value of a further label."""


def _samples(measured: Measured, labels: tuple[str, ...] = ()) -> list[Sample]:
    if isinstance(measured, Mapping):
        return [Sample((*labels, label), float(value)) for label, value in measured.items()]
    return [] if measured is None else [Sample(labels, float(measured))]


def _gauge(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"leadsman_{name}", "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"leadsman_{name}", "counter", text, labels)


DROPPED = _counter("outbox_dropped", "Messages that will never be delivered, by cause.", "cause")
NODES = _gauge("nodes", "Nodes that share the app, by their state.", "state")
BUILD = _gauge("build_info", "Always 1.", "app", "version", "leadsman")
SLOTS = _counter("slots", "Times at which a device was due, by their outcome.", "handler", "disposition")
EVENTS = _counter("events", "Events that a device sent, by their outcome.", "handler", "disposition")
OF_EVENTS: tuple[Disposition, ...] = ("published", "replayed", "suppressed", "dropped")
"""The outcomes of an event."""
OF_THE_APP: Mapping[MetricFamily, Callable[[Measures], Measured]] = {
    _gauge("outbox_messages", "Messages that wait for the broker."): lambda app: app.outbox.messages,
    _gauge("outbox_bytes", "Bytes that wait for the broker."): lambda app: app.outbox.bytes,
    _gauge("outbox_oldest_age_seconds", "Age of the oldest reading that waits; 0 without one."): Measures.oldest,
    DROPPED: lambda app: dict(app.outbox.drops.items()),
    _counter("outbox_delivered", "Messages that the broker has accepted."): lambda app: app.outbox.delivered,
    _gauge("outbox_stored_readings", "Readings on disk that did not arrive."): lambda app: app.on_disk.readings,
    _counter("outbox_replayed", "Readings that were read back from the disk."): lambda app: app.on_disk.replayed,
    _counter("outbox_dead", "Readings that became dead letters."): lambda app: app.on_disk.dead,
    _gauge("outbox_store_ok", "0 while the file of the outbox cannot be written, else 1."): (
        lambda app: app.on_disk.store in ("ok", "opening")
    ),
    _gauge("mqtt_connected", "1 while the broker is connected, else 0."): lambda app: app.link.up,
    _counter("mqtt_connects", "Connections made since the start."): lambda app: app.link.connects,
    _counter("mqtt_breaks", "Connections that ended since the start."): lambda app: app.link.breaks,
    _gauge("mqtt_replacement", "1 while another broker than the primary is used, else 0."): (
        lambda app: app.link.choice.current > 0
    ),
    _gauge("loop_lag_seconds", "Largest delay of the event loop in the last ten seconds."): Measures.lag,
    _gauge("start_time_seconds", "When the app started, epoch seconds."): Measures.started,
    NODES: Measures.nodes,
}
"""How each family of the app is read, besides `BUILD`."""
OF_DEVICES: Mapping[MetricFamily, Callable[[MeasuredDevice], Measured]] = {
    _counter("runs", "Polls and readings of sources that ended.", "handler", "outcome"): (
        lambda device: {"ok": device.health.successes, "failed": device.health.counters.failed_polls}
    ),
    _counter("retries", "Calls repeated after a failure.", "handler"): lambda device: device.health.counters.retries,
    _counter("missed_polls", "Polls that were due while another one ran.", "handler"): (
        lambda device: device.health.counters.missed_polls
    ),
    _gauge("run_duration_seconds", "Duration of the last successful poll.", "handler"): (
        lambda device: device.health.duration
    ),
    _gauge(
        "last_success_timestamp_seconds", "When the last poll succeeded, epoch seconds; 0 if none has.", "handler"
    ): (MeasuredDevice.success),
    _gauge("device_ok", "1 while a device works, or waits on purpose; else 0.", "handler"): (
        lambda device: status(device.health, device.now) in WELL
    ),
    _gauge("breaker_state", "1 for the state of the circuit, else 0.", "handler", "state"): MeasuredDevice.circuit,
    SLOTS: MeasuredDevice.slots,
    EVENTS: MeasuredDevice.events,
    _gauge("availability_ratio", "Share of the slots of the last two days that gave a reading, 0 to 1.", "handler"): (
        MeasuredDevice.availability
    ),
}
"""How each family with a sample, or some, for each device is read."""
FAMILIES = (*OF_THE_APP, BUILD, *OF_DEVICES)
