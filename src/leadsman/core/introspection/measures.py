"""The measures of a running app, as families of samples with bounded labels. A door writes them in its own format.

The samples are read from the state of the app when somebody asks: nothing is counted for them while it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args

from leadsman.core.introspection.added_measures import Measured, MetricFamily, counter, gauge
from leadsman.core.introspection.sections import Introspected
from leadsman.core.loop.clock import Clock
from leadsman.core.monitoring.health import WELL, Health, status
from leadsman.core.mqtt.outbox import OnDisk, Outbox
from leadsman.core.mqtt.topics import Identity
from leadsman.core.observers import guarded
from leadsman.core.resilience.breaker import CircuitWord

NOTHING_STORED = OnDisk("ok", 0, 0, 0, 0)
"""The store on disk as long as nothing had to be written."""
_WHAT = "what is measured"
CIRCUITS: tuple[CircuitWord, ...] = get_args(CircuitWord)
"""The states of a circuit. Each is a series with the value 0 or 1."""


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
        self._emit = emit = parts.added.emit
        added = [each for make in parts.added.measures if (each := guarded(emit, _WHAT, make)) is not None]
        self._of_the_app = {family: read for each in added for family, read in each.app.items()}
        self._of_devices = {family: read for each in added for family, read in each.device.items()}

    @property
    def families(self) -> Sequence[MetricFamily]:
        """Those with a sample, or some, for each device."""
        return (*OF_DEVICES, *self._of_devices)

    @property
    def devices(self) -> Sequence[str]:
        """The devices and side jobs that run."""
        return list(self.parts.records.entities)

    def of_devices(self, family: MetricFamily, names: Sequence[str]) -> list[Sample]:
        """The samples of some devices in one of `families`."""
        now, added = self.clock.monotonic(), self._of_devices.get(family)
        entities = self.parts.records.entities  # one may be forgotten meanwhile

        def read(name: str) -> Measured:
            if added is not None:
                return guarded(self._emit, _WHAT, added, name)
            return OF_DEVICES[family](MeasuredDevice(self.parts, name, entities[name], now))

        return [sample for name in names if name in entities for sample in _samples(read(name), (name,))]

    def of_the_app(self) -> dict[MetricFamily, list[Sample]]:
        """The samples of the families of `OF_THE_APP`, and of those that were added."""
        build = self.about.name, self.about.version, self.about.leadsman
        found = {family: _samples(read(self)) for family, read in OF_THE_APP.items()}
        found |= {family: _samples(guarded(self._emit, _WHAT, read)) for family, read in self._of_the_app.items()}
        return found | {BUILD: [Sample(build, 1.0)]}

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

    def started(self) -> float:
        """When the app started, epoch seconds."""
        return self.clock.wall() - self.clock.monotonic() + self._started


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


def _samples(measured: Measured, labels: tuple[str, ...] = ()) -> list[Sample]:
    if isinstance(measured, Mapping):
        return [Sample((*labels, label), float(value)) for label, value in measured.items()]
    return [] if measured is None else [Sample(labels, float(measured))]


DROPPED = counter("outbox_dropped", "Messages that will never be delivered, by cause.", "cause")
BUILD = gauge("build_info", "Always 1.", "app", "version", "leadsman")
OF_THE_APP: Mapping[MetricFamily, Callable[[Measures], Measured]] = {
    gauge("outbox_messages", "Messages that wait for the broker."): lambda app: app.outbox.messages,
    gauge("outbox_bytes", "Bytes that wait for the broker."): lambda app: app.outbox.bytes,
    gauge("outbox_oldest_age_seconds", "Age of the oldest reading that waits; 0 without one."): Measures.oldest,
    DROPPED: lambda app: dict(app.outbox.drops.items()),
    counter("outbox_delivered", "Messages that the broker has accepted."): lambda app: app.outbox.delivered,
    gauge("outbox_stored_readings", "Readings on disk that did not arrive."): lambda app: app.on_disk.readings,
    counter("outbox_replayed", "Readings that were read back from the disk."): lambda app: app.on_disk.replayed,
    counter("outbox_dead", "Readings that became dead letters."): lambda app: app.on_disk.dead,
    gauge("outbox_store_ok", "0 while the file of the outbox cannot be written, else 1."): (
        lambda app: app.on_disk.store in ("ok", "opening")
    ),
    gauge("mqtt_connected", "1 while the broker is connected, else 0."): lambda app: app.link.up,
    counter("mqtt_connects", "Connections made since the start."): lambda app: app.link.connects,
    counter("mqtt_breaks", "Connections that ended since the start."): lambda app: app.link.breaks,
    gauge("mqtt_replacement", "1 while another broker than the primary is used, else 0."): (
        lambda app: app.link.choice.current > 0
    ),
    gauge("start_time_seconds", "When the app started, epoch seconds."): Measures.started,
}
"""How each family of the app is read, besides `BUILD`."""
OF_DEVICES: Mapping[MetricFamily, Callable[[MeasuredDevice], Measured]] = {
    counter("runs", "Polls and readings of sources that ended.", "handler", "outcome"): (
        lambda device: {"ok": device.health.successes, "failed": device.health.counters.failed_polls}
    ),
    counter("retries", "Calls repeated after a failure.", "handler"): lambda device: device.health.counters.retries,
    counter("missed_polls", "Polls that were due while another one ran.", "handler"): (
        lambda device: device.health.counters.missed_polls
    ),
    gauge("run_duration_seconds", "Duration of the last successful poll.", "handler"): (
        lambda device: device.health.duration
    ),
    gauge("last_success_timestamp_seconds", "When the last poll succeeded, epoch seconds; 0 if none has.", "handler"): (
        MeasuredDevice.success
    ),
    gauge("device_ok", "1 while a device works, or waits on purpose; else 0.", "handler"): (
        lambda device: status(device.health, device.now) in WELL
    ),
    gauge("breaker_state", "1 for the state of the circuit, else 0.", "handler", "state"): MeasuredDevice.circuit,
}
"""How each family with a sample, or some, for each device is read."""
FAMILIES = (*OF_THE_APP, BUILD, *OF_DEVICES)
