"""Why a device is silent: a table in the order of the chain from its registration to what the broker retains. The first
row that applies names the link that does not pass a reading on. Pure."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from leadsman._version import __version__
from leadsman.core.introspection.situation import (
    RetainedDocuments,
    Situation,
    Unanswered,
    describe_fields,
    oldest,
    span,
    value,
    when,
)
from leadsman.core.monitoring.health import MARKED_UNAVAILABLE
from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.connection import WILL_DELAY
from leadsman.core.mqtt.connection_state import CREDENTIALS
from leadsman.core.mqtt.topic_faults import advise
from leadsman.core.text import clean, count_noun
from leadsman.core.text.suggestion import nearest
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, NotListening, RequestDenied

if TYPE_CHECKING:
    from leadsman.core.introspection.document import ComparedField, Introspection, Link, Verdict
    from leadsman.core.runtime.document import Commands

_MIN_LONG_CHARS = 9
"""Characters from which on a number is shown with six digits."""
LATE_SECONDS = 5.0
"""Seconds that a reading waits in the outbox of a connected app before that explains a silence."""
OVERDUE = 120.0
"""Seconds without a heartbeat after which an app whose status is online probably is not: four of its default
intervals."""
SILENT_AFTER, SILENT_POLLS = 60.0, 3
"""A device whose publish rule suppresses its readings is silent after so many seconds, and so many of its intervals."""
JUST_NOW = 0.1
"""Seconds after a poll in which its reading may still be on its way to the publish rule."""
MAX_SIMILAR_NAMES = 1000
"""Names that are compared with a name that is wrong."""
_SHOWN = 10
"""Names that are listed."""
SEVERAL = 2
"""Failed polls in a row that explain a silence before the broker's answer does."""
MIN_SECONDS_TO_ASK = 60.0
"""Seconds to the next poll from which on it is worth asking for one."""
UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""The errors of reading a document of another version."""

_FIXES: Mapping[str, Mapping[str, str]] = {
    "DeviceTimeout": {
        "": "check that the device is switched on, and that it can be reached or still sends: nothing comes from it",
        "serial": "check the power, the cable and the address of the device: nothing answers",
        "bluetooth": "check the battery of the device, and how far away it is: nothing answers",
        "calendars": "check that the server runs, and its address in the settings: nothing answers in time",
        "http": "check that the server runs, and its address in the settings: the error shows how far the request got",
        "i2c": "check the wiring and the pull-up resistors of the bus: a chip may hold a line low",
        "onewire": "check the cable and the resistor of 4.7 kΩ: the kernel waits for the bus",
    },
    "DeviceUnavailable": {
        "": "check that the device is switched on, and that the app may use it",
        "serial": "check that the device is plugged in and switched on, and that the app may open its port",
        "bluetooth": "check that the radio of this machine is on (bluetoothctl show), and that the device is in reach",
        "calendars": "check that the server runs, and its address in the settings",
        "http": "check that the server runs, and its address in the settings: the error shows what happened",
        "i2c": "fix what the error names: the bus, or the power, the wiring and the address of the chip",
        "onewire": "fix what the error names: one-wire itself, the name of the thermometer, or its cable and resistor",
    },
    "GarbledData": {
        "": "compare what the device sends with what the handler expects: the error shows it",
        "serial": "check the baud rate, the parity, the framer and the wiring",
        "bluetooth": "check that the device is of the model that the app expects",
        "calendars": "open the address in a browser: something else than a calendar may answer there",
        "http": "open the address in a browser: something else than the device may answer there",
        "i2c": "check that the chip is of the model that the app expects, and that no other one has its address",
        "onewire": "check the cable, the power and the resistor of 4.7 kΩ: the error shows what arrived",
    },
    "PermanentError": {
        "": "fix what the error names; retrying will not help",
        "calendars": "correct the user name, the password or the calendar that the error names",
        "http": "fix what the error names: the address, the account, the certificate, or what the handler expects",
        "i2c": "fix what the error names: the right to open the bus, or the driver of the kernel that has the chip",
    },
    "PermissionError": {
        "": "grant the user of the app the right that is missing",
        "serial": "let the user of the app open the device, for example with the group dialout",
    },
    "FileNotFoundError": {
        "": "correct the path that the error names",
        "serial": "plug the device in, or correct its path in the settings",
    },
    "NoFreeThread": {"": "set a timeout on the blocking calls of the handlers that it names"},
    "ConnectionRefusedError": {"": "start the service that the handler asks, or correct its address"},
    "TimeoutError": {"": "check why the device does not answer within the timeout of the handler"},
    "ResultError": {"": "correct what the handler returns"},
    "HttpRefused": {"": "fix what the error names: the address, the account, or the request"},
    "HttpUnavailable": {"": "check the server: it answers, but cannot serve the request for now"},
    "HTTPStatusError": {"": "read what the server answered: the address, the rights or the request may be wrong"},
    "HTTPError": {"": "read what the server answered: the address, the rights or the request may be wrong"},
    "ConnectError": {"": "check that the server runs, and its address"},
    "ConnectTimeout": {"": "check that the server runs, and its address"},
    "ReadTimeout": {"": "check why the server does not answer within the timeout"},
}
"""One thing to do for the errors whose cause is known, by the name of the class, and then by the kind of the adapter;
empty where the device has none, or one whose kind is unknown."""
_BY_MESSAGE: Mapping[str, str] = {
    "'coroutine'": "write await before the call whose result is used",
    "returned a coroutine": "write await before the call that the handler returns",
    "Service Unavailable": "check the server: it answers, but cannot serve the request for now",
    "Too Many Requests": 'ask less often, or write policy="http", which waits as long as the server says',
    "Internal Server Error": "check the log of the server: it failed to handle the request",
    "Unauthorized": "correct the user name, the password or the token that the handler sends",
    "thread of an earlier call is still busy": "set a timeout on the blocking call in the handler: it has not returned",
}
"""The same for errors whose class is too general, by what their messages contain."""
_PLACE = re.compile(r" \(([^()]+\.py:\d+)(?: in [^()]+)?\)$")
"""The end of an error that user code raised: its file and line."""


class Found(NamedTuple):
    """What is wrong at a link, or that all is well."""

    summary: str
    """One sentence."""
    advice: str
    """One thing to do."""
    evidence: Sequence[str]
    """The facts that show it; an empty one is left out."""
    since: Json = None
    state: Literal["ok", "intended", "broken"] = "broken"


def _verdict(s: Situation, link: "Link", found: Found) -> "Verdict":
    return {
        "device": s.name,
        "link": link,
        "state": found.state,
        "summary": found.summary,
        "since": found.since if isinstance(found.since, str) else None,  # another version may write something else
        "evidence": [line for line in found.evidence if line],
        "advice": found.advice,
    }


# Without an answer


def _unreachable(s: Situation) -> Found:
    error = cast("BrokerError", s.error)
    if isinstance(error, RequestDenied):
        topic = clean(error.topic)
        advice = f"allow this user in the broker's access list: topic write {topic}, topic read {topic}/response"
        return Found(f"the broker does not accept the request of this command at {topic}", advice, [clean(str(error))])
    code = error.code if isinstance(error, ConnectionRefused) else None
    cause, advice = _cause_of(code, error.address if isinstance(error, NotListening) else None)
    if isinstance(error, ConnackMissing):
        known = "correct its address" if error.silent else "correct the user name and the password, or its address"
        advice = f"see the broker's log{', and start it again if it hangs' if error.silent else ''}; {known}"
    text = clean(error.without_hint())
    summary = cause or f"the broker cannot be reached from here: {text}"
    return Found(summary, f"{advice}: --mqtt, or the settings of the app", [text if cause else ""])


def _unanswered(s: Situation) -> Found:
    status, error, kept = s.kept.status, clean(str(s.error)), ""
    if s.kept.state is not None:
        taken = f", taken {s.at(s.kept.taken_at)}" if s.kept.taken_at else ""
        kept = f"the broker still retains {clean(s.kept.state[:200])}{taken}"
    if s.broke:
        summary = "its app loses its connection as it answers: the answer may be too large for the broker"
        ask = "" if s.name else "ask about one device: leadsman why DEVICE; or "
        return Found(summary, f"{ask}raise the broker's limit of the size of a message", [error, kept])
    if status is None:
        advice = "check the prefix and the broker; no app with this prefix has ever run there, or it is a dry run"
        nothing = f"the broker retains nothing at {s.prefix}/status"
        return Found("there is no app with this prefix", advice, [error, kept, nothing])
    sent = status.get("at")
    at = sent if isinstance(sent, str) else None
    known = [kept, *_last_known(s, status), _nodes(s, status)]
    if status.get("state") != "online" and at is not None:
        lines = [error, f"its last status was sent {s.at(at)}", *known]
        return Found("its app was stopped", "start it: leadsman run MODULE:APP", lines, at)
    if status.get("state") != "online":
        lines = [error, f"the broker published its will; it had connected {_session(s, status)}", *known]
        advice = "check its log and start it again; if it runs, check its network"
        return Found("its app ended without its last status, or lost its network", advice, lines, s.kept.taken_at)
    lines, age = [error, f"its last heartbeat was sent {s.at(at)}", *known], s.age(at)
    if age is not None and age > OVERDUE:
        advice = "check its log and start it again: its process hangs, or its host is gone"
        return Found(f"its app has sent no heartbeat for {span(age)}", advice, lines, at)
    advice = (
        f"ask again in {span(WILL_DELAY)}: if the app has just died, the broker says so then; if not, allow "
        f"{s.prefix}/introspect and {s.prefix}/introspect/response in the broker's access list"
    )
    return Found("its app is online, but does not answer", advice, lines, at)


def _last_known(s: Situation, status: Mapping[str, Json]) -> list[str]:
    """The device in the last heartbeat."""
    devices = status.get("devices")
    report = devices.get(s.name) if isinstance(devices, dict) else None
    if not isinstance(report, dict):
        return []
    error = report.get("last_error")
    return [f"its status was {clean(str(report.get('status')))}", f"last error: {clean(str(error))}" if error else ""]


def _nodes(s: Situation, status: Mapping[str, Json]) -> str:
    """What the broker retains of the nodes, if several share the app. A lease of a node that is gone ends by itself, at
    a time of that node's clock; with MQTT 5 the broker then forgets it."""
    lease, node = s.kept.lease or {}, status.get("node")
    if isinstance(lease.get("owner"), str):
        owner, until = clean(str(lease["owner"])), lease.get("until")
        until = until if isinstance(until, str) else None
        age = s.age(until)
        if age is None or age < 0:
            return f"the node {owner} has the lease, until {s.at(until)}: it is active, or takes over"
        return f"no node is active: the lease of {owner} ended {s.at(until)}, and no standby node took over"
    if isinstance(node, dict) and isinstance(node.get("name"), str):
        return f"no node is active: the lease of {clean(str(node['name']))} is gone, and no standby node took over"
    return ""


