"""Why a device is silent: walks the chain from its registration to what the broker retains, and names the first link
that does not pass a reading on. Pure."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING

from leadsman._version import __version__
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, NotListening, RequestDenied
from leadsman.introspection.kept_reading import compare
from leadsman.introspection.situation import RetainedDocuments, Situation, describe_fields, span, value, when
from leadsman.monitoring.health import GOODBYE
from leadsman.mqtt.answers import Json
from leadsman.mqtt.connection import WILL_DELAY
from leadsman.mqtt.connection_state import CREDENTIALS
from leadsman.mqtt.topic_faults import advise
from leadsman.text import clean, count_noun
from leadsman.text.suggestion import nearest

if TYPE_CHECKING:
    from leadsman.introspection.document import ComparedField, Introspection, Link, Verdict
    from leadsman.monitoring.document import TopicFault
    from leadsman.runtime.document import Commands

_MIN_LONG_CHARS = 9
"""Characters from which on a number is shown with six digits."""
LATE_SECONDS = 5.0
"""Seconds that a reading waits in the outbox of a connected app before that explains a silence."""


def _refused(s: Situation) -> "Verdict | None":
    waiting = s.state.get("outbox")
    if waiting is None or waiting["refused"] is None:
        return None
    fault = waiting.get("fault")
    evidence = [clean(waiting["refused"])]
    if waiting["messages"]:
        evidence.append(f"{count_noun(waiting['messages'], 'message')} of it in the outbox{_oldest(waiting['oldest'])}")
    if waiting["paused_for"] is not None:
        evidence.append(f"the topic is tried again in {span(waiting['paused_for'])}")
    advice, since = advise("closes", clean(waiting["topic"])), None
    summary = "the broker does not take its messages"
    if fault is not None:
        evidence += _losses(s, fault)
        advice, since = advise(fault["kind"], clean(waiting["topic"])), fault["since"]
        if fault.get("taken"):
            summary = "the broker takes some of its messages, and others are lost"
    return s.verdict("broker's answer", summary, [*evidence, *s.last_reading()], advice, since)


def _lost(s: Situation) -> "Verdict | None":
    """Messages of it were lost lately, and not because the broker does not take them."""
    waiting = s.state.get("outbox")
    fault = None if waiting is None else waiting.get("fault")
    if waiting is None or fault is None:
        return None
    evidence = [clean(fault["error"]), *_losses(s, fault), *s.last_reading()]
    advice = advise(fault["kind"], clean(waiting["topic"]))
    return s.verdict("outbox", "readings of it were lost", evidence, advice, fault["since"])


def _losses(s: Situation, fault: "TopicFault") -> list[str]:
    """How many messages were lost, and what the broker took since."""
    if not fault["lost"]:
        return []
    taken = fault.get("taken")
    since = f"; since then the broker took {count_noun(taken, 'message')} of it" if taken else ""
    return [f"{count_noun(fault['lost'], 'message')} of it lost, the last one {s.at(fault.get('lost_at'))}{since}"]


def _disconnected(s: Situation) -> "Verdict | None":
    mqtt = s.document.get("mqtt")
    if mqtt is None or mqtt["connected"]:
        return None
    outbox, since = mqtt["outbox"], mqtt.get("away_since")
    error = clean(mqtt["last_error"] or "")
    evidence = [f"not connected to {clean(mqtt['broker'])}" + (f" since {s.at(since)}" if since else "")]
    cause, advice = _cause_of(mqtt.get("refusal"), mqtt.get("not_listening"))
    if cause:
        evidence += [f"last error: {error}"] if error else []
    else:
        cause = "the app has no connection to the broker" + (f": {error}" if error else "")
    evidence.append(f"{count_noun(outbox['messages'], 'message')} in the outbox{_oldest(outbox['oldest'])}")
    advice += ": the readings wait in the outbox until then"
    return s.verdict("connection", cause, [*evidence, *s.last_reading()], advice, since)


def _cause_of(refusal: int | None, not_listening: str | None) -> tuple[str, str]:
    """Why there is no connection to a broker, and what to do; without words for the cause if the error has them."""
    if refusal in CREDENTIALS:
        advice = "correct the user name and the password, or allow the user at the broker"
        return f"the broker refused the user name or the password (0x{refusal:02x})", advice
    advice = "start the broker, or correct its address"
    return f"nothing listens at {clean(not_listening)}" if not_listening else "", advice


def _waiting(s: Situation) -> "Verdict | None":
    waiting, mqtt = s.state.get("outbox"), s.document.get("mqtt")
    if waiting is None or not waiting["messages"] or not (waiting["oldest"] or 0.0) >= LATE_SECONDS:
        return None
    place = waiting["topics_before"]
    evidence = [f"{count_noun(waiting['messages'], 'message')} of it in the outbox{_oldest(waiting['oldest'])}"]
    evidence += [f"{count_noun(waiting['in_flight'], 'message')} of it in flight"]
    evidence += [f"{count_noun(place, 'topic')} before it"] if place is not None else []
    advice = "read the devices less often, or use a broker that takes more"
    if mqtt is not None:
        total, window = count_noun(mqtt["outbox"]["messages"], "message"), count_noun(mqtt["window"], "message")
        evidence.append(f"{total} in the whole outbox; {window} may be in flight")
        evidence += [f"last error: {clean(mqtt['last_error'])}"] if mqtt["last_error"] else []
        if mqtt["limited_by"]:
            advice = f"raise Receive Maximum of the broker, which allows {window} in flight"
    return s.verdict("outbox", "its readings wait in the outbox", evidence, advice)


def _not_retained(s: Situation) -> "Verdict | None":
    delivery = None if s.reader is None else s.reader.get("delivery")
    sent = None if s.published is None else s.published["published_at"]
    if s.retained is None or delivery is None or sent is None:
        return None
    age, expiry = s.age(sent), delivery["expiry"]
    if not delivery["retain"] or not s.has_json or s.state.get("outbox") is not None:
        return None  # each subscriber gets the next reading; or it is on its way
    found = compare(sent, None if s.retained.state is None else s.retained.state.encode(), s.retained.taken_at)
    if found.is_there:
        return None
    topic = f"{s.below}state"
    evidence = [f"the broker retains nothing at {topic}", f"the last reading was published {s.at(sent)}"]
    if found.kept_since is not None:
        evidence[0] = f"the broker still retains at {topic} what was taken {s.at(found.kept_since)}"
    elif expiry is not None and age is not None and age >= expiry and _forgets(s):
        evidence += [f"a retained reading expires after {span(expiry)}", *_suppressed_lines(s)]
        advice = "make the expiry longer than the time between two readings"
        return s.verdict("expiry", "its last reading expired at the broker", evidence, advice, sent)
    if s.retained.status is None:
        advice = "check that the broker retains messages; a dry run retains nothing"
        return s.verdict("retention", "the broker does not retain its readings", evidence, advice)
    summary = f"nothing arrives at {topic}, although the broker acknowledges it"
    evidence.append(f"the broker retains what the app publishes at {s.prefix}/status")
    advice = f"see the access list of the broker: topic write {topic}; if it allows that, find out who clears the topic"
    return s.verdict("retention", summary, evidence, advice, found.kept_since)


def _retained_offline(s: Situation) -> "Verdict | None":
    retained = s.retained
    if retained is None:
        return None
    status = retained.status or {}
    if status.get("state") == "offline":
        mqtt = s.document.get("mqtt")
        evidence = [f"the broker retains offline at {s.prefix}/status, of the session {value(status.get('session'))}"]
        evidence += [f"the session of the app that answers is {mqtt['session']}"] if mqtt is not None else []
        summary = "its app answers, but the broker retains offline as its status"
        advice = f"wait for the next heartbeat; if it comes back, stop the other app with the prefix {s.prefix}"
        return s.verdict("availability", summary, [*evidence, *s.last_reading()], advice)
    if retained.availability == "offline" and s.state["status"] in ("ok", "starting"):
        evidence = [f"the broker retains offline at {s.below}availability", *s.last_reading()]
        summary = "it works, but the broker retains offline as its availability"
        advice = f"check the access list of the broker for {s.below}availability"
        return s.verdict("availability", summary, evidence, advice)
    return None


def _suppressed(s: Situation) -> "Verdict | None":
    lines = _suppressed_lines(s)
    if not lines or s.published is None or _published_lately(s):
        return None
    summary = "its publish rule suppresses its readings"
    sent = s.published["published_at"]
    evidence = [*lines, f"the last reading was published {s.at(sent)}", *_history(s), *s.last_reading()]
    advice = "add | Every('10m') to the rule, if a reading should come at least so often"
    rule = "" if s.reader is None else s.reader.get("publish") or ""
    if "Every(" in rule and "&" not in rule:
        advice = "wait: the rule has an Every(…), after which a reading is published anyway"
    return s.verdict("publish rule", summary, evidence, advice, sent, "intended")


def _last_event(s: Situation) -> str:
    """When something happened last, at a device that sends events."""
    sent = None if s.published is None else s.published["published_at"]
    age = s.age(sent)
    if sent is None:
        return "no event since the app started"
    return f"last event {s.at(sent)}" if age is None else f"last event {span(max(0.0, age))} ago"


def _well(s: Situation) -> "Verdict":
    state, mqtt = s.state, s.document.get("mqtt")
    evidence = [] if s.sends_events else s.last_reading()
    evidence += [f"the next poll is due at {s.at(state['next_poll_at'])}"] if state["next_poll_at"] else []
    if s.published is not None and s.published["published_at"] and not s.sends_events:
        evidence.append(f"the last reading was published {s.at(s.published['published_at'])}")
    evidence += [*_suppressed_lines(s), *_history(s)]
    if mqtt is not None:
        waiting = count_noun(mqtt["outbox"]["messages"], "message")
        evidence.append(f"connected to {clean(mqtt['broker'])}, {waiting} in the outbox")
        evidence += [f"fault: {clean(mqtt['last_error'])}"] if mqtt["last_error"] else []
    if s.sends_events:
        summary = f"all is well: it listens, {_last_event(s)}"
        return s.verdict("none", summary, evidence, "nothing to do", state="ok")
    if s.retained is not None and s.has_json:
        evidence.append(f"the broker retains {_kept(s.retained.state, s.terms)} at {s.below}state")
    return s.verdict("none", "all is well: its readings arrive", evidence, "nothing to do", state="ok")


def _forgets(s: Situation) -> bool:
    """Whether messages expire at the broker. With MQTT 3.1.1 none do."""
    mqtt = s.document.get("mqtt")
    return mqtt is None or mqtt["protocol"] != "3.1.1"


def _suppressed_lines(s: Situation) -> list[str]:
    """Lines about the comparison of the publish rule; empty if it published the last reading."""
    published = s.published
    if published is None or not published["suppressed"]:
        return []
    rule = None if s.reader is None else s.reader.get("publish")
    count = count_noun(published["suppressed"], "reading")
    compared = published.get("compared", {})
    return [
        f"{clean(rule or 'its publish rule')} kept back {count}",
        *(_comparison(*each, s.terms) for each in compared.items()),
    ]


def _published_lately(s: Situation) -> bool:
    """Whether so little time has passed since a reading was published that nobody misses one."""
    age = None if s.published is None else s.age(s.published["published_at"])
    interval = None if s.reader is None else s.reader.get("interval")
    usual = SILENT_POLLS * interval if isinstance(interval, int | float) else 0.0
    return age is not None and age < max(SILENT_AFTER, usual)


def _history(s: Situation) -> list[str]:
    """Where every reading goes, whatever the publish rule decides; empty if the device has no such topic."""
    delivery = None if s.reader is None else s.reader.get("delivery")
    if delivery is None or delivery["history"] is None:
        return []
    return [f"every reading goes to {s.prefix}/{s.name}/history too, which retains nothing"]


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


def _oldest(age: float | None) -> str:
    return "" if age is None else f", the oldest for {span(age)}"


DELIVERY_LINKS: tuple[Callable[[Situation], "Verdict | None"], ...] = (
    _refused,
    _disconnected,
    _waiting,
    _lost,
    _not_retained,
    _retained_offline,
    _suppressed,
    _well,
)
"""In the order in which they are asked; the last one always has a verdict."""


SILENT_AFTER, SILENT_POLLS = 60.0, 3
"""A device whose publish rule suppresses its readings is silent after so many seconds, and so many of its intervals."""
JUST_NOW = 0.1
"""Seconds after a poll in which its reading may still be on its way to the publish rule."""
MOST_NEAR = 1000
"""Names that are compared with a name that is wrong."""
_SHOWN = 10
"""Names that are listed."""

_MENDING: Mapping[str, Mapping[str, str]] = {
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
        "": "give the user of the app the right that is missing",
        "serial": "give the user of the app the right to open the device, for example the group dialout",
    },
    "FileNotFoundError": {
        "": "correct the path that the error names",
        "serial": "plug the device in, or correct its path in the settings",
    },
    "NoFreeThread": {"": "give the blocking calls of the handlers that it names a timeout"},
    "ConnectionRefusedError": {"": "start the service that the handler asks, or correct its address"},
    "TimeoutError": {"": "check why the device does not answer within the timeout of the handler"},
    "ResultError": {"": "correct what the handler returns"},
    "HttpRefused": {"": "fix what the error names: the address, the account, or the request"},
    "HttpUnavailable": {"": "look at the server: it answers, and cannot serve the request for now"},
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
    "Service Unavailable": "look at the server: it answers, and cannot serve the request for now",
    "Too Many Requests": 'ask less often, or write policy="http", which waits as long as the server says',
    "Internal Server Error": "look at the log of the server: it failed at the request",
    "Unauthorized": "correct the user name, the password or the token that the handler sends",
    "thread of an earlier call is still busy": "give the blocking call in the handler a timeout: it has not come back",
}
"""The same for errors whose class is too general, by what their messages contain."""
_PLACE = re.compile(r" \(([^()]+\.py:\d+)(?: in [^()]+)?\)$")
"""The end of an error that user code raised: its file and line."""
SEVERAL = 2
"""Failed polls in a row that explain a silence before the broker's answer does."""
MIN_SECONDS_TO_ASK = 60.0
"""Seconds to the next poll from which on it is worth asking for one."""


