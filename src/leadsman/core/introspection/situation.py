"""What is known of one device at one moment, in the form in which the rows of the verdict ask for it. Pure.

It is made from the introspection document and from what the broker retains. Times come from the document, so the clock
of the app counts and not that of the reader.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.core.introspection.kept_reading import compare
from leadsman.core.loop.durations import as_float, human
from leadsman.core.mqtt.answers import Json
from leadsman.core.text import clean, count_noun

if TYPE_CHECKING:
    from leadsman.core.introspection.document import (
        AdapterSection,
        DeviceOutbox,
        DeviceSection,
        Introspection,
        MqttSection,
        Published,
        Registered,
        Runtime,
        Subscribed,
    )
    from leadsman.core.monitoring.document import PollUnderWay, TopicFault

READS = frozenset({"telemetry", "source", "event", "periodic"})
"""Kinds of registrations that read a device by themselves."""
_PLAIN = frozenset({"OSError", "ConnectionError", "TimeoutError", "DeviceTimeout", "DeviceUnavailable", "GarbledData"})
"""Classes of errors that add nothing to their messages."""
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_ENDED = re.compile("[.?!]$|[;,] ")
"""What an error has that is a sentence of its own, or more than one."""
_MAX_WRITTEN_SECONDS = 3650 * 86_400.0
"""Seconds. A longer time is not written out."""
_MAX_DECIMALS = 20
_SMALL = 3
"""Digits that are shown of a number between -1 and 1 whose decimals are not declared; of others, two decimals."""


class RetainedDocuments(NamedTuple):
    """The documents that the broker retains of an app and one of its devices; None for one that it does not retain."""

    status: dict[str, Json] | None = None
    """The document at ``{prefix}/status``."""
    state: str | None = None
    """The payload at ``{prefix}/{device}/state``."""
    availability: str | None = None
    """The payload at ``{prefix}/{device}/availability``."""
    taken_at: str | None = None
    """When the reading at the state topic was taken, if its message has that (MQTT 5)."""
    lease: dict[str, Json] | None = None
    """The document at ``{prefix}/lease``, of an app that several nodes share."""


class Unanswered(NamedTuple):
    """That an app gave no document, and why."""

    error: Exception | str | None = None
    """Why there is no answer; None if the app refused the request."""
    broke: bool = False
    """Whether the app lost its connection as it answered."""
    refusal: str = ""
    """What the app answered in place of a document."""


class Situation:
    """One device in an introspection document, or at a broker whose app does not answer.

    Args:
        name: the device, which is in the document.
        document: the document. Sections may be missing.
        retained: what the broker retains; None if nobody looked.
        options: what a command line needs, besides the prefix, to reach the app: empty, or with a space before it.
        prefix: the topic prefix of the app, where the document does not contain it.
        now: the time of the reader, where the document does not contain that of the app.
        unanswered: why there is no document; None if there is one.
    """

    def __init__(
        self,
        name: str,
        document: "Introspection",
        retained: RetainedDocuments | None = None,
        options: str = "",
        *,
        prefix: str = "PREFIX",
        now: datetime | None = None,
        unanswered: Unanswered | None = None,
    ) -> None:
        self.name = name
        self.document = document
        self.retained = retained
        self.kept = retained or RetainedDocuments()
        self.options = options
        self.error, self.broke, self.refusal = unanswered or Unanswered()
        self.job = name in document.get("jobs", {})
        sections = document.get("jobs", {}) if self.job else document.get("devices", {})
        section = cast("DeviceSection", sections.get(name, {}))
        self.registrations: list[Registered] = section.get("registrations", [])
        self.runtime: Runtime | None = section.get("runtime")
        reader = next((each for each in self.registrations if each["kind"] in READS), None)
        self.reads = reader is not None
        """Whether it gives readings or events, and not only takes commands."""
        self.reader = reader or cast("Registered", {})
        """The registration that reads the device; empty if it only takes commands."""
        self.pushes = self.reader.get("kind") in ("source", "event")
        """Whether it gives readings or events by itself."""
        self.sends_events = self.reader.get("kind") == "event"
        """Whether it gives events, which nobody can expect at a time."""
        self.has_json = self.reader.get("layout") != "fields"
        """Whether its readings are at ``state``, and not only its values at topics of their own."""
        self.published = cast("Published", ({} if self.runtime is None else self.runtime.get("published")) or {})
        """What became of its readings; empty if the document does not have that, as for a side job."""
        self.mqtt = cast("MqttSection", document.get("mqtt") or {})
        app = document.get("app")
        self.prefix = prefix if app is None else app["prefix"]
        root = app is not None and app.get("root") == name
        self.below = f"{self.prefix}/" if root else f"{self.prefix}/{name}/"
        """The beginning of the topics of the device."""
        self.terms = cast("Mapping[str, Json]", document.get("fields", {}).get(name, {}))
        """The terms that are declared for the fields of its readings, such as their units."""
        self.now = now if app is None else _later(when(app.get("started_at")), app.get("uptime"))
        """The time of the app; None if the document does not contain it."""

    @property
    def state(self) -> "Runtime":
        """The state of a device that runs."""
        if self.runtime is None:
            raise AssertionError("a row of the table before this one finds a device that does not run")
        return self.runtime

    @property
    def waiting(self) -> "DeviceOutbox":
        """Its messages in the outbox; empty if nothing waits, and nothing was refused or lost."""
        return self.state.get("outbox") or cast("DeviceOutbox", {})

    @property
    def refused(self) -> bool:
        """Whether the broker does not accept its messages, or did not accept one lately."""
        return self.waiting.get("refused") is not None

    @property
    def failed_polls(self) -> int:
        """How many polls have failed since the last success."""
        return self.state["consecutive_failures"]

    @property
    def fault(self) -> "TopicFault":
        """Why they are not accepted, or were lost lately; empty if neither is so."""
        return self.waiting.get("fault") or cast("TopicFault", {})

    @property
    def under_way(self) -> "PollUnderWay":
        """The poll that is being retried; empty if none is."""
        return self.state["poll_under_way"] or cast("PollUnderWay", {})

    @property
    def sent_at(self) -> str | None:
        """When its last published reading was taken."""
        return self.published.get("published_at")

    @property
    def unread(self) -> bool:
        """Whether no poll of it has ended since the start of the app."""
        return self.reads and not self.state["counters"]["polls"]

    @property
    def kept_in_place(self) -> str | None:
        """When the reading was taken that the broker retains in place of the last one, or empty text if it retains
        none; None if it has the last one, or if that cannot be known."""
        delivery, retained, sent = self.reader.get("delivery"), self.retained, self.sent_at
        if retained is None or delivery is None or sent is None:
            return None
        if not delivery["retain"] or not self.has_json or self.state.get("outbox") is not None:
            return None  # each subscriber gets the next reading; or it is on its way
        found = compare(sent, None if retained.state is None else retained.state.encode(), retained.taken_at)
        return None if found.is_there else found.kept_since or ""

    @property
    def adapters(self) -> "list[AdapterSection]":
        """The adapters that the device needs."""
        needs = {label for each in self.registrations for label in each["needs"]}
        return [each for each in self.document.get("adapters", []) if each["adapter"] in needs]

    @property
    def succeeded(self) -> bool:
        """Whether it gave a reading, or ended a poll, since the start of the app."""
        runtime = self.runtime
        return runtime is not None and runtime["counters"]["polls"] > runtime["counters"]["failed_polls"]

    def at(self, text: str | None) -> str:
        """A time for a person, and how long ago it is, or until then."""
        moment = when(text)
        if moment is None:
            return "an unknown time" if text is None else clean(text)
        shown = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        age = self.age(text)
        if age is None:
            return shown
        return f"{shown} ({span(age)} ago)" if age >= 0 else f"{shown} (in {span(-age)})"

    def age(self, text: str | None) -> float | None:
        """Seconds since a time; negative if it is in the future; None if that is not known."""
        moment = when(text)
        return None if moment is None or self.now is None else (self.now - moment).total_seconds()

    def command(self, words: str) -> str:
        """A command line about this device."""
        return f"leadsman {words} {quote(self.name)}{self.options} --prefix {quote(self.prefix)}"

    @property
    def cause(self) -> str | None:
        """Why it fails, for how long, and how often it is tried. None if it does not fail, or if a person decides when
        it is tried."""
        runtime = self.runtime
        if runtime is None or runtime["held"] or runtime["circuit"] == "isolated":
            return None
        last = runtime["last_error"] or self.under_way.get("last_error")
        if not last:
            return None
        kind, _, message = clean(last).partition(": ")
        error = _NUMBER.sub("", message) if message and kind in _PLAIN else clean(last)
        lasted, polls = self.age(runtime["failing_since"]), runtime["consecutive_failures"]
        times = f", {count_noun(polls, 'failure' if self.pushes else 'poll')} in a row" if polls > 1 else ""
        since = "" if lasted is None or lasted < 1 else f" for {span(lasted)}"
        text = f"{error}{since}{times}."
        if _ENDED.search(error) and (since or times):  # what follows would belong to its last words
            text = f"{error}{'' if error[-1] in '.?!' else '.'} It has failed{since}{times if since else times[1:]}."
        breaker, is_open = self.reader.get("circuit_breaker"), runtime["circuit"] in ("open", "half_open")
        every = breaker.get("recovery") if is_open and breaker else self.reader.get("interval")
        if not isinstance(every, int | float):  # each of its pauses is longer than the last, or it has a schedule
            return text
        return f"{text} leadsman tries it every {span(every)}."

    # Lines of evidence; an empty one is left out

    @property
    def last_reading(self) -> str:
        """When the device was read last."""
        last = self.state["last_success_at"]
        return f"last success: {self.at(last)}" if last else "it has never been read"

    @property
    def queued(self) -> str:
        """How many of its messages wait in the outbox, if any do."""
        number = self.waiting["messages"]
        return f"{count_noun(number, 'message')} of it in the outbox{oldest(self.waiting['oldest'])}" if number else ""

    @property
    def losses(self) -> str:
        """How many of its messages were lost, if any were, and what the broker accepted since."""
        fault = self.fault
        if not fault.get("lost"):
            return ""
        taken = fault.get("taken")
        since = f"; since then the broker accepted {count_noun(taken, 'message')} of it" if taken else ""
        return f"{count_noun(fault['lost'], 'message')} of it lost, the last one {self.at(fault.get('lost_at'))}{since}"

    @property
    def retained_reading(self) -> list[str]:
        """What the broker retains in place of the last reading, and when that was published."""
        since, topic = self.kept_in_place, f"{self.below}state"
        kept = f"still retains at {topic} what was taken {self.at(since)}" if since else f"retains nothing at {topic}"
        return [f"the broker {kept}", f"the last reading was published {self.at(self.sent_at)}"]

    def connection_error(self, word: str) -> str:
        """The last error of the connection, if there is one."""
        return f"{word}: {clean(self.mqtt['last_error'])}" if self.mqtt["last_error"] else ""

    def due(self, what: str = "the next poll") -> str:
        """When it is polled next, if that is known."""
        due = self.state["next_poll_at"]
        return f"{what} is due at {self.at(due)}" if due else ""

    @property
    def timetable(self) -> str:
        """How often it is read."""
        interval, cron = self.reader.get("interval"), self.reader.get("schedule")
        if cron:
            return f"its schedule is {clean(cron)}"
        return f"its interval is {span(interval)}" if interval is not None else "it has no schedule"

    @property
    def failure(self) -> list[str]:
        """The last error, since when it fails, and how often; only the last reading if nothing fails."""
        runtime, lines = self.state, []
        if runtime["last_error"]:
            lines.append(f"last error: {clean(runtime['last_error'])}")
        if runtime["failing_since"]:
            polls = runtime["consecutive_failures"]
            failed = count_noun(polls, "failure" if self.pushes else "failed poll")
            row = " in a row" if polls > 1 else ""
            lines.append(f"failing since {self.at(runtime['failing_since'])}: {failed}{row}")
        return [*lines, self.last_reading, *self.silence, *self.subscriptions]

    @property
    def silence(self) -> list[str]:
        """How long its adapters have received nothing, as far as they report that."""
        lines = []
        for each in self.adapters:
            health, label = each.get("health", {}), clean(each["adapter"])
            if "silent_for" in health:
                quiet = health["silent_for"]
                time = f"for {span(quiet)}" if isinstance(quiet, int | float) else "yet"
                lines.append(f"{label} has received nothing {time}")
            if health.get("discarded"):
                lines.append(f"{label} discarded {value(health['discarded'])} bytes that fit no message")
        return lines

    @property
    def subscriptions(self) -> list[str]:
        """What came at the topics that feed the device, or may do so."""
        lines = []
        for topics, each in self.heard.items():
            failed = f", {each['failed']} of them failed" if each["failed"] else ""
            last = f", the last one {self.at(each.get('received_at'))}" if each.get("received_at") else ""
            why = each.get("last_error")
            error = f": {clean(why)}" if why else ""
            came = count_noun(each["received"], "message") if each["received"] else "nothing"
            lines.append(f"received {came} at {clean(topics)}{last}{failed}{error}")
        return lines

    @property
    def heard(self) -> "Mapping[str, Subscribed]":
        """What became of the messages of other programs that feed this device, by topic filter. A source without an
        adapter may be fed by any of those that name no device."""
        found = self.mqtt.get("subscriptions", {})
        if own := {topics: each for topics, each in found.items() if each.get("device") == self.name}:
            return own
        source = self.pushes and not self.reader["needs"]
        return {topics: each for topics, each in found.items() if not each.get("device")} if source else {}


def when(text: str | None) -> datetime | None:
    """The moment of an RFC 3339 text; None if it cannot be parsed."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def span(seconds: float) -> str:
    """A duration for a person, in whole seconds if it is longer than one."""
    if not math.isfinite(as_float(seconds)) or abs(seconds) > _MAX_WRITTEN_SECONDS:
        return "a very long time"
    return human(round(seconds) if seconds >= 1 else round(max(0.0, seconds), 3))