def _session(s: Situation, status: Mapping[str, Json]) -> str:
    """When the session of a document began."""
    session = status.get("session")
    if isinstance(session, bool) or not isinstance(session, int):
        return "at an unknown time"
    try:
        return s.at((datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=session)).isoformat())
    except OverflowError:
        return "at an unknown time"


# From the registration to a reading


def _unregistered(s: Situation) -> Found:
    names = [*s.document.get("devices", {}), *s.document.get("jobs", {})][:MAX_SIMILAR_NAMES]
    near, inspect = nearest(s.name, names), f"leadsman inspect{s.options} --prefix {quote(s.prefix)}"
    known = f"it has {', '.join(clean(name) for name in names[:_SHOWN])}" if names else ""
    advice = f"write {clean(near)}" if near else f"list the devices: {inspect}"
    return Found("the app has no device of this name", advice, [clean(str(s.refusal)), known])


def _disabled(s: Situation) -> Found:
    lines = [f"{each['kind']} {clean(each['handler'])}: enabled=False" for each in s.registrations]
    return Found("it is not enabled", "set enabled=True, and start the app again", lines, state="intended")


def _not_running(s: Situation) -> Found:
    lines = ["the document contains its registration, and no state"]
    return Found("the app does not run", "start it: leadsman run MODULE:APP", lines)


