"""The links of the chain from a reading to what the broker retains. Pure.

They are asked after those of `reading_links`, so the device runs and was read. The publish rule comes after the outbox:
readings that it keeps back on purpose would otherwise hide a broker that does not take the others.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from leadsman.introspection.situation import Situation, span, value
from leadsman.introspection.values import describe
from leadsman.text import clean, counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadsman.introspection.explanations import Compared, Verdict
    from leadsman.mqtt.answers import Json

_SHORT = 9
"""Characters from which on a number is shown with six digits."""
LATE = 5.0
"""Seconds that a reading waits in the outbox of a connected app before that explains a silence."""


def _refused(s: Situation) -> "Verdict | None":
    waiting = s.state.get("outbox")
    if waiting is None or waiting["refused"] is None:
        return None
    evidence = [clean(waiting["refused"])]
    if waiting["messages"]:
        evidence.append(f"{counted(waiting['messages'], 'message')} of it in the outbox{_oldest(waiting['oldest'])}")
    if waiting["paused_for"] is not None:
        evidence.append(f"the topic is tried again in {span(waiting['paused_for'])}")
    advice = (
        f"allow {clean(waiting['topic'])} in the broker's access list, and check its limit on the size of a message"
    )
    summary = "the broker does not take its messages"
    return s.verdict("broker's answer", summary, [*evidence, *s.last_reading()], advice)


def _disconnected(s: Situation) -> "Verdict | None":
    mqtt = s.document.get("mqtt")
    if mqtt is None or mqtt["connected"]:
        return None
    outbox, since = mqtt["outbox"], mqtt.get("away_since")
    evidence = [f"not connected to {clean(mqtt['broker'])}" + (f" since {s.at(since)}" if since else "")]
    evidence += [f"last error: {clean(mqtt['last_error'])}"] if mqtt["last_error"] else []
    evidence.append(f"{counted(outbox['messages'], 'message')} in the outbox{_oldest(outbox['oldest'])}")
    advice = "start the broker, or correct its address: the readings wait in the outbox until then"
    summary = "the app has no connection to the broker"
    return s.verdict("connection", summary, [*evidence, *s.last_reading()], advice, since)


def _waiting(s: Situation) -> "Verdict | None":
    waiting, mqtt = s.state.get("outbox"), s.document.get("mqtt")
    if waiting is None or not waiting["messages"] or not (waiting["oldest"] or 0.0) >= LATE:
        return None
    place = waiting["topics_before"]
    evidence = [f"{counted(waiting['messages'], 'message')} of it in the outbox{_oldest(waiting['oldest'])}"]
    evidence += [f"{counted(waiting['in_flight'], 'message')} of it in flight"]
    evidence += [f"{counted(place, 'topic')} before it"] if place is not None else []
    advice = "read the devices less often, or use a broker that takes more"
    if mqtt is not None:
        total, window = counted(mqtt["outbox"]["messages"], "message"), counted(mqtt["window"], "message")
        evidence.append(f"{total} in the whole outbox; {window} may be in flight")
        evidence += [f"last error: {clean(mqtt['last_error'])}"] if mqtt["last_error"] else []
        if mqtt["limited_by"]:
            advice = f"raise Receive Maximum of the broker, which allows {window} in flight"
    return s.verdict("outbox", "its readings wait in the outbox", evidence, advice)


def _not_retained(s: Situation) -> "Verdict | None":
    delivery = None if s.reader is None else s.reader.get("delivery")
    sent = None if s.published is None else s.published["published_at"]
    if s.retained is None or s.retained.state is not None or delivery is None or sent is None:
        return None
    age, expiry = s.age(sent), delivery["expiry"]
    if not delivery["retain"] or s.state.get("outbox") is not None:
        return None  # each subscriber gets the next reading; or it is on its way
    evidence = [
        f"the broker retains nothing at {s.below}state",
        f"the last reading was published {s.at(sent)}",
    ]
    rule = None if s.reader is None else s.reader.get("publish")
    if expiry is not None and age is not None and age >= expiry and _forgets(s):
        evidence += [f"a retained reading expires after {span(expiry)}", *_suppressed_lines(s)]
        advice = "make the expiry longer than the time between two readings"
        if rule is not None:
            advice = f"add | Every({span(expiry / 2)!r}) to its publish rule {clean(rule)}, or make the expiry longer"
        return s.verdict("expiry", "its last reading expired at the broker", evidence, advice, sent)
    summary = "the broker does not retain its readings"
    advice = "check that the broker retains messages, and whether somebody clears the topic"
    if s.retained.status is None:
        advice = "check that the broker retains messages; a dry run retains nothing"
    return s.verdict("retention", summary, evidence, advice, sent)


def _said_offline(s: Situation) -> "Verdict | None":
    retained = s.retained
    if retained is None:
        return None
    status = retained.status or {}
    if status.get("state") == "offline":
        mqtt = s.document.get("mqtt")
        evidence = [f"the broker retains offline at {s.prefix}/status, of the session {value(status.get('session'))}"]
        evidence += [f"the session of the app that answers is {mqtt['session']}"] if mqtt is not None else []
        summary = "its app answers, and the broker says that it is offline"
        advice = f"wait for the next heartbeat; if it comes back, stop the other app with the prefix {s.prefix}"
        return s.verdict("availability", summary, [*evidence, *s.last_reading()], advice)
    if retained.availability == "offline" and s.state["status"] in ("ok", "starting"):
        evidence = [f"the broker retains offline at {s.below}availability", *s.last_reading()]
        summary = "it works, and the broker says that it is offline"
        advice = f"check the access list of the broker for {s.below}availability"
        return s.verdict("availability", summary, evidence, advice)
    return None


def _suppressed(s: Situation) -> "Verdict | None":
    lines = _suppressed_lines(s)
    if not lines or s.published is None:
        return None
    summary = "its publish rule keeps its readings back"
    sent = s.published["published_at"]
    evidence = [*lines, f"the last reading was published {s.at(sent)}", *_history(s), *s.last_reading()]
    advice = "add | Every('10m') to the rule, if a reading should come at least so often"
    rule = "" if s.reader is None else s.reader.get("publish") or ""
    if "Every(" in rule and "&" not in rule:
        advice = "wait: the rule has an Every(…), after which a reading is published anyway"
    return s.verdict("publish rule", summary, evidence, advice, sent, "intended")


def _well(s: Situation) -> "Verdict":
    state, mqtt = s.state, s.document.get("mqtt")
    evidence = s.last_reading()
    evidence += [f"the next poll is due at {s.at(state['next_due_at'])}"] if state["next_due_at"] else []
    if s.published is not None and s.published["published_at"]:
        evidence.append(f"the last reading was published {s.at(s.published['published_at'])}")
    evidence += _history(s)
    if mqtt is not None:
        waiting = counted(mqtt["outbox"]["messages"], "message")
        evidence.append(f"connected to {clean(mqtt['broker'])}, {waiting} in the outbox")
        evidence += [f"fault: {clean(mqtt['last_error'])}"] if mqtt["last_error"] else []
    if s.retained is not None:
        evidence.append(f"the broker retains {_kept(s.retained.state, s.terms)} at {s.below}state")
    return s.verdict("none", "all is well: its readings arrive", evidence, "nothing to do", state="ok")


def _forgets(s: Situation) -> bool:
    """Whether messages expire at the broker, which MQTT 3.1.1 does not know."""
    mqtt = s.document.get("mqtt")
    return mqtt is None or mqtt["protocol"] != "3.1.1"


def _suppressed_lines(s: Situation) -> list[str]:
    """What the publish rule compared; empty if it published the last reading."""
    published = s.published
    if published is None or not published["suppressed"]:
        return []
    rule = None if s.reader is None else s.reader.get("publish")
    count = counted(published["suppressed"], "reading")
    compared = published.get("compared", {})
    return [
        f"{clean(rule or 'its publish rule')} kept back {count}",
        *(_comparison(*each, s.terms) for each in compared.items()),
    ]


def _history(s: Situation) -> list[str]:
    """Where every reading goes, whatever the publish rule decides; empty if the device has no such topic."""
    delivery = None if s.reader is None else s.reader.get("delivery")
    if delivery is None or delivery["history"] is None:
        return []
    return [f"every reading goes to {s.prefix}/{s.name}/history too, which retains nothing"]


def _comparison(name: str, both: "Compared", terms: "Mapping[str, Json]") -> str:
    published, read = both["published"], both["read"]
    numbers = [each for each in (published, read) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2:
        return f"{clean(name)}: {value(read)} read, {value(published)} published"
    known = terms.get(name)
    unit = known.get("unit") if isinstance(known, dict) else None
    suffix = f" {clean(unit)}" if isinstance(unit, str) else ""
    old, new = (value(each) if len(value(each)) < _SHORT else f"{each:.6g}" for each in numbers)
    far = f"{abs(numbers[0] - numbers[1]):.6g}"
    return f"{clean(name)}: {new}{suffix} read, {old}{suffix} published, a difference of {far}{suffix}"


def _kept(payload: str | None, terms: "Mapping[str, Json]") -> str:
    """A payload for a person: with the units and decimals of its fields, if it is a reading."""
    if payload is None:
        return "nothing"
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    return clean((describe(fields, terms) if isinstance(fields, dict) and fields else payload)[:200])


def _oldest(age: float | None) -> str:
    return "" if age is None else f", the oldest for {span(age)}"


LINKS: tuple[Callable[[Situation], "Verdict | None"], ...] = (
    _refused,
    _disconnected,
    _waiting,
    _not_retained,
    _said_offline,
    _suppressed,
    _well,
)
"""In the order in which they are asked; the last one always has a verdict."""
