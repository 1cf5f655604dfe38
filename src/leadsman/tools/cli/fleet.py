"""What ``leadsman watch`` has of the apps on a broker: messages in, rows out. Pure.

An app is known from its registry or its status. Its devices come from both, and what they are doing from its heartbeat,
and in detail from introspection, which is asked about the visible devices only.
"""

import json
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from leadsman.core.introspection.situation import RetainedDocuments, describe_fields, when
from leadsman.core.introspection.why import OVERDUE, unanswered, why
from leadsman.core.monitoring.health import WELL
from leadsman.core.mqtt.answers import Json, object_in
from leadsman.core.mqtt.connection import Received
from leadsman.core.question import Question
from leadsman.core.text import clean

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Introspection, Verdict

ANSWERED = 15.0
"""Seconds for which the answer of an app is newer than its heartbeat, if it is asked every few seconds."""
MAX_APPS = 1000
"""Apps that are kept; a broker may have retained more by mistake."""
MAX_DEVICES = 20_000
"""Devices of an app that are kept."""
MAX_PAGES = 200
"""Pages of a registry that are asked for one by one: more than so many devices have."""
MAX_READING_CHARS = 16 * 1024
"""Characters of a reading that are kept."""
STOPPED = "stopped"
"""The state of an app that ended with a goodbye: somebody wanted it so. One that broke off is ``offline``."""
SEVERITY = (
    *("offline", "silent", "held", "circuit_open", "error", "stale", "deferred", "isolated", "starting", "ok"),
    STOPPED,
)
"""The statuses, the worst first."""
_LEVELS = ("status", "registry")
_OF_AN_APP = ("registry/+", "+/state", "+/availability", "introspect/response", "state", "availability")
"""What one app publishes, below its prefix; the last two of its root device."""
_T = TypeVar("_T")


_COUNTS_TEXT: Question[Callable[[object], str]] = Question("node counts")


class LastReading(NamedTuple):
    """The last reading of a device."""

    payload: str
    taken: float | None
    """When it was taken, epoch seconds, or when it arrived; None for a retained one without its time."""
    taken_at: str | None


class DeviceRow(NamedTuple):
    """One device on the board."""

    prefix: str
    device: str
    status: str
    value: str
    age: float | None
    """Seconds since the reading was taken."""
    next_in: float | None
    """Seconds until the next call or probe."""
    failures: int
    attempts: int
    """Calls of the poll under way, or of the last one that failed."""
    failing_for: float | None
    """Seconds since the first call that gave no reading."""
    error: str
    circuit: str

    @property
    def well(self) -> bool:
        """Whether it is in no trouble, as the health of its app counts that. Nobody expects one of a stopped app."""
        return self.status in WELL or self.status == STOPPED


class AppRow(NamedTuple):
    """One app on the board."""

    prefix: str
    state: str
    """``online``, ``stopped`` after a goodbye, ``offline`` after a will, or ``silent`` without a heartbeat."""
    heard: float | None
    """Seconds since its last heartbeat; None if that is not known."""
    uptime: float | None
    outbox: int
    dropped: int
    protocol: str
    connects: int
    error: str
    nodes: str = ""
    devices: int = 0


ROOT = ""
"""The key of what is at the topics of the root device, which have no level for the device."""