def _held(s: Situation) -> Found:
    release = s.command("release")
    if s.state["last_error"] is None:
        advice, since = f"release it: {release}", s.state["last_success_at"]
        return Found("a person holds it, so it is not polled", advice, [s.last_reading], since, "intended")
    summary = 'it failed, and waits for a person, as on_failure="hold" says'
    return Found(summary, f"fix it, then: {release}", s.failure, s.state["failing_since"])


def _isolated(s: Situation) -> Found:
    opened, close = s.state["opened_at"], f"{s.command('circuit')} --action close"
    lines = [f"its circuit is isolated since {s.at(opened)}", *s.failure]
    summary, advice = (
        "a person isolated its circuit, so it is not polled",
        "close the circuit when the work at the device is done",
    )
    return Found(summary, f"{advice}: {close}", lines, opened, "intended")


def _adapter(s: Situation) -> Found:
    shut = next(each for each in s.adapters if not each["open"])
    label, error = clean(shut["adapter"]), shut["error"] or "it is still opening"
    named = error if error.partition(":")[0] in _FIXES or shut["error"] is None else f"DeviceUnavailable: {error}"
    lines = [f"{label} is not open: {clean(error)}", *s.failure]
    return Found(f"its adapter {label} is not open", _fix(s, named), lines, s.state["failing_since"])


def _deferred(s: Situation) -> Found:
    reason, until = s.state["deferred_reason"] or "", s.state["deferred_until"]
    if reason.startswith(MARKED_UNAVAILABLE):
        advice, lines = "wait: its next reading makes it available again", [clean(reason), s.last_reading]
        return Found("the device was marked unavailable", advice, lines, state="intended")
    age = s.age(until)
    over = age is not None and age >= 0
    pause = f"the pause ended {s.at(until)}" if over else f"there is no poll before {s.at(until)}"
    poll = s.due() if not s.state.get("busy") else "a poll is under way" if over else ""
    summary = f"the device asked for a pause{f': {clean(reason)}' if reason else ''}"
    lines = [pause if until is not None else "", poll, s.last_reading]
    return Found(summary, "wait: it is polled again by itself", lines, state="intended")


