"""What is measured of a running app, as families of samples with bounded labels. A door writes them in its own format.

The samples are read from the state of the app when somebody asks: nothing is counted for them while it runs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from leadsman.introspection.registry import About
from leadsman.introspection.sections import Parts
from leadsman.ledger.ledgers import FINAL
from leadsman.loop.clock import Clock
from leadsman.monitoring.health import WELL, FailureCounts, status
from leadsman.mqtt.outbox import OnDisk
from leadsman.nodes.brief import STATES

NOTHING_STORED = OnDisk("ok", 0, 0, 0, 0)
"""What is on disk as long as nothing had to be written."""
CIRCUITS = ("closed", "open", "half_open", "isolated", "disabled")
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


RUNS = MetricFamily("leadsman_runs", "counter", "Polls and readings of sources that ended.", ("handler", "outcome"))
RETRIES = MetricFamily("leadsman_retries", "counter", "Calls repeated after a failure.", ("handler",))
MISSED = MetricFamily("leadsman_missed_polls", "counter", "Polls that were due while another one ran.", ("handler",))
DURATION = MetricFamily("leadsman_run_duration_seconds", "gauge", "Duration of the last successful poll.", ("handler",))
SUCCESS = MetricFamily(
    "leadsman_last_success_timestamp_seconds",
    "gauge",
    "When the last poll succeeded, epoch seconds; 0 if none has.",
    ("handler",),
)
WORKS = MetricFamily(
    "leadsman_device_ok", "gauge", "1 while a device works, or waits on purpose; else 0.", ("handler",)
)
CIRCUIT = MetricFamily(
    "leadsman_breaker_state", "gauge", "1 for the state of the circuit, else 0.", ("handler", "state")
)
SLOTS = MetricFamily(
    "leadsman_slots", "counter", "Times at which a device was due, by their outcome.", ("handler", "disposition")
)
AVAILABILITY = MetricFamily(
    "leadsman_availability_ratio",
    "gauge",
    "Share of the slots of the last two days that gave a reading, 0 to 1.",
    ("handler",),
)
MESSAGES = MetricFamily("leadsman_outbox_messages", "gauge", "Messages that wait for the broker.")
BYTES = MetricFamily("leadsman_outbox_bytes", "gauge", "Bytes that wait for the broker.")
OLDEST = MetricFamily(
    "leadsman_outbox_oldest_age_seconds", "gauge", "Age of the oldest reading that waits; 0 without one."
)
DROPPED = MetricFamily(
    "leadsman_outbox_dropped", "counter", "Messages that will never be delivered, by cause.", ("cause",)
)
STORED = MetricFamily("leadsman_outbox_stored_readings", "gauge", "Readings on disk that did not arrive.")
REPLAYED = MetricFamily("leadsman_outbox_replayed", "counter", "Readings that were read back from the disk.")
DEAD = MetricFamily("leadsman_outbox_dead", "counter", "Readings that became dead letters.")
STORE = MetricFamily("leadsman_outbox_store_ok", "gauge", "0 while the file of the outbox cannot be written, else 1.")
DELIVERED = MetricFamily("leadsman_outbox_delivered", "counter", "Messages that the broker has taken.")
CONNECTED = MetricFamily("leadsman_mqtt_connected", "gauge", "1 while the broker is connected, else 0.")
CONNECTS = MetricFamily("leadsman_mqtt_connects", "counter", "Connections made since the start.")
BREAKS = MetricFamily("leadsman_mqtt_breaks", "counter", "Connections that ended since the start.")
REPLACED = MetricFamily(
    "leadsman_mqtt_replacement", "gauge", "1 while another broker than the primary is used, else 0."
)
LAG = MetricFamily("leadsman_loop_lag_seconds", "gauge", "Largest delay of the event loop in the last ten seconds.")
STARTED = MetricFamily("leadsman_start_time_seconds", "gauge", "When the app started, epoch seconds.")
NODES = MetricFamily("leadsman_nodes", "gauge", "Nodes that share the app, by their state.", ("state",))
BUILD = MetricFamily("leadsman_build_info", "gauge", "Always 1.", ("app", "version", "leadsman"))

OF_DEVICES = (RUNS, RETRIES, MISSED, DURATION, SUCCESS, WORKS, CIRCUIT, SLOTS, AVAILABILITY)
"""The families with a sample, or some, for each device."""
OF_THE_APP = (
    MESSAGES,
    BYTES,
    OLDEST,
    DROPPED,
    DELIVERED,
    STORED,
    REPLAYED,
    DEAD,
    STORE,
    CONNECTED,
    CONNECTS,
    BREAKS,
    REPLACED,
    LAG,
    STARTED,
    NODES,
    BUILD,
)
FAMILIES = (*OF_THE_APP, *OF_DEVICES)


class Measures:
    """Reads the samples of one running app.

    Args:
        about: the identity of the app.
        parts: its parts.
        clock: its clock.
        started: when it started, monotonic seconds.
    """

    def __init__(self, about: About, parts: Parts, clock: Clock, started: float) -> None:
        self._about = about
        self._parts = parts
        self._clock = clock
        self._started = started
        self._readers: dict[MetricFamily, Callable[[str], Iterator[Sample]]] = {
            RUNS: self._runs,
            RETRIES: lambda name: self._one(name, self._counters(name).retries),
            MISSED: lambda name: self._one(name, self._counters(name).missed),
            DURATION: lambda name: self._one(name, parts.records.entities[name].duration),
            SUCCESS: self._success,
            WORKS: lambda name: self._one(name, status(parts.records.entities[name], clock.monotonic()) in WELL),
            CIRCUIT: self._circuit,
            SLOTS: self._dispositions,
            AVAILABILITY: self._availability,
        }

    @property
    def devices(self) -> Sequence[str]:
        """The devices and side jobs that run."""
        return list(self._parts.records.entities)

    def of_devices(self, family: MetricFamily, names: Sequence[str]) -> list[Sample]:
        """The samples of some devices in a family of `OF_DEVICES`."""
        read, entities = self._readers[family], self._parts.records.entities  # one may be forgotten meanwhile
        return [sample for name in names if name in entities for sample in read(name)]

    def of_the_app(self) -> dict[MetricFamily, list[Sample]]:
        """The samples of the families of `OF_THE_APP`."""
        parts, about, clock = self._parts, self._about, self._clock
        link, outbox = parts.link, parts.link.outbox
        lag = 0.0 if parts.watching is None else parts.watching.lag.seconds
        stored = outbox.on_disk or NOTHING_STORED
        oldest = outbox.oldest(clock.offset())
        values: dict[MetricFamily, float] = {
            MESSAGES: outbox.messages,
            BYTES: outbox.bytes,
            OLDEST: 0.0 if oldest is None else max(0.0, clock.uptime() - oldest),
            DELIVERED: outbox.delivered,
            STORED: stored.readings,
            REPLAYED: stored.replayed,
            DEAD: stored.dead,
            STORE: stored.store in ("ok", "opening"),
            CONNECTED: link.up,
            CONNECTS: link.connects,
            BREAKS: link.breaks,
            REPLACED: link.choice.current > 0,
            LAG: lag,
            STARTED: clock.wall() - clock.monotonic() + self._started,
        }
        found = {family: [Sample((), float(value))] for family, value in values.items()}
        dropped = [Sample((cause,), float(messages)) for cause, messages in outbox.drops.items()]
        build = [Sample((about.name, about.version, about.leadsman), 1.0)]
        return found | {DROPPED: dropped, NODES: self._nodes(), BUILD: build}

    def _nodes(self) -> list[Sample]:
        """A sample for each state; none of an app that runs alone."""
        if self._parts.nodes is None:
            return []
        found = [node["state"] for node in self._parts.nodes()]
        return [Sample((state,), float(found.count(state))) for state in STATES]

    def _counters(self, name: str) -> FailureCounts:
        return self._parts.records.entities[name].counters

    @staticmethod
    def _one(name: str, value: float | None) -> Iterator[Sample]:
        if value is not None:
            yield Sample((name,), float(value))

    def _runs(self, name: str) -> Iterator[Sample]:
        health = self._parts.records.entities[name]
        yield Sample((name, "ok"), float(health.successes))
        yield Sample((name, "failed"), float(health.counters.failed_polls))

    def _success(self, name: str) -> Iterator[Sample]:
        """0 for a device that never gave a reading, so that an alert on its age sees it; none for one that only takes
        commands."""
        health = self._parts.records.entities[name]
        if health.polled:
            yield from self._one(name, health.success_wall or 0.0)

    def _circuit(self, name: str) -> Iterator[Sample]:
        """None for a device that only takes commands, which has no circuit."""
        if name in self._parts.runners.readers:
            state = self._parts.runners.look(name)[0].circuit
            for each in CIRCUITS:
                yield Sample((name, each), float(each == state))

    def _dispositions(self, name: str) -> Iterator[Sample]:
        """All of them, from 0: ``increase()`` does not see the first one of a series that begins with it."""
        if self._parts.ledgers.has_slots(name):
            counts = self._parts.ledgers.slots_since_start(name)
            yield from (Sample((name, word), float(counts.get(word, 0))) for word in FINAL)

    def _availability(self, name: str) -> Iterator[Sample]:
        if self._parts.ledgers.has_slots(name):
            yield from self._one(name, self._parts.ledgers.availability(name))