class _App:
    """What is known of one app."""

    def __init__(self) -> None:
        self.status: dict[str, Json] | None = None
        self.heard_at: float | None = None
        self.ahead = 0.0
        """Seconds by which the clock of the app is ahead of ours."""
        self.names: dict[str, None] = {}
        self.sends_events: set[str] = set()
        """Those of them that send events, of which the broker keeps none."""
        self.values: dict[str, LastReading] = {}
        self.terms: dict[str, dict[str, Json]] = {}
        """What is declared of the fields of a device; asked for once."""
        self.availability: dict[str, str] = {}
        self.sections: dict[str, Json] = {}
        self.details: dict[str, tuple[float, dict[str, Json]]] = {}
        """Of a device: when an answer came, and its section of the document."""
        self.answered_at: float | None = None
        self._pages = 1
        self._root: Json = None
        """The name of its root device."""

    def key(self, device: str) -> str:
        """The key of a device in `values` and `availability`. Which device is the root is known with the registry."""
        return ROOT if device == self._root else device

    @property
    def sign_at(self) -> float | None:
        """When it showed last that it runs: with a heartbeat, which may come seldom, or with an answer."""
        return max((each for each in (self.heard_at, self.answered_at) if each is not None), default=None)

    @property
    def devices(self) -> list[str]:
        """The names of its devices, sorted: those of the registry, or of the heartbeat without one."""
        return sorted(self.names or self.reported("devices"))

    def reported(self, key: str) -> dict[str, Json]:
        """A part of its heartbeat."""
        return _object((self.status or {}).get(key))

    def section(self, device: str, now: float) -> dict[str, Json] | None:
        """The newest answer about a device, unless it is old."""
        at, found = self.details.get(device, (0.0, None))
        return found if now - at <= ANSWERED else None

    def state(self, now: float) -> str:
        """As `AppRow.state`."""
        if self.status is None:
            return "silent"
        if self.status.get("state") != "online":
            # a will has no time of its sending
            return STOPPED if isinstance(self.status.get("at"), str) else "offline"
        return "silent" if self.sign_at is not None and now - self.sign_at > OVERDUE else "online"

    def report(self, device: str, now: float) -> Mapping[str, Json]:
        """What is known of a device: from its last answer, unless that is old or the heartbeat has another status
        since."""
        section, report = self.section(device, now), self.reported("devices").get(device)
        runtime = None if section is None else section.get("runtime")
        if isinstance(runtime, dict) and not _outdated(runtime, report, self.details[device][0], self.heard_at):
            return runtime
        if isinstance(report, dict):
            return report
        return {"status": "ok" if "counts" in (self.status or {}) else "starting"}

    def not_heard(self, prefix: str) -> list[str]:
        """The topics of further pages of the registry, and of the values and availabilities of which nothing has
        come."""
        missing = [f"{prefix}/registry/{number}" for number in range(2, min(self._pages, MAX_PAGES) + 1)]
        for name in self.devices:
            place = prefix if self.key(name) == ROOT else f"{prefix}/{name}"
            missing += [] if self.key(name) in self.values else [f"{place}/state"]
            missing += [] if self.key(name) in self.availability else [f"{place}/availability"]
        return missing

    def read_registry(self, page: dict[str, Json], *, first: bool) -> None:
        """Take a page of the registry. Pages behind the last one are left from an earlier run."""
        devices, number = page.get("devices"), page.get("page", 1)
        if not isinstance(devices, dict):
            return
        if first:
            self._pages = _count(page.get("pages", 1))
            self.names, self.sends_events = {}, set()
            self._root = page.get("root")
        if _count(number) <= self._pages:
            for name, entry in devices.items():
                entry = _object(entry)
                if entry.get("enabled") is not False:
                    _keep(self.names, name, None)
                if isinstance(kinds := entry.get("kinds"), list) and "event" in kinds and name in self.names:
                    self.sends_events.add(name)

    def read_status(self, status: dict[str, Json] | None, now: float, *, retained: bool) -> None:
        """Take a heartbeat, a goodbye or a will."""
        if status is None:
            return
        self.status = status
        at = when(status.get("at") if isinstance(status.get("at"), str) else None)
        self.heard_at = now
        if retained:
            self.heard_at = None if at is None else at.timestamp()
        elif at is not None:
            self.ahead = at.timestamp() - now

    def read_answer(self, answer: dict[str, Json], now: float) -> bool:
        """Take an answer of introspection, or a page of it. Returns whether it is the last page."""
        data = answer.get("data")
        if isinstance(data, dict):
            self.answered_at = now
            self.sections |= {name: data[name] for name in ("app", "mqtt", "adapters") if name in data}
            for device, section in _object(data.get("devices")).items():
                if isinstance(section, dict):
                    _keep(self.details, device, (now, section))
            for device, terms in _object(data.get("fields")).items():
                if isinstance(terms, dict):
                    _keep(self.terms, device, terms)
        return _count(answer.get("page", 1)) >= _count(answer.get("pages", 1))