def _circuit(s: Situation) -> Found:
    state, rule = s.state, s.reader.get("circuit_breaker")
    after = f"; it opens after {count_noun(rule['threshold'], 'failed poll')}" if rule else ""
    failed = sorted((state.get("failed_probes") or {}).items())
    probes = ", ".join(f"{clean(name)} failed {count_noun(number, 'probe')}" for name, number in failed)
    shared = f"the circuit is shared; since it opened {probes}" if probes else ""
    opened = f"its circuit is {state['circuit'].replace('_', ' ')} since {s.at(state['opened_at'])}{after}"
    advice = f"{_fix(s, state['last_error'])}; to poll it at once: {s.command('circuit')} --action close"
    summary = "it failed poll after poll; to spare it, leadsman only probes it"
    lines = [opened, s.due("the next probe"), shared, *s.failure]
    return Found(summary, advice, lines, state["failing_since"] or state["opened_at"])


def _trying_again(s: Situation) -> Found:
    poll, retry = s.under_way, s.reader.get("retry")
    limit = "" if retry is None else " (it retries until the next poll)"
    limit = f" of {retry + 1}" if isinstance(retry, int) else limit
    lines = [f"attempt {poll['failed_calls']}{limit} failed", f"the next call is due at {s.at(poll['next_call_at'])}"]
    summary = f"a call failed, and its poll tries again: {clean(poll['last_error'])}"
    advice = _fix(s, s.state["last_error"] or poll["last_error"])
    return Found(summary, advice, [*lines, *s.failure], s.state["failing_since"])


def _failing(s: Situation) -> Found:
    error, wait = s.state["last_error"], s.age(s.state["next_poll_at"])
    summary = (_unfed(s)[0] if (error or "").startswith("DeviceTimeout") else "") or "its last poll failed"
    far = wait is not None and wait < -MIN_SECONDS_TO_ASK
    then = f"; then poll it at once: {s.command('poll')}" if far else ""
    return Found(summary, f"{_fix(s, error)}{then}", [s.due(), *s.failure], s.state["failing_since"])


def _finder_failed(s: Situation) -> Found:
    finder = clean(s.reader.get("found_by") or "a handler")
    lines = [f"it was found at run time by {finder}, which fails", s.last_reading]
    return Found(f"{finder} has failed, so it is offline", _ask_about(finder), lines)


def _event_failed(s: Situation) -> Found:
    topic = _failed_event(s)
    return Found(f"the last message at {topic} failed, and was no event", _compare_messages(topic), s.subscriptions)


def _failed_event(s: Situation) -> str:
    """The topic at which the last message that should have been an event of the device was none. Nothing else shows
    it, as no event is ever missed."""
    own = (topics for topics, each in s.heard.items() if each.get("device") == s.name and each.get("last_error"))
    return clean(next(own, "")) if s.sends_events else ""


def _no_reading(s: Situation) -> Found:
    """No poll has ended so far, or the source has given nothing. That is intended until the device is stale."""
    timeout, finder, unfed = s.reader.get("timeout"), s.reader.get("found_by"), _unfed(s)
    if s.state.get("busy"):
        summary, advice = "its first poll has not ended yet", "wait: a call that hangs is ended"
        lines = ["its first poll is under way", f"a call may take {span(timeout)}" if timeout else ""]
    elif finder is not None:
        summary, advice = f"{finder} has returned no reading of it yet", _ask_about(finder)
        lines = [f"it was found at run time by {finder}", *s.silence]
    elif s.sends_events and not any(unfed):
        summary, advice, lines = "its source is starting to listen", "wait: that takes a few seconds", s.silence
    else:
        summary = unfed[0] or "its source has received no reading yet"
        advice = unfed[1] or "check that the device sends: a source publishes only what it receives"
        started = f"its source was started {count_noun(s.state.get('restarts', 0) + 1, 'time')}"
        lines = [started, *s.silence, *s.subscriptions]
    return Found(summary, advice, lines, state="broken" if s.state["stale"] else "intended")


def _called(s: Situation) -> object:
    """Whether a device that was not read so far was at least called, or listens, or waits for another one."""
    return s.state.get("busy") or s.reader.get("found_by") is not None or s.pushes


def _not_due(s: Situation) -> Found:
    lines = [s.timetable, s.last_reading, s.due("the first poll")]
    summary = "it has not been polled since the start of the app"
    return Found(summary, "wait until it is due", lines, state="broken" if s.state["stale"] else "intended")