def _unregistered(s: Situation) -> "Verdict | None":
    if s.registrations:
        return None
    names = [*s.document.get("devices", {}), *s.document.get("jobs", {})][:MOST_NEAR]
    near = nearest(s.name, names)
    evidence = [f"it has {', '.join(clean(name) for name in names[:_SHOWN])}"] if names else []
    advice = (
        f"write {clean(near)}" if near else f"list the devices: leadsman inspect{s.options} --prefix {quote(s.prefix)}"
    )
    return s.verdict("registration", "the app has no device of this name", evidence, advice)


def _disabled(s: Situation) -> "Verdict | None":
    if any(each["enabled"] for each in s.registrations):
        return None
    evidence = [f"{each['kind']} {clean(each['handler'])}: enabled=False" for each in s.registrations]
    return s.verdict(
        "enabled", "it is not enabled", evidence, "set enabled=True, and start the app again", state="intended"
    )


def _not_running(s: Situation) -> "Verdict | None":
    if s.runtime is not None:
        return None
    evidence = ["the document contains its registration, and no state"]
    return s.verdict("app", "the app does not run", evidence, "start it: leadsman run MODULE:APP")


def _held(s: Situation) -> "Verdict | None":
    if not s.state["held"]:
        return None
    if s.state["last_error"] is None:
        summary, advice = "a person holds it, so it is not polled", f"to poll it again: {s.command('release')}"
        return s.verdict("hold", summary, s.last_reading(), advice, s.state["last_success_at"], "intended")
    summary = 'it failed, and waits for a person, as on_failure="hold" says'
    advice = f"fix it, then: {s.command('release')}"
    return s.verdict("hold", summary, s.failure(), advice, s.state["failing_since"])