class Fleet:
    """The apps at one broker whose prefixes match one of the patterns.

    Args:
        patterns: prefixes; a level may be ``+``, or contain ``*`` and ``?``. Empty for all prefixes of one level.
    """

    def __init__(self, patterns: Collection[str]) -> None:
        self._patterns = [pattern.split("/") for pattern in patterns or ("+",)]
        self._apps: dict[str, _App] = {}
        self.answers: dict[str, int] = {}
        """Answers of introspection that came complete, by prefix."""

    @property
    def prefixes(self) -> list[str]:
        """The prefixes of the apps that are known, sorted."""
        return sorted(self._apps)

    @property
    def filters(self) -> list[str]:
        """The topic filters that find the apps."""
        found = ["/".join("+" if set(level) & set("*?") else level for level in each) for each in self._patterns]
        return list(dict.fromkeys(f"{prefix}/{level}" for prefix in found for level in _LEVELS))

    @staticmethod
    def filters_of(prefix: str) -> list[str]:
        """The topic filters of what one app publishes."""
        return [f"{prefix}/{each}" for each in _OF_AN_APP]

    def exact_topics(self, prefix: str) -> list[str]:
        """The topics of what one app retains and nothing has come of: some brokers send what they keep only for a
        filter that is the very topic, as RabbitMQ does."""
        return self._apps[prefix].not_heard(prefix)

    def hear(self, message: Received, now: float) -> str | None:
        """Take a message at `now`, epoch seconds. Returns the prefix of an app that was not known before."""
        levels = message.topic.split("/")
        new = self._prefix_of(levels, message.payload)
        if new is not None and new not in self._apps:
            self._apps[new] = _App()
        else:
            new = None
        for size in range(len(levels) - 1, 0, -1):
            prefix = "/".join(levels[:size])
            app = self._apps.get(prefix)
            if app is not None:
                self._read(prefix, app, levels[size:], message, now)
                break
        return new

    def apps(self, now: float) -> list[AppRow]:
        """The rows of the apps."""
        return [self._app_row(prefix, self._apps[prefix], now) for prefix in self.prefixes]

    @property
    def unmatched(self) -> list[str]:
        """The patterns that match no app. The one for all apps of one level never counts as such."""
        found, wanted = [prefix.split("/") for prefix in self._apps], (each for each in self._patterns if each != ["+"])
        return ["/".join(each) for each in wanted if not any(_matches(each, prefix) for prefix in found)]

    def rows(self, now: float) -> list[DeviceRow]:
        """The rows of all devices, by app and name."""
        return [self._row(prefix, name, now) for prefix in self.prefixes for name in self._apps[prefix].devices]

    def requests(self, visible: Collection[tuple[str, str]]) -> dict[str, dict[str, Json]]:
        """What to ask each app about its visible devices, by prefix."""
        found: dict[str, dict[str, Json]] = {}
        for prefix, device in visible:
            app = self._apps.get(prefix)
            if app is not None and app.status is not None and app.status.get("state") == "online":
                request = found.setdefault(prefix, {"sections": ["app", "mqtt", "adapters", "devices"], "devices": []})
                request["devices"].append(device)
                if device not in app.terms and "fields" not in request["sections"]:
                    request["sections"].append("fields")
        return found

    def verdict(self, prefix: str, device: str, now: float) -> "Verdict | None":
        """Why a device is silent, or that it is not. None while an app that is online has not answered yet."""
        app, key = self._apps[prefix], self._apps[prefix].key(device)
        value = app.values.get(key)
        payload, taken_at = (None, None) if value is None else (value.payload, value.taken_at)
        retained = RetainedDocuments(app.status, payload, app.availability.get(key), taken_at)
        if app.state(now) != "online":
            moment = datetime.fromtimestamp(now, UTC)
            return unanswered(device, prefix, retained, f"it was not asked at {prefix}/introspect", moment)
        section = app.section(device, now)
        if section is None:
            return None
        document = app.sections | {"devices": {device: section}, "fields": {device: app.terms.get(device, {})}}
        return why(device, cast("Introspection", document), retained)

    def _prefix_of(self, levels: list[str], payload: bytes) -> str | None:
        """The prefix of an app that a message makes known; None if it makes none known."""
        if levels[-1] not in _LEVELS or len(self._apps) >= MAX_APPS:
            return None
        prefix = levels[:-1]
        if not any(_matches(pattern, prefix) for pattern in self._patterns):
            return None
        keys = ("state", "session") if levels[-1] == "status" else ("introspect", "devices")
        found = object_in(payload)
        return "/".join(prefix) if found is not None and all(key in found for key in keys) else None

    def _read(self, prefix: str, app: _App, topic: list[str], message: Received, now: float) -> None:
        match topic:
            case ["status"]:
                app.read_status(object_in(message.payload), now, retained=message.retain)
            case ["registry"] | ["registry", _]:
                app.read_registry(object_in(message.payload) or {}, first=len(topic) == 1)
            case ["introspect", "response"]:
                if app.read_answer(object_in(message.payload) or {}, now):
                    self.answers[prefix] = self.answers.get(prefix, 0) + 1
            case ["state"] | [_, "state"]:
                device = ROOT if len(topic) == 1 else topic[0]
                at = when(message.taken_at)
                arrived = None if message.retain else now
                taken = arrived if at is None else at.timestamp() - app.ahead
                _keep(app.values, device, LastReading(_text_of(message), taken, message.taken_at))
            case ["availability"] | [_, "availability"]:
                _keep(app.availability, ROOT if len(topic) == 1 else topic[0], _text_of(message))

    def _row(self, prefix: str, device: str, now: float) -> DeviceRow:
        app = self._apps[prefix]
        report, value, state = app.report(device, now), app.values.get(app.key(device)), app.state(now)
        poll = _object(report.get("poll_under_way"))
        none = "sends events" if device in app.sends_events else ""
        since = _ago(report.get("failing_since"), now + app.ahead)
        next_in = _ago(poll.get("next_call_at") or report.get("next_poll_at"), now + app.ahead)
        error = poll.get("last_error") or report.get("last_error") or report.get("deferred_reason") or ""
        return DeviceRow(
            prefix,
            device,
            str(report.get("status", "starting")) if state == "online" else state,
            none if value is None else describe_reading(value.payload, app.terms.get(device, {})),
            None if value is None or value.taken is None else max(0.0, now - value.taken),
            None if next_in is None or state != "online" else max(0.0, -next_in),
            _count(report.get("consecutive_failures")),
            _count(poll.get("failed_calls") or report.get("attempts")),
            since,
            clean(str(error)),
            str(report.get("circuit", "closed")),
        )

    def _app_row(self, prefix: str, app: _App, now: float) -> AppRow:
        status, mqtt = app.status or {}, app.reported("mqtt")
        heard = None if app.heard_at is None else max(0.0, now - app.heard_at)
        uptime, waiting = status.get("uptime"), mqtt.get("outbox")
        outbox = waiting if isinstance(waiting, dict) else {}
        counts_text = _COUNTS_TEXT.answer()
        return AppRow(
            prefix,
            app.state(now),
            heard,
            uptime + (heard or 0.0) if isinstance(uptime, int | float) else None,
            _count(outbox.get("messages")),
            _count(outbox.get("dropped")),
            str(mqtt.get("protocol") or ""),
            _count(mqtt.get("connects")),
            clean(str(mqtt.get("last_error") or "")),
            "" if counts_text is None else counts_text(status.get("nodes")),
            len(app.devices),
        )