def _stale(s: Situation) -> Found:
    limit, missed, unfed = s.reader.get("stale_after"), s.state["missed_polls"], _unfed(s)
    if s.state.get("busy"):
        lines = ["a poll is under way, or the thread of an earlier one still runs"]
        advice = "find out where the handler blocks: the log has its stack if it blocks the event loop"
    elif s.pushes:
        lines, advice = s.subscriptions, unfed[1] or "check that the device still sends"
    else:
        lines = [s.timetable, s.due()]
        advice = "check that the host did not sleep, and that stale_after is longer than the interval"
    after = "" if limit is None else f"it is stale {span(limit)} after that"
    lines = [s.last_reading, after, *lines, count_noun(missed, "missed poll") if missed else "", *s.silence]
    summary = unfed[0] or "its last reading is too old, though no call failed"
    return Found(summary, advice, lines, s.state["last_success_at"])


def _job(s: Situation) -> Found:
    summary = "it is a side job, which publishes nothing"
    return Found(summary, "nothing to do", [s.last_reading, s.timetable], state="ok")


def _command(s: Situation) -> Found:
    nothing: Commands = {"done": 0, "failed": 0, "refused": 0, "waiting": 0, "last_error": None}
    commands = s.state.get("commands") or nothing
    summary = "it only accepts commands, and publishes what they return"
    if error := commands.get("last_error"):
        summary = f"its last command failed or was refused: {clean(error)}"
    counts = f"{commands['done']} executed, {commands['failed']} of them failed, {commands['refused']} refused"
    waiting = f"{count_noun(commands['waiting'], 'command')} waiting" if commands["waiting"] else ""
    return Found(summary, f"send one to {s.below}set", [f"commands: {counts}", waiting], state="ok")


def _nothing_returned(s: Situation) -> Found:
    last, window = s.state["last_success_at"], s.reader.get("window")
    sent_at = f"published last: {s.at(s.sent_at)}" if s.sent_at else "no reading of it was published"
    summary = "its handler returns None, so there is nothing to publish"
    advice = "return a reading from the handler, if there should be one"
    if window is not None:
        summary = f"a window of its filters is open, and the shortest lasts {span(window)}"
        advice = "wait: it is published when a window is over"
    return Found(summary, advice, [f"its last poll succeeded {s.at(last)}", sent_at], last, "intended")


def _unpublished(s: Situation) -> bool:
    """Whether the last call succeeded, and its reading did not get as far as the publish rule."""
    if s.published.get("suppressed") != 0 or not s.succeeded or s.sends_events:
        return False
    last = s.state["last_success_at"]
    read, sent, age = when(last), when(s.sent_at), s.age(last)
    return read is not None and (sent is None or sent < read) and (age is None or age >= JUST_NOW)


def _unfed(s: Situation) -> tuple[str, str]:
    """What is wrong with the messages of others that feed a device, and one thing to do; empty if nothing is."""
    for topics, each in s.heard.items():
        name = clean(topics)
        if not each["received"]:
            return f"nothing was received at {name}", f"check the topic {name}, and that its sender runs"
        if error := each.get("last_error"):
            return f"the last message at {name} failed: {clean(error)}", _compare_messages(name)
    return "", ""


def _compare_messages(topic: str) -> str:
    return f"compare the messages at {topic} with the type that its handler takes"


def _ask_about(finder: str) -> str:
    return f"ask the same about {finder}: it provides the readings of this device"


def _fix(s: Situation, error: str | None) -> str:
    """One thing to do about an error, which begins with the name of its class."""
    text = error or ""
    if text.startswith("DeviceTimeout") and (advice := _unfed(s)[1]):
        return advice
    name = text.partition(":")[0].strip()
    known = next((advice for words, advice in _BY_MESSAGE.items() if words in text), None)
    if known is None and (by_kind := _FIXES.get(name)) is not None:
        kinds = {each.get("kind", "") for each in s.adapters}
        known = by_kind.get(kinds.pop() if len(kinds) == 1 else "", by_kind[""])
    traceback = f"{s.command('trace')} --json"
    if known is None and (place := _PLACE.search(text)) is not None:
        if name == "Abandoned":
            return f"set a timeout on the call at {place[1]}, and restart the app: it does not end when it is cancelled"
        return f"correct the code at {place[1]}, and restart the app; see the traceback: {traceback}"
    return known or f"see each failed call with its traceback: {traceback}"


# From a reading to what the broker retains


def _refused(s: Situation) -> Found:
    fault, pause = s.fault, s.waiting["paused_for"]
    lines = [
        clean(s.waiting["refused"] or ""),
        s.queued,
        "" if pause is None else f"the topic is tried again in {span(pause)}",
    ]
    summary = "the broker does not accept its messages"
    if fault.get("taken"):
        summary = "the broker accepts some of its messages, and others are lost"
    advice = advise(fault.get("kind", "closes"), clean(s.waiting["topic"]))
    return Found(summary, advice, [*lines, s.losses, s.last_reading], fault.get("since"))


