"""The facts that the collectors bring. They are values, so that checks can be tested without a broker or a machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from leadsman.core.adapters.resource import CalendarSearch, Resource
from leadsman.core.extension_tools import CheckResult
from leadsman.core.mqtt.connection import ConnAck
from leadsman.tools.doctor.subject import Subject


class ConnectFailure(NamedTuple):
    """Why there is no connection."""

    kind: Literal["refused", "tls", "silent", "name", "clock", "address"]
    """``refused``: by CONNACK, with `code`. ``silent``: no CONNACK came. ``name``: no such host is found. ``clock``: a
    certificate is not valid yet. ``address``: nobody listens there, or there is no way to it."""
    text: str
    code: int = 0


class Answered(NamedTuple):
    """What the broker answered to a subscription and to the probe that matches it."""

    refused: str | None = None
    """Why the subscription was refused."""
    published: int | None = None
    """The reason code of the probe; None if none was sent, or no answer came."""
    heard: bool | None = None
    """Whether the probe came back; None if none was sent."""
    fault: str | None = None
    """Why this filter could not be examined; None if it could."""


class ProbeFacts(NamedTuple):
    """The probe at ``{prefix}/doctor/probe``."""

    code: int | None
    """The reason code; None if no answer came."""
    heard: bool
    early: bool | None = None
    """Whether the broker passes on a message of quality 2 before it is released; None if that was not seen."""
    answer: int | None = None
    """The reason code of a message where the app answers; None if the probe was taken, so that there was none."""


class RetainedFacts(NamedTuple):
    """A retained message."""

    code: int | None
    """The reason code; None if the broker closed the connection."""
    kept: bool | None = False
    """None if the topic of the probe may not be read."""
    wildcards: bool | None = None
    """Whether it came for a filter with a wildcard, too; None if that was not seen."""


class Will(NamedTuple):
    """The will of a connection that was cut."""

    after: float | None
    """Seconds until it came; None if it did not."""
    wanted: float
    """Seconds of delay that were asked for."""
    readable: bool = True
    """Whether the topic of the probe may be published to and read."""


class TopicFault(NamedTuple):
    """What the app says is wrong with one topic; see `leadsman.core.monitoring.document.TopicFault`."""

    kind: str
    text: str
    lost: int = 0


def faults_in(mqtt: object) -> dict[str, TopicFault]:
    """What is wrong with single topics, in the section of an app about its connection. An entry that makes no sense is
    left out, and costs no other."""
    found = mqtt.get("faults") if isinstance(mqtt, dict) else None
    listed = {} if not isinstance(found, dict) else found
    return {topic: _fault(each) for topic, each in listed.items() if isinstance(each, dict)}


def _fault(entry: Mapping[str, object]) -> TopicFault:
    lost = entry.get("lost")
    return TopicFault(str(entry.get("kind")), str(entry.get("error")), lost if isinstance(lost, int) else 0)


class LiveFacts(NamedTuple):
    """What the running app reports about itself."""

    client_id: str
    last_error: str | None
    connects: int
    uptime: float
    """Seconds since its start."""
    clock: float | None = None
    """Epoch seconds of its clock, less ours."""
    published: Mapping[str, str] = {}
    """When the last reading was taken that the broker acknowledged, RFC 3339, by device. Devices of which something
    waits, or was lost lately, are left out."""
    faults: Mapping[str, TopicFault] = {}
    """What is wrong with single topics."""
    waiting: frozenset[str] = frozenset()
    """The devices of which readings wait."""
    losing: frozenset[str] = frozenset()
    """The devices of which readings are not taken, or were lost lately."""


class BrokerFacts(NamedTuple):
    """What was seen at the broker. None: not seen."""

    connack: ConnAck | None = None
    protocol: str | None = None
    library: str | None = None
    """The library that speaks MQTT."""
    failure: ConnectFailure | None = None
    software: str | None = None
    """The name and version that the broker publishes of itself, at ``$SYS/broker/version``."""
    probe: ProbeFacts | None = None
    offers: Mapping[str, int | None] | None = None
    """The reason code of each topic that was offered, or None where the broker closed the connection instead. None as a
    whole: no topic was offered."""
    filters: Mapping[str, Answered] = {}
    retained: RetainedFacts | None = None
    will: Will | None = None
    will_refused: str | None = None
    """Why the will of the app was refused; None if it was not."""
    kept: Mapping[str, bytes] | None = None
    """The retained messages below the prefix."""
    taken_at: Mapping[str, str] = {}
    """When the readings in them were taken, RFC 3339, by topic, as far as the broker sends that (MQTT 5)."""
    crowded: bool = False
    """Whether there are more of them than the doctor reads."""
    birth: str | None = None
    """What Home Assistant's birth topic holds."""
    birth_refused: str | None = None
    """Why the subscription to Home Assistant's birth topic was refused."""
    live: LiveFacts | None = None
    hung: str | None = None
    """The step in which the broker stopped answering."""
    mixed_up: bool = False
    """Whether connections with different client ids ended each other."""
    faults: Mapping[str, str] = {}
    """The steps that failed, and why."""