def describe_reading(payload: str, terms: Mapping[str, Json] = MappingProxyType({})) -> str:
    """A reading in one line, as `describe_fields` writes it; any other text is left as it is."""
    try:
        found = json.loads(payload)
        return describe_fields(found, terms) if isinstance(found, dict) else clean(payload)
    except (ValueError, RecursionError):
        return clean(payload)


def _matches(pattern: list[str], prefix: list[str]) -> bool:
    """Whether a prefix is one of those of a pattern."""
    return len(pattern) == len(prefix) and all(
        wanted == "+" or fnmatchcase(level, wanted) for wanted, level in zip(pattern, prefix, strict=True)
    )


def _ago(text: Json, now: float) -> float | None:
    """Seconds since a time, negative before it; None if it is not a time."""
    moment = when(text) if isinstance(text, str) else None
    return None if moment is None else now - moment.timestamp()


def _outdated(runtime: Mapping[str, Json], report: Json, answered_at: float, heard_at: float | None) -> bool:
    """Whether a heartbeat that came after an answer has another status."""
    later = heard_at is not None and heard_at > answered_at
    return later and isinstance(report, dict) and report.get("status") != runtime.get("status")


def _object(found: Json) -> dict[str, Json]:
    """An object of JSON; empty for anything else."""
    return found if isinstance(found, dict) else {}


def _count(number: Json) -> int:
    """A number of something; 0 for anything else."""
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _text_of(message: Received) -> str:
    """The beginning of a payload."""
    return message.payload[:MAX_READING_CHARS].decode(errors="replace")


def _keep(kept: dict[str, _T], device: str, value: _T) -> None:
    """Keep what is known of a device, unless there are too many: then somebody makes names up."""
    if device in kept or len(kept) < MAX_DEVICES:
        kept[device] = value