def _lost(s: Situation) -> Found:
    """Messages of it were lost lately, and not because the broker does not accept them."""
    fault, advice = s.fault, advise(s.fault["kind"], clean(s.waiting["topic"]))
    return Found("readings of it were lost", advice, [clean(fault["error"]), s.losses, s.last_reading], fault["since"])


def _disconnected(s: Situation) -> Found:
    mqtt = s.mqtt
    outbox, since, error = mqtt["outbox"], mqtt.get("away_since"), clean(mqtt["last_error"] or "")
    cause, advice = _cause_of(mqtt.get("refusal"), mqtt.get("not_listening"))
    lines = [
        f"not connected to {clean(mqtt['broker'])}{f' since {s.at(since)}' if since else ''}",
        f"last error: {error}" if cause and error else "",
        f"{count_noun(outbox['messages'], 'message')} in the outbox{oldest(outbox['oldest'])}",
        s.last_reading,
    ]
    summary = cause or f"the app has no connection to the broker{f': {error}' if error else ''}"
    return Found(summary, f"{advice}: the readings wait in the outbox until then", lines, since)


def _cause_of(refusal: int | None, not_listening: str | None) -> tuple[str, str]:
    """Why there is no connection to a broker, and what to do; without words for the cause if the error has them."""
    if refusal in CREDENTIALS:
        advice = "correct the user name and the password, or allow the user at the broker"
        return f"the broker refused the user name or the password (0x{refusal:02x})", advice
    advice = "start the broker, or correct its address"
    return f"nothing listens at {clean(not_listening)}" if not_listening else "", advice


def _waiting(s: Situation) -> Found:
    waiting, mqtt = s.waiting, s.mqtt
    place = waiting["topics_before"]
    lines = [s.queued, f"{count_noun(waiting['in_flight'], 'message')} of it in flight"]
    lines += [f"{count_noun(place, 'topic')} before it"] if place is not None else []
    advice = "read the devices less often, or use a broker that accepts more"
    if "outbox" in mqtt:
        total, window = count_noun(mqtt["outbox"]["messages"], "message"), count_noun(mqtt["window"], "message")
        lines += [f"{total} in the whole outbox; {window} may be in flight", s.connection_error("last error")]
        if mqtt["limited_by"]:
            advice = f"raise Receive Maximum of the broker, which allows {window} in flight"
    return Found("its readings wait in the outbox", advice, lines)


def _expired(s: Situation) -> Found:
    lines = [*s.retained_reading, f"a retained reading expires after {span(_expiry(s) or 0.0)}", *_suppressed_lines(s)]
    advice = "make the expiry longer than the time between two readings"
    return Found("its last reading expired at the broker", advice, lines, s.sent_at)


def _expiry(s: Situation) -> float | None:
    """The expiry that explains why the broker retains nothing. With MQTT 3.1.1 there is none."""
    delivery, age = s.reader.get("delivery"), s.age(s.sent_at)
    if s.kept_in_place != "" or delivery is None or age is None or s.mqtt.get("protocol") == "3.1.1":
        return None
    return delivery["expiry"] if delivery["expiry"] is not None and age >= delivery["expiry"] else None


def _not_retained(s: Situation) -> Found:
    topic = f"{s.below}state"
    if s.kept.status is None:
        advice = "check that the broker retains messages; a dry run retains nothing"
        return Found("the broker does not retain its readings", advice, s.retained_reading)
    lines = [*s.retained_reading, f"the broker retains what the app publishes at {s.prefix}/status"]
    advice = f"see the access list of the broker: topic write {topic}; if it allows that, find out who clears the topic"
    summary = f"nothing arrives at {topic}, although the broker acknowledges it"
    return Found(summary, advice, lines, s.kept_in_place or None)


def _status_offline(s: Situation) -> Found:
    session = value((s.kept.status or {}).get("session"))
    lines = [
        f"the broker retains offline at {s.prefix}/status, of the session {session}",
        f"the session of the app that answers is {s.mqtt['session']}" if "mqtt" in s.document else "",
        s.last_reading,
    ]
    advice = f"wait for the next heartbeat; if it comes back, stop the other app with the prefix {s.prefix}"
    return Found("its app answers, but the broker retains offline as its status", advice, lines)


def _unavailable(s: Situation) -> Found:
    topic, summary = f"{s.below}availability", "it works, but the broker retains offline as its availability"
    lines = [f"the broker retains offline at {topic}", s.last_reading]
    return Found(summary, f"check the access list of the broker for {topic}", lines)


def _silenced(s: Situation) -> bool:
    """Whether the publish rule suppresses readings, and so much time has passed that somebody misses one."""
    age, interval = s.age(s.sent_at), s.reader.get("interval")
    usual = SILENT_POLLS * interval if isinstance(interval, int | float) else 0.0
    return bool(_suppressed_lines(s)) and (age is None or age >= max(SILENT_AFTER, usual))