def value(shown: Json) -> str:
    """A value of a reading for a person."""
    try:
        return clean(json.dumps(shown, ensure_ascii=False, default=str))
    except (ValueError, TypeError, RecursionError):
        return clean(type(shown).__name__)


def oldest(age: float | None) -> str:
    """The end of a sentence about messages that wait."""
    return "" if age is None else f", the oldest for {span(age)}"


def describe_fields(fields: Mapping[str, Json], terms: Mapping[str, Json]) -> str:
    """A reading in one line: ``celsius 21.5 °C, door open``.

    Args:
        fields: the reading.
        terms: what is declared of each field, as the section `fields` of introspection has it; it may be wrong, since
            another program sends it.
    """
    return clean(", ".join(_describe_values(fields, terms, "")))


def _describe_values(fields: Mapping[str, Json], terms: Mapping[str, Json], path: str) -> Iterator[str]:
    for name, value in fields.items():
        found = terms.get(f"{path}{name}")
        known = found if isinstance(found, dict) else {}
        if isinstance(value, dict):
            yield from _describe_values(value, terms, f"{path}{name}.")
        elif isinstance(value, str):
            yield f"{path}{name} {value}"
        else:
            unit = known.get("unit") if value is not None and not isinstance(value, bool | list) else None
            number = _decimals(value, known.get("precision")) if isinstance(value, float) else json.dumps(value)
            yield f"{path}{name} {number}" + (f" {unit}" if isinstance(unit, str) else "")


def _decimals(value: float, decimals: Json) -> str:
    if isinstance(decimals, int) and 0 <= decimals <= _MAX_DECIMALS:
        return f"{value:.{decimals}f}"
    return json.dumps(float(f"{value:.{_SMALL}g}") if abs(value) < 1 else round(value, 2))


def _later(moment: datetime | None, seconds: float | None) -> datetime | None:
    if moment is None or seconds is None or not math.isfinite(as_float(seconds)):
        return None
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