def _isolated(s: Situation) -> "Verdict | None":
    if s.state["circuit"] != "isolated":
        return None
    opened = s.state["opened_at"]
    evidence = [f"its circuit is isolated since {s.at(opened)}", *s.failure()]
    advice = f"when the work at the device is done: {s.command('circuit')} --action close"
    summary = "a person isolated its circuit, so it is not polled"
    return s.verdict("isolation", summary, evidence, advice, opened, "intended")


def _adapter(s: Situation) -> "Verdict | None":
    shut = next((each for each in s.adapters if not each["open"]), None)
    if shut is None:
        return None
    label, error = clean(shut["adapter"]), shut["error"] or "it is still opening"
    evidence = [f"{label} is not open: {clean(error)}", *s.failure()]
    named = error if error.partition(":")[0] in _MENDING or shut["error"] is None else f"DeviceUnavailable: {error}"
    return s.verdict("adapter", f"its adapter {label} is not open", evidence, _mend(s, named), s.state["failing_since"])


def _deferred(s: Situation) -> "Verdict | None":
    if s.state["status"] != "deferred":
        return None
    reason, until = s.state["deferred_reason"], s.state["deferred_until"]
    if reason is not None and reason.startswith(GOODBYE):
        summary, advice = "the device was marked unavailable", "wait: its next reading makes it available again"
        return s.verdict("deferral", summary, [clean(str(reason)), *s.last_reading()], advice, state="intended")
    evidence, age, due = list[str](), s.age(until), s.state["next_poll_at"]
    over = age is not None and age >= 0
    if until is not None:
        evidence.append(f"the pause ended {s.at(until)}" if over else f"there is no poll before {s.at(until)}")
    if s.state.get("busy"):
        evidence += ["a poll is under way"] if over else []
    elif due:
        evidence.append(f"the next poll is due at {s.at(due)}")
    summary = f"the device asked for a pause: {clean(reason)}" if reason else "the device asked for a pause"
    advice = "wait: it is polled again by itself"
    return s.verdict("deferral", summary, [*evidence, *s.last_reading()], advice, state="intended")