def _suppressed(s: Situation) -> Found:
    advice, rule = "add | Every('10m') to the rule, if a reading should come at least so often", s.reader.get("publish")
    if rule and "Every(" in rule and "&" not in rule:
        advice = "wait: the rule has an Every(…), after which a reading is published anyway"
    sent = f"the last reading was published {s.at(s.sent_at)}"
    lines = [*_suppressed_lines(s), sent, _history(s), s.last_reading]
    return Found("its publish rule suppresses its readings", advice, lines, s.sent_at, "intended")


def _well(s: Situation) -> Found:
    published, mqtt = "" if not s.sent_at else f"the last reading was published {s.at(s.sent_at)}", s.mqtt
    lines = [s.due()] if s.sends_events else [s.last_reading, s.due(), published]
    lines += [*_suppressed_lines(s), _history(s)]
    if "outbox" in mqtt:
        waiting = count_noun(mqtt["outbox"]["messages"], "message")
        lines += [f"connected to {clean(mqtt['broker'])}, {waiting} in the outbox", s.connection_error("fault")]
    if s.sends_events:
        return Found(f"all is well: it listens, {_last_event(s)}", "nothing to do", lines, state="ok")
    if s.retained is not None and s.has_json:
        lines.append(f"the broker retains {_kept(s.retained.state, s.terms)} at {s.below}state")
    return Found("all is well: its readings arrive", "nothing to do", lines, state="ok")


def _last_event(s: Situation) -> str:
    """When something happened last, at a device that sends events."""
    age = s.age(s.sent_at)
    if s.sent_at is None:
        return "no event since the app started"
    return f"last event {s.at(s.sent_at)}" if age is None else f"last event {span(max(0.0, age))} ago"


def _suppressed_lines(s: Situation) -> list[str]:
    """Lines about the comparison of the publish rule; empty if it published the last reading."""
    if not s.published.get("suppressed"):
        return []
    rule, compared = s.reader.get("publish") or "its publish rule", s.published.get("compared", {})
    first = f"{clean(rule)} suppressed {count_noun(s.published['suppressed'], 'reading')}"
    return [first, *(_comparison(*each, s.terms) for each in compared.items())]


def _history(s: Situation) -> str:
    """Where every reading goes, whatever the publish rule decides; empty if the device has no such topic."""
    delivery = s.reader.get("delivery")
    if delivery is None or delivery["history"] is None:
        return ""
    return f"every reading goes to {s.prefix}/{s.name}/history too, which retains nothing"


