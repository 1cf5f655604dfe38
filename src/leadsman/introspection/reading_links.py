"""The links of the chain from the registration of a device to its last reading. Pure.

Each takes the situation and answers with a verdict, or with None if it passes a reading on. They are asked in the order
of `LINKS`: from the second half on, the device runs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from leadsman.introspection.situation import Situation, span, when
from leadsman.monitoring.health import GOODBYE
from leadsman.text import clean, counted, nearest

if TYPE_CHECKING:
    from leadsman.introspection.counters_document import Commands
    from leadsman.introspection.explanations import Link, Verdict

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
    },
    "DeviceUnavailable": {
        "": "check that the device is switched on, and that the app may use it",
        "serial": "check that the device is plugged in and switched on, and that the app may open its port",
        "bluetooth": "check that the radio of this machine is on (bluetoothctl show), and that the device is in reach",
        "calendars": "check that the server runs, and its address in the settings",
    },
    "GarbledData": {
        "": "compare what the device sends with what the handler expects: the error shows it",
        "serial": "check the baud rate, the parity, the framer and the wiring",
        "bluetooth": "check that the device is of the model that the app expects",
        "calendars": "open the address in a browser: something else than a calendar may answer there",
    },
    "PermanentError": {
        "": "mend what the error names: another try does not help",
        "calendars": "correct the user name, the password or the calendar that the error names",
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
    "HTTPStatusError": {"": "read what the server answered: the address, the rights or the request may be wrong"},
    "HTTPError": {"": "read what the server answered: the address, the rights or the request may be wrong"},
    "ConnectError": {"": "check that the server runs, and its address"},
    "ConnectTimeout": {"": "check that the server runs, and its address"},
    "ReadTimeout": {"": "check why the server does not answer within the timeout"},
}
"""One thing to do for the errors whose cause is known, by the name of the class, and then by the kind of the adapter;
empty where the device has none, or one whose kind is unknown."""
_BY_WORDS: Mapping[str, str] = {
    "'coroutine'": "write await before the call whose result is used",
    "returned a coroutine": "write await before the call that the handler returns",
    "Service Unavailable": "look at the server: it answers, and cannot serve the request for now",
    "Too Many Requests": 'ask less often, or write policy="http", which waits as long as the server says',
    "Internal Server Error": "look at the log of the server: it failed at the request",
    "Unauthorized": "correct the user name, the password or the token that the handler sends",
    "thread of an earlier call is still busy": "give the blocking call in the handler a timeout: it has not come back",
}
"""The same for errors whose class says too little, by what their messages contain."""
_PLACE = re.compile(r" \(([^()]+\.py:\d+)(?: in [^()]+)?\)$")
"""The end of an error that user code raised: its file and line."""
FAR = 60.0
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
    advice = f"mend it, then: {s.command('release')}"
    return s.verdict("hold", summary, s.failure(), advice, s.state["failing_since"])


def _isolated(s: Situation) -> "Verdict | None":
    if s.state["circuit"] != "isolated":
        return None
    opened = s.state["opened_at"]
    evidence = [f"its circuit is isolated since {s.at(opened)}", *s.failure()]
    advice = f"when the work at it is done: {s.command('circuit')} --action close"
    summary = "a person isolated its circuit, so it is not polled"
    return s.verdict("isolation", summary, evidence, advice, opened, "intended")


def _adapter(s: Situation) -> "Verdict | None":
    shut = next((each for each in s.adapters if not each["open"]), None)
    if shut is None:
        return None
    label, error = clean(shut["adapter"]), shut["error"] or "it is still opening"
    evidence = [f"{label} is not open: {clean(error)}", *s.failure()]
    return s.verdict("adapter", f"its adapter {label} is not open", evidence, _mend(s, error), s.state["failing_since"])


def _deferred(s: Situation) -> "Verdict | None":
    if s.state["status"] != "deferred":
        return None
    reason, until = s.state["deferred_reason"], s.state["deferred_until"]
    if reason is not None and reason.startswith(GOODBYE):
        summary, advice = "the device said goodbye", "wait: its next reading makes it available again"
        return s.verdict("deferral", summary, [clean(str(reason)), *s.last_reading()], advice, state="intended")
    evidence, age, due = list[str](), s.age(until), s.state["next_due_at"]
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
    after = "" if rule is None else f"; it opens after {counted(rule['threshold'], 'failed poll')}"
    evidence = [f"its circuit is {state['circuit'].replace('_', ' ')} since {s.at(state['opened_at'])}{after}"]
    evidence += [f"the next probe is due at {s.at(state['next_due_at'])}"] if state["next_due_at"] else []
    advice = f"{_mend(s, state['last_error'])}; to poll it at once: {s.command('circuit')} --action close"
    summary = "it failed poll after poll; to spare it, leadsman only probes it"
    since = state["failing_since"] or state["opened_at"]
    return s.verdict("circuit", summary, [*evidence, *s.failure()], advice, since)


def _failing(s: Situation) -> "Verdict | None":
    state, poll = s.state, s.state["poll_under_way"]
    if poll is None and not state["consecutive_failures"] and state["last_error"] is None:
        return None
    error, evidence, summary = state["last_error"], list[str](), "its last poll failed"
    if (error or "").startswith("DeviceTimeout") and (unfed := _by_subscriptions(s)) is not None:
        summary = unfed[0]
    if poll is not None:
        summary = "a call failed, and its poll tries again"
        evidence.append(f"attempt {poll['failed_calls']}{_limit(s)} failed: {clean(poll['last_error'])}")
        evidence.append(f"the next call is due at {s.at(poll['next_call_at'])}")
        error = error or poll["last_error"]
    elif state["next_due_at"]:
        evidence.append(f"the next poll is due at {s.at(state['next_due_at'])}")
    wait = s.age(state["next_due_at"])
    then = f"; then poll it at once: {s.poll()}" if poll is None and wait is not None and wait < -FAR else ""
    return s.verdict("call", summary, [*evidence, *s.failure()], f"{_mend(s, error)}{then}", state["failing_since"])


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
        advice = f"ask the same about {finder}: it hands the readings over"
        return _waits(s, "call", f"{finder} has handed over no reading yet", evidence, advice)
    if reader["kind"] == "source":
        evidence = [f"its source was started {counted(state.get('restarts', 0) + 1, 'time')}", *s.silence()]
        evidence += s.subscriptions()
        summary, advice = _by_subscriptions(s) or (
            "its source has received no reading yet",
            "check that the device sends: a source publishes only what it receives",
        )
        return _waits(s, "call", summary, evidence, advice)
    evidence = [s.timetable(), *s.last_reading()]
    evidence += [f"the first poll is due at {s.at(state['next_due_at'])}"] if state["next_due_at"] else []
    return _waits(s, "schedule", "it has not been polled since the start of the app", evidence, "wait until it is due")


def _waits(s: Situation, link: "Link", summary: str, evidence: Sequence[str], advice: str) -> "Verdict":
    """A device without a reading so far. That is intended until it is stale."""
    return s.verdict(link, summary, evidence, advice, state="broken" if s.state["stale"] else "intended")


def _stale(s: Situation) -> "Verdict | None":
    state, reader = s.state, s.reader
    if reader is None or not state["stale"]:
        return None
    limit, due, unfed = reader.get("stale_after"), state["next_due_at"], _by_subscriptions(s)
    evidence = [*s.last_reading(), *([f"it is stale {span(limit)} after that"] if limit is not None else [])]
    if state.get("busy"):
        evidence.append("a poll is under way, or the thread of an earlier one still runs")
        advice = "find out where the handler blocks: the log has its stack if it blocks the event loop"
    elif reader["kind"] == "source":
        evidence += s.subscriptions()
        advice = "check that the device still sends" if unfed is None else unfed[1]
    else:
        evidence += [s.timetable(), *([f"the next poll is due at {s.at(due)}"] if due else [])]
        advice = "check that the host did not sleep, and that stale_after is longer than the interval"
    evidence += [counted(state["missed_polls"], "missed poll")] if state["missed_polls"] else []
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
    evidence += [f"{counted(commands['waiting'], 'command')} waiting"] if commands["waiting"] else []
    if error := commands.get("last_error"):
        evidence.append(f"the last one failed or was refused: {clean(error)}")
    return s.verdict("command", summary, evidence, f"send one to {s.below}set", state="ok")


def _nothing_returned(s: Situation) -> "Verdict | None":
    published, last = s.published, s.state["last_success_at"]
    if published is None or last is None or published["suppressed"] or not s.succeeded:
        return None
    read, sent, age = when(last), when(published["published_at"]), s.age(last)
    if read is None or (sent is not None and sent >= read) or (age is not None and age < JUST_NOW):
        return None
    sent_at = f"published last: {s.at(published['published_at'])}" if sent else "no reading of it was published"
    evidence = [f"its last poll succeeded {s.at(last)}", sent_at]
    summary = "its handler returns None, so there is nothing to publish"
    advice = "return the reading from the handler, if there should be one"
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
    known = next((advice for words, advice in _BY_WORDS.items() if words in text), None)
    if known is None and (advice := _MENDING.get(name)) is not None:
        kinds = {each.get("kind", "") for each in s.adapters}
        known = advice.get(kinds.pop() if len(kinds) == 1 else "", advice[""])
    traceback = f"{s.command('trace')} --json"
    if known is None and (place := _PLACE.search(text)) is not None:
        return f"correct the code at {place[1]}, and restart the app; the traceback: {traceback}"
    return known or f"look at each failed call, with its traceback: {traceback}"


def _by_subscriptions(s: Situation) -> tuple[str, str] | None:
    """What is wrong with the messages of others that feed a device, and one thing to do; None if nothing is."""
    for topics, each in s.heard.items():
        name = clean(topics)
        if not each["received"]:
            return f"nothing was received at {name}", f"check the topic {name}, and that its sender runs"
        if error := each.get("last_error"):
            summary = f"the last message at {name} failed: {clean(error)}"
            return summary, f"compare what is sent to {name} with what its handler takes"
    return None


LINKS: tuple[Callable[[Situation], "Verdict | None"], ...] = (
    _unregistered,
    _disabled,
    _not_running,
    _held,
    _isolated,
    _adapter,
    _deferred,
    _circuit,
    _failing,
    _unread,
    _stale,
    _job,
    _command,
    _nothing_returned,
)
"""In the order in which a reading passes them. After the third, the device runs."""