def _circuit(s: Situation) -> "Verdict | None":
    state = s.state
    if state["circuit"] not in ("open", "half_open"):
        return None
    rule = None if s.reader is None else s.reader.get("circuit_breaker")
    after = "" if rule is None else f"; it opens after {count_noun(rule['threshold'], 'failed poll')}"
    evidence = [f"its circuit is {state['circuit'].replace('_', ' ')} since {s.at(state['opened_at'])}{after}"]
    evidence += [f"the next probe is due at {s.at(state['next_poll_at'])}"] if state["next_poll_at"] else []
    if probes := state.get("failed_probes"):
        each = [f"{clean(name)} failed {count_noun(number, 'probe')}" for name, number in sorted(probes.items())]
        evidence.append(f"the circuit is shared; since it opened {', '.join(each)}")
    advice = f"{_mend(s, state['last_error'])}; to poll it at once: {s.command('circuit')} --action close"
    summary = "it failed poll after poll; to spare it, leadsman only probes it"
    since = state["failing_since"] or state["opened_at"]
    return s.verdict("circuit", summary, [*evidence, *s.failure()], advice, since)


def _not_taken(s: Situation) -> "Verdict | None":
    """The broker does not take its messages, while no more than the poll under way has failed."""
    return _refused(s) if s.succeeded and s.state["consecutive_failures"] < SEVERAL else None