def _comparison(name: str, both: "ComparedField", terms: Mapping[str, Json]) -> str:
    published, read = both["published"], both["read"]
    numbers = [each for each in (published, read) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2:
        return f"{clean(name)}: {value(read)} read, {value(published)} published"
    known = terms.get(name)
    unit = known.get("unit") if isinstance(known, dict) else None
    suffix = f" {clean(unit)}" if isinstance(unit, str) else ""
    old, new = (value(each) if len(value(each)) < _MIN_LONG_CHARS else f"{each:.6g}" for each in numbers)
    far = f"{abs(numbers[0] - numbers[1]):.6g}"
    return f"{clean(name)}: {new}{suffix} read, {old}{suffix} published, a difference of {far}{suffix}"


def _kept(payload: str | None, terms: Mapping[str, Json]) -> str:
    """A payload for a person: with the units and decimals of its fields, if it is a reading."""
    if payload is None:
        return "nothing"
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    return clean((describe_fields(fields, terms) if isinstance(fields, dict) and fields else payload)[:200])


class Row(NamedTuple):
    """One way in which a link of the chain does not pass a reading on."""

    link: "Link"
    applies: Callable[[Situation], object]
    """Whether it is so. No row before this one applies."""
    found: Callable[[Situation], Found]
    """What to say about it."""


CHAIN = (
    Row("connection", lambda s: isinstance(s.error, BrokerError), _unreachable),
    Row("app", lambda s: s.error is not None, _unanswered),
    Row("registration", lambda s: not s.registrations, _unregistered),
    Row("enabled", lambda s: not any(each["enabled"] for each in s.registrations), _disabled),
    Row("app", lambda s: s.runtime is None, _not_running),
    Row("hold", lambda s: s.state["held"], _held),
    Row("isolation", lambda s: s.state["circuit"] == "isolated", _isolated),
    Row("adapter", lambda s: not all(each["open"] for each in s.adapters), _adapter),
    Row("deferral", lambda s: s.state["status"] == "deferred", _deferred),
    Row("circuit", lambda s: s.state["circuit"] in ("open", "half_open"), _circuit),
    Row("broker's answer", lambda s: s.refused and s.succeeded and s.failed_polls < SEVERAL, _refused),
    Row("call", lambda s: s.under_way, _trying_again),
    Row("call", lambda s: s.failed_polls or s.state["last_error"] is not None, _failing),
    Row("call", lambda s: s.reads and s.state.get("finder_failed"), _finder_failed),
    Row("call", _failed_event, _event_failed),
    Row("call", lambda s: s.unread and _called(s), _no_reading),
    Row("schedule", lambda s: s.unread, _not_due),
    Row("staleness", lambda s: s.reads and s.state["stale"], _stale),
    Row("job", lambda s: s.job, _job),
    Row("command", lambda s: not s.reads, _command),
    Row("result", _unpublished, _nothing_returned),
    Row("broker's answer", lambda s: s.refused, _refused),
    Row("connection", lambda s: not s.mqtt.get("connected", True), _disconnected),
    Row("outbox", lambda s: s.waiting.get("messages") and (s.waiting["oldest"] or 0.0) >= LATE_SECONDS, _waiting),
    Row("outbox", lambda s: "kind" in s.fault, _lost),
    Row("expiry", lambda s: _expiry(s) is not None, _expired),
    Row("retention", lambda s: s.kept_in_place is not None, _not_retained),
    Row("availability", lambda s: (s.kept.status or {}).get("state") == "offline", _status_offline),
    Row(
        "availability",
        lambda s: s.kept.availability == "offline" and s.state["status"] in ("ok", "starting"),
        _unavailable,
    ),
    Row("publish rule", _silenced, _suppressed),
    Row("none", lambda _: True, _well),
)
"""In the order in which a reading passes the links; the first row that applies is the verdict. Behind the second
``app``, the device runs."""


def _first(s: Situation) -> "Verdict":
    row = next(row for row in CHAIN if row.applies(s))
    return _verdict(s, row.link, row.found(s))


def why(
    device: str, document: "Introspection", retained: RetainedDocuments | None = None, options: str = ""
) -> "Verdict":
    """Why a device is silent, or that it is not.

    Args:
        device: its name, or that of a side job.
        document: the answer of its app to an introspection request, with all sections but the trace. Of the devices,
            this one is enough.
        retained: what the broker retains; None if nobody looked.
        options: what the command lines in the advice need besides the prefix; see `Situation`.

    Returns:
        One verdict, also for a name that the document does not contain, and for a document in which something is
        missing, since the app has another version.
    """
    try:
        situation = Situation(device, document, retained, options)
        verdict = _first(situation)
        if verdict["state"] == "broken" and (cause := situation.cause) is not None:
            verdict["cause"] = cause
        return verdict
    except UNREADABLE as error:
        app = document.get("app")
        theirs = clean(str(app.get("leadsman", "unknown"))) if isinstance(app, dict) else "unknown"
        lines = [odd(error), f"the version of leadsman there is {theirs}, and here it is {__version__}"]
        summary = "its app answers in a form that this version of leadsman does not know"
        found = Found(summary, "use the version of the app here, or update the app", lines)
        return _verdict(Situation(device, {}), "app", found)


def silent(document: "Introspection", retained: Mapping[str, RetainedDocuments], options: str = "") -> "list[Verdict]":
    """The verdicts about the devices and side jobs that are silent; those of broken links come first. For `options`,
    see `why`."""
    sections = document.get("devices"), document.get("jobs")
    names = [name for section in sections if isinstance(section, dict) for name in section]
    verdicts = [why(name, document, retained.get(name), options) for name in names]
    return sorted((each for each in verdicts if each["state"] != "ok"), key=lambda each: each["state"] != "broken")


def refused(device: str, prefix: str, error: str, options: str = "") -> "Verdict":
    """The verdict about a device that its app does not have; `error` is what the app answered. For `options`, see
    `why`."""
    return _first(Situation(device, {}, None, options, prefix=prefix, unanswered=Unanswered(refusal=error)))


def unreachable(device: str, error: BrokerError) -> "Verdict":
    """The verdict about a device, where there is no connection to the broker from here, or the broker does not accept
    our request.

    Args:
        device: its name, or empty text for all devices of the app.
        error: why there is none, or what the broker answered.
    """
    return _first(Situation(device, {}, unanswered=Unanswered(error)))


def unanswered(
    device: str, prefix: str, retained: RetainedDocuments, error: str, now: datetime, *, broke: bool = False
) -> "Verdict":
    """The verdict about a device whose app does not answer, from what the broker retains of it.

    Args:
        device: its name, or empty text for all devices of the app.
        prefix: the topic prefix of the app.
        retained: what the broker retains.
        error: why there is no answer.
        now: the time of the reader, with its zone.
        broke: whether the app lost its connection as it answered.
    """
    return _first(Situation(device, {}, retained, prefix=prefix, now=now, unanswered=Unanswered(error, broke)))


def odd(error: Exception) -> str:
    """What is odd about a document, from the error of reading it."""
    if isinstance(error, KeyError):
        return f"the field {clean(str(error))} is missing"
    return clean(f"a field has a value of another kind: {error}")