class DiskFacts(NamedTuple):
    """A file system."""

    path: Path
    free: int
    """Bytes that this user may still write."""


class StateFacts(NamedTuple):
    """The state directory."""

    path: Path
    exists: bool
    writable: bool
    """If it does not exist: whether it can be made."""
    mode: int = 0o700
    """Its permissions."""


class MachineFacts(NamedTuple):
    """The machine."""

    python: str
    leadsman: str
    now: float
    """Epoch seconds by the machine's clock."""
    zone: str | None
    """The name of the time zone; None if it cannot be found out."""
    zone_fault: str | None
    synchronised: bool | None
    """Whether the kernel's clock follows a time server; None if it gives no answer."""
    disks: tuple[DiskFacts, ...]
    state: StateFacts | None


class SerialFacts(NamedTuple):
    """A serial port, or a gateway to one."""

    name: str
    exists: bool = True
    device: bool = True
    """Whether it is a character device."""
    allowed: bool = True
    """Whether this user may read and write it."""
    group: str = ""
    """The group that owns it."""
    member: bool = True
    """Whether this user is in that group."""
    stable: str | None = None
    """A name of it that survives replugging; None if there is none, or if it has such a name."""
    holders: tuple[str, ...] = ()
    """Programs that have it open, as far as this user may see."""
    present: tuple[str, ...] = ()
    """If it does not exist: the ports that do."""
    fault: str | None = None
    """Why the name of a gateway has no address."""


class BluetoothFacts(NamedTuple):
    """The Bluetooth service and its adapters."""

    wanted: str
    """The name of the adapter; empty for any."""
    adapters: Mapping[str, bool]
    """The adapters, and whether they have power."""
    fault: str | None = None
    """Why BlueZ did not answer."""
    blocked: str | None = None
    """``soft`` or ``hard``, if rfkill blocks the radio."""


class ServerFacts(NamedTuple):
    """A server, or a bus."""

    resource: Resource
    fault: str | None
    """Why it did not answer, refused the account, or could not be opened; None if all was well."""
    searches: tuple[CalendarSearch, ...] = ()
    """The calendars whose searches were compared."""
    stopped: str | None = None
    """Why not all were compared; None if they were."""


class Facts(NamedTuple):
    """All facts."""

    subject: Subject
    broker: BrokerFacts = BrokerFacts()
    machine: MachineFacts | None = None
    serial: tuple[SerialFacts, ...] = ()
    bluetooth: tuple[BluetoothFacts, ...] = ()
    servers: tuple[ServerFacts, ...] = ()
    """Of all kinds, buses included."""
    own_checks: Mapping[tuple[str, str], tuple[CheckResult, ...]] = {}
    """What the checks of extensions have found, by the extension and the check."""
    unfinished: Mapping[str, str] = {}
    """The collectors that did not come to an end, and why."""