def _failing(s: Situation) -> "Verdict | None":
    state, poll = s.state, s.state["poll_under_way"]
    if poll is None and not state["consecutive_failures"] and state["last_error"] is None:
        return None
    error, evidence, summary = state["last_error"], list[str](), "its last poll failed"
    if (error or "").startswith("DeviceTimeout") and (unfed := _by_subscriptions(s)) is not None:
        summary = unfed[0]
    if poll is not None:
        summary = f"a call failed, and its poll tries again: {clean(poll['last_error'])}"
        evidence.append(f"attempt {poll['failed_calls']}{_limit(s)} failed")
        evidence.append(f"the next call is due at {s.at(poll['next_call_at'])}")
        error = error or poll["last_error"]
    elif state["next_poll_at"]:
        evidence.append(f"the next poll is due at {s.at(state['next_poll_at'])}")
    wait = s.age(state["next_poll_at"])
    then = (
        f"; then poll it at once: {s.poll()}"
        if poll is None and wait is not None and wait < -MIN_SECONDS_TO_ASK
        else ""
    )
    return s.verdict("call", summary, [*evidence, *s.failure()], f"{_mend(s, error)}{then}", state["failing_since"])


def _finder_failed(s: Situation) -> "Verdict | None":
    if not s.state.get("finder_failed") or s.reader is None:
        return None
    finder = clean(s.reader.get("found_by") or "a handler")
    evidence = [f"it was found at run time by {finder}, which fails", *s.last_reading()]
    advice = f"ask the same about {finder}: it gives the readings of this device"
    return s.verdict("call", f"{finder} has failed, so it is offline", evidence, advice)


def _event_failed(s: Situation) -> "Verdict | None":
    """The last message that should have been an event of the device was none. Nothing else shows it, as no event is
    ever missed."""
    if not s.sends_events:
        return None
    own = {topics: each for topics, each in s.heard.items() if each.get("device") == s.name and each.get("last_error")}
    if not own:
        return None
    name = clean(next(iter(own)))
    summary = f"the last message at {name} failed, and was no event"
    advice = f"compare the messages at {name} with the type that its handler takes"
    return s.verdict("call", summary, s.subscriptions(), advice)


def _unread(s: Situation) -> "Verdict | None":
    state, reader = s.state, s.reader
    if reader is None or state["counters"]["polls"]:
        return None
    if state.get("busy"):
        timeout = reader.get("timeout")
        evidence = ["its first poll is under way", *([f"a call may take {span(timeout)}"] if timeout else [])]
        return _waits(s, "call", "its first poll has not ended yet", evidence, "wait: a call that hangs is ended")
    if (finder := reader.get("found_by")) is not None:
        evidence = [f"it was found at run time by {finder}", *s.silence()]
        advice = f"ask the same about {finder}: it gives the readings of this device"
        return _waits(s, "call", f"{finder} has given no reading of it yet", evidence, advice)
    if s.sends_events and _by_subscriptions(s) is None:
        return _waits(s, "call", "its source begins to listen", s.silence(), "wait: that takes a few seconds")
    if s.pushes:
        evidence = [f"its source was started {count_noun(state.get('restarts', 0) + 1, 'time')}", *s.silence()]
        evidence += s.subscriptions()
        summary, advice = _by_subscriptions(s) or (
            "its source has received no reading yet",
            "check that the device sends: a source publishes only what it receives",
        )
        return _waits(s, "call", summary, evidence, advice)
    evidence = [s.timetable(), *s.last_reading()]
    evidence += [f"the first poll is due at {s.at(state['next_poll_at'])}"] if state["next_poll_at"] else []
    return _waits(s, "schedule", "it has not been polled since the start of the app", evidence, "wait until it is due")


def _waits(s: Situation, link: "Link", summary: str, evidence: Sequence[str], advice: str) -> "Verdict":
    """A device without a reading so far. That is intended until it is stale."""
    return s.verdict(link, summary, evidence, advice, state="broken" if s.state["stale"] else "intended")


def _stale(s: Situation) -> "Verdict | None":
    state, reader = s.state, s.reader
    if reader is None or not state["stale"]:
        return None
    limit, due, unfed = reader.get("stale_after"), state["next_poll_at"], _by_subscriptions(s)
    evidence = [*s.last_reading(), *([f"it is stale {span(limit)} after that"] if limit is not None else [])]
    if state.get("busy"):
        evidence.append("a poll is under way, or the thread of an earlier one still runs")
        advice = "find out where the handler blocks: the log has its stack if it blocks the event loop"
    elif s.pushes:
        evidence += s.subscriptions()
        advice = "check that the device still sends" if unfed is None else unfed[1]
    else:
        evidence += [s.timetable(), *([f"the next poll is due at {s.at(due)}"] if due else [])]
        advice = "check that the host did not sleep, and that stale_after is longer than the interval"
    evidence += [count_noun(state["missed_polls"], "missed poll")] if state["missed_polls"] else []
    summary = "its last reading is too old, though no call failed" if unfed is None else unfed[0]
    return s.verdict("staleness", summary, [*evidence, *s.silence()], advice, state["last_success_at"])


def _job(s: Situation) -> "Verdict | None":
    if not s.job:
        return None
    evidence = [*s.last_reading(), s.timetable()]
    return s.verdict("job", "it is a side job, which publishes nothing", evidence, "nothing to do", state="ok")


def _command(s: Situation) -> "Verdict | None":
    if s.reader is not None:
        return None
    summary = "it only takes commands, and publishes what they return"
    nothing: Commands = {"done": 0, "failed": 0, "refused": 0, "waiting": 0, "last_error": None}
    commands = s.state.get("commands") or nothing
    done, failed = commands["done"], commands["failed"]
    evidence = [f"commands: {done} executed, {failed} of them failed, {commands['refused']} refused"]
    evidence += [f"{count_noun(commands['waiting'], 'command')} waiting"] if commands["waiting"] else []
    if error := commands.get("last_error"):
        summary = f"its last command failed or was refused: {clean(error)}"
    return s.verdict("command", summary, evidence, f"send one to {s.below}set", state="ok")


def _nothing_returned(s: Situation) -> "Verdict | None":
    published, last = s.published, s.state["last_success_at"]
    if published is None or last is None or published["suppressed"] or not s.succeeded or s.sends_events:
        return None
    read, sent, age = when(last), when(published["published_at"]), s.age(last)
    if read is None or (sent is not None and sent >= read) or (age is not None and age < JUST_NOW):
        return None
    sent_at = f"published last: {s.at(published['published_at'])}" if sent else "no reading of it was published"
    evidence = [f"its last poll succeeded {s.at(last)}", sent_at]
    window = None if s.reader is None else s.reader.get("window")
    if window is not None:
        summary = f"a window of its filters is open, and the shortest lasts {span(window)}"
        return s.verdict("result", summary, evidence, "wait: it is published when a window is over", last, "intended")
    summary = "its handler returns None, so there is nothing to publish"
    advice = "if there should be a reading, return it from the handler"
    return s.verdict("result", summary, evidence, advice, last, "intended")


def _limit(s: Situation) -> str:
    """How many calls a poll makes at most, after the number of those that were made."""
    retry = None if s.reader is None else s.reader.get("retry")
    if isinstance(retry, int):
        return f" of {retry + 1}"
    return " (it retries until the next poll)" if retry is not None else ""


def _mend(s: Situation, error: str | None) -> str:
    """One thing to do about an error, which begins with the name of its class."""
    text = error or ""
    if text.startswith("DeviceTimeout") and (unfed := _by_subscriptions(s)) is not None:
        return unfed[1]
    name = text.partition(":")[0].strip()
    known = next((advice for words, advice in _BY_MESSAGE.items() if words in text), None)
    if known is None and (advice := _MENDING.get(name)) is not None:
        kinds = {each.get("kind", "") for each in s.adapters}
        known = advice.get(kinds.pop() if len(kinds) == 1 else "", advice[""])
    traceback = f"{s.command('trace')} --json"
    if known is None and (place := _PLACE.search(text)) is not None:
        if name == "Abandoned":
            return f"give the call at {place[1]} a timeout, and restart the app: it does not end when it is cancelled"
        return f"correct the code at {place[1]}, and restart the app; see the traceback: {traceback}"
    return known or f"look at each failed call, with its traceback: {traceback}"


def _by_subscriptions(s: Situation) -> tuple[str, str] | None:
    """What is wrong with the messages of others that feed a device, and one thing to do; None if nothing is."""
    for topics, each in s.heard.items():
        name = clean(topics)
        if not each["received"]:
            return f"nothing was received at {name}", f"check the topic {name}, and that its sender runs"
        if error := each.get("last_error"):
            summary = f"the last message at {name} failed: {clean(error)}"
            return summary, f"compare the messages at {name} with the type that its handler takes"
    return None


READING_LINKS: tuple[Callable[[Situation], "Verdict | None"], ...] = (
    _unregistered,
    _disabled,
    _not_running,
    _held,
    _isolated,
    _adapter,
    _deferred,
    _circuit,
    _not_taken,
    _failing,
    _finder_failed,
    _event_failed,
    _unread,
    _stale,
    _job,
    _command,
    _nothing_returned,
)
"""In the order in which a reading passes them. After the third, the device runs."""


CHAIN = (*READING_LINKS, *DELIVERY_LINKS)
OVERDUE = 120.0
"""Seconds without a heartbeat after which an app whose status is online probably is not: four of its default
intervals."""


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
        verdict = next(verdict for link in CHAIN if (verdict := link(situation)) is not None)
        if verdict["state"] == "broken" and (cause := situation.cause()) is not None:
            verdict["cause"] = cause
        return verdict
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        return _not_understood(device, document, error)


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
    asked = Situation(device, {}, None)
    advice = f"list the devices: leadsman inspect{options} --prefix {quote(prefix)}"
    return asked.verdict("registration", "the app has no device of this name", [clean(error)], advice)


def unreachable(device: str, error: BrokerError) -> "Verdict":
    """The verdict about a device, where there is no connection to the broker from here.

    Args:
        device: its name, or empty text for all devices of the app.
        error: why there is none.
    """
    code = error.code if isinstance(error, ConnectionRefused) else None
    address = error.address if isinstance(error, NotListening) else None
    cause, advice = _cause_of(code, address)
    if isinstance(error, ConnackMissing):
        known = "correct its address" if error.silent else "correct the user name and the password, or its address"
        hangs = ", and start it again if it hangs" if error.silent else ""
        advice = f"see the broker's log{hangs}; {known}"
    text = clean(error.without_hint())
    summary = cause or f"the broker cannot be reached from here: {text}"
    advice += ": --mqtt, or the settings of the app"
    return Situation(device, {}, None).verdict("connection", summary, [text] if cause else [], advice)


def denied(device: str, error: RequestDenied) -> "Verdict":
    """The verdict about a device, where the broker does not take our request.

    Args:
        device: its name, or empty text for all devices of the app.
        error: what it answered.
    """
    topic = clean(error.topic)
    advice = f"allow this user in the broker's access list: topic write {topic}, topic read {topic}/response"
    summary = f"the broker does not take the request of this command at {topic}"
    return Situation(device, {}, None).verdict("connection", summary, [clean(str(error))], advice)


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
    asked = Situation(device, {}, retained)
    asked.prefix, asked.now = prefix, now
    lines = [clean(error)]
    if retained.state is not None:
        at = f", taken {asked.at(retained.taken_at)}" if retained.taken_at else ""
        lines.append(f"the broker still retains {clean(retained.state[:200])}{at}")
    if broke:
        summary = "its app loses its connection as it answers: the answer may be too large for the broker"
        ask = "" if device else "ask about one device: leadsman why DEVICE; or "
        return asked.verdict("app", summary, lines, f"{ask}raise the broker's limit of the size of a message")
    if retained.status is None:
        lines.append(f"the broker retains nothing at {prefix}/status")
        advice = "check the prefix and the broker; no app with this prefix has ever run there, or it is a dry run"
        return asked.verdict("app", "there is no app with this prefix", lines, advice)
    return _of_status(asked, retained.status, lines)


def odd(error: Exception) -> str:
    """What is odd about a document, from the error of reading it."""
    if isinstance(error, KeyError):
        return f"the field {clean(str(error))} is missing"
    return clean(f"a field has a value of another kind: {error}")


def _not_understood(device: str, document: "Introspection", error: Exception) -> "Verdict":
    """The verdict from a document that this version does not understand."""
    app = document.get("app")
    theirs = clean(str(app.get("leadsman", "unknown"))) if isinstance(app, dict) else "unknown"
    evidence = [odd(error), f"the version of leadsman there is {theirs}, and here it is {__version__}"]
    summary = "its app answers in a form that this version of leadsman does not know"
    advice = "use the version of the app here, or update the app"
    return Situation(device, {}, None).verdict("app", summary, evidence, advice)


def _of_status(asked: Situation, status: Mapping[str, Json], lines: list[str]) -> "Verdict":
    """The verdict from the last document at the status topic."""
    at = status.get("at") if isinstance(status.get("at"), str) else None
    lines += _last_known(asked, status)
    lines += _nodes(asked, status)
    if status.get("state") != "online":
        if at is not None:
            lines.insert(1, f"it said goodbye {asked.at(at)}")
            return asked.verdict("app", "its app was stopped", lines, "start it: leadsman run MODULE:APP", at)
        lines.insert(1, f"the broker published its will; it had connected {_session(asked, status)}")
        advice = "look at its log and start it again; if it runs, check its network"
        since = asked.retained.taken_at if asked.retained is not None else None
        return asked.verdict("app", "its app ended without a goodbye, or lost its network", lines, advice, since)
    age = asked.age(at)
    lines.insert(1, f"its last heartbeat was sent {asked.at(at)}")
    if age is not None and age > OVERDUE:
        advice = "look at its log and start it again: its process hangs, or its host is gone"
        return asked.verdict("app", f"its app has sent no heartbeat for {span(age)}", lines, advice, at)
    topics = f"{asked.prefix}/introspect and {asked.prefix}/introspect/response"
    advice = (
        f"ask again in {span(WILL_DELAY)}: if the app has just died, the broker says so then; "
        f"if not, allow {topics} in the broker's access list"
    )
    return asked.verdict("app", "its app is online, but does not answer", lines, advice, at)


def _last_known(asked: Situation, status: Mapping[str, Json]) -> list[str]:
    """The device in the last heartbeat."""
    devices = status.get("devices")
    report = devices.get(asked.name) if isinstance(devices, dict) else None
    if not isinstance(report, dict):
        return []
    error = report.get("last_error")
    return [f"its status was {clean(str(report.get('status')))}"] + (
        [f"last error: {clean(str(error))}"] if error else []
    )


def _nodes(asked: Situation, status: Mapping[str, Json]) -> list[str]:
    """What the broker retains of the nodes, if several share the app. A lease of a node that is gone ends by itself, at
    a time of that node's clock; with MQTT 5 the broker then forgets it."""
    lease = None if asked.retained is None else asked.retained.lease
    if lease is not None and isinstance(lease.get("owner"), str):
        owner = clean(str(lease["owner"]))
        until = lease.get("until") if isinstance(lease.get("until"), str) else None
        age = asked.age(until)
        if age is None or age < 0:
            return [f"the node {owner} has the lease, until {asked.at(until)}: it is active, or takes over"]
        return [f"no node is active: the lease of {owner} ended {asked.at(until)}, and none that stands by took over"]
    node = status.get("node")
    if isinstance(node, dict) and isinstance(node.get("name"), str):
        return [
            f"no node is active: the lease of {clean(str(node['name']))} is gone, and none that stands by took over"
        ]
    return []


def _session(asked: Situation, status: Mapping[str, Json]) -> str:
    """When the session of a document began."""
    session = status.get("session")
    if isinstance(session, bool) or not isinstance(session, int):
        return "at an unknown time"
    try:
        began = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=session)
    except OverflowError:
        return "at an unknown time"
    return asked.at(began.isoformat())
