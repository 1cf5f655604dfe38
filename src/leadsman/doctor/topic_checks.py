"""Checks of the access list, of what the broker keeps, and of the running app."""

import re
from collections.abc import Iterable, Iterator, Mapping

from leadsman.doctor.broker_checks import AGAIN, allow_probes, not_seen
from leadsman.doctor.facts import Answered, Facts, Live
from leadsman.doctor.findings import Result, fail, ok, unknown, warn
from leadsman.monitoring.health import WELL
from leadsman.mqtt.answers import object_in
from leadsman.mqtt.connection_state import V5
from leadsman.text import clean, counted

SHOWN = 4
"""Topics that one line names."""
SKEW = 5.0
"""Seconds that two clocks may differ. The answer of the app takes its time, too."""
SEVERAL, OFTEN = 3, 60.0
"""Connections that were lost, and seconds: an app that connects this often does not keep its connection."""
NOT_ALLOWED = 0x87
"""Reason code: not authorized (MQTT 5 §3.4.2.1)."""
_PAGE = re.compile(r"[0-9]{1,6}")
BREAKS = "see its log: a broker that was restarted and a network that breaks end connections, too; if it names one"
RIVAL = "stop the other client with the client id of the app, or run the app with another prefix: --prefix"


def publishing(facts: Facts) -> Iterator[Result]:
    """Whether each topic of the app may be published to."""
    broker, wanted = facts.broker, facts.subject.published
    if broker.connack is None:
        return
    if not broker.offered:
        yield _nothing(facts) or _not_offered(facts)
        return
    refused = [topic for topic, code in broker.offers.items() if code is not None and code >= 0x80]
    closed = [topic for topic, code in broker.offers.items() if code is None]
    if refused:
        codes = sorted({broker.offers[topic] or 0 for topic in refused})
        why = ", ".join("not authorized" if code == NOT_ALLOWED else f"0x{code:02x}" for code in codes)
        advice = f"add to the access list: topic write {refused[0]}{_bound(facts)}"
        yield fail(f"{_named(refused)} may not be published to: {why}", advice)
    if closed:
        advice = f"see the access list and the broker's log: topic write {closed[0]}"
        yield fail(f"the broker closes the connection on {_named(closed)}", advice)
    tried = len(broker.offers)
    if tried < len(wanted):
        yield unknown(f"{tried} of {counted(len(wanted), 'topic')} could be tried in the time")
    elif not refused and not closed:
        yield ok(f"all {counted(tried, 'topic')} of the app")


def _nothing(facts: Facts) -> Result | None:
    """The result if the broker takes neither the probe nor a topic that the app needs; None if it takes one."""
    probe, topics = facts.broker.probe, facts.subject.topics
    if probe is None or probe.answer is None or probe.answer < 0x80:
        return None
    tried = f"{topics.of('doctor', 'probe')} and {topics.introspect}/response are refused"
    advice = "leadsman acl prints the access list that the app needs; or give the app the prefix that the list allows"
    return fail(f"this user may write nothing below {topics.prefix}/: {tried}", advice)


def _not_offered(facts: Facts) -> Result:
    broker, probe = facts.broker, facts.broker.probe
    for step in ("access list", "probe"):
        if broker.mixed_up or step in broker.faults:
            return not_seen(broker, step)
    if probe is None:
        return not_seen(broker, "probe")
    if broker.protocol != V5:
        return unknown("MQTT 3.1.1 does not say whether a message is refused")
    if probe.early:
        return unknown("this broker would give the probes to your consumers, so none were sent")
    if probe.heard:
        return unknown("this connection cannot hold a message back, so none were sent")
    if probe.code is not None and probe.code < 0x80:
        return unknown(f"{facts.subject.topics.of('doctor', 'probe')} may not be read", allow_probes(facts))
    return unknown(f"{facts.subject.topics.of('doctor', 'probe')} may not be published to", allow_probes(facts))


def subscribing(facts: Facts) -> Iterator[Result]:
    """Whether what is published to the topics that the app listens to reaches it."""
    broker = facts.broker
    if broker.connack is None:
        return
    if not broker.filters:
        yield not_seen(broker, "subscriptions")
        return
    found = {each: _heard(answer) for each, answer in broker.filters.items() if answer.fault is None}
    for topic_filter, answer in broker.filters.items():
        if answer.refused is not None:
            yield fail(answer.refused, f"add to the access list: topic read {topic_filter}")
    if silent := [each for each, heard in found.items() if heard is False and broker.filters[each].refused is None]:
        text = f"requests at {_named(silent)} do not arrive: they may not be read"
        yield fail(text, f"add to the access list: topic read {silent[0]}{_bound(facts)}")
    elsewhere = facts.subject.elsewhere
    if unseen := [each for each, heard in found.items() if heard is None and each not in elsewhere]:
        text = f"{_named(unseen)}: subscribed, but this user may not publish there, so nothing could come back"
        yield unknown(text, allow_probes(facts))
    if failed := [each for each in broker.filters if each not in found]:
        yield unknown(f"{_named(failed)}: {clean(broker.filters[failed[0]].fault or '')}", AGAIN)
    elif all(heard or (heard is None and each in elsewhere) for each, heard in found.items()):
        text = f"requests arrive at {counted(len(found) - len(elsewhere), 'filter')}"
        yield ok(text + (f", and the broker takes {counted(len(elsewhere), 'further one')}" if elsewhere else ""))


def _heard(answer: Answered) -> bool | None:
    if answer.refused is not None:
        return False
    return answer.heard if answer.published is not None and answer.published < 0x80 else None


def orphans(facts: Facts) -> Iterator[Result]:
    """Whether the broker keeps topics of devices that the app no longer has, or more than anybody wants to read."""
    kept, devices, prefix = facts.broker.kept, facts.subject.devices, facts.subject.topics.prefix
    if kept is not None and facts.broker.crowded:
        text = f"there are more retained messages below {prefix}/ than the doctor reads: it looked at {len(kept)}"
        yield warn(text, f"find out who publishes them: mosquitto_sub -v -t '{prefix}/#' --retained-only")
    if devices is None or facts.broker.connack is None:
        return
    if kept is None:
        yield not_seen(facts.broker, "retained topics")
        return
    if not kept and not _may_read(facts):
        yield unknown(f"{prefix}/# may not be read", allow_reading(facts))
        return
    found = left_behind(prefix, devices, kept)
    if found:
        text = f"{_named(found)} {'is' if len(found) == 1 else 'are'} kept, and no device of the app publishes there"
        yield warn(text, f"remove {'it' if len(found) == 1 else 'each'}: mosquitto_pub -r -n -t {found[0]}")
    elif not facts.broker.crowded:
        yield ok(f"{counted(len(kept), 'retained topic')}, all of the app")


def left_behind(prefix: str, devices: Iterable[str], kept: Iterable[str]) -> list[str]:
    """The topics of devices that are not registered, and pages of the registry that it no longer has. What has a
    status of its own belongs to another app."""
    known, found = set(devices), []
    topics = {topic: topic[len(prefix) + 1 :].split("/") for topic in kept if topic.startswith(f"{prefix}/")}
    for topic, levels in topics.items():
        other = f"{prefix}/{levels[0]}/status" in topics
        if (
            len(levels) == 2
            and levels[1] in ("state", "availability", "ledger")
            and levels[0] not in known
            and not other
        ):
            found.append(topic)
    return found + _old_pages(prefix, kept)


def _old_pages(prefix: str, kept: Iterable[str]) -> list[str]:
    documents = kept if isinstance(kept, dict) else {}
    registry = object_in(documents.get(f"{prefix}/registry", b""))
    pages = None if registry is None else registry.get("pages", 1)
    if not isinstance(pages, int):
        return []
    numbered = {topic: topic.removeprefix(f"{prefix}/registry/") for topic in documents}
    return [topic for topic, page in numbered.items() if _PAGE.fullmatch(page) and int(page) > pages]


def running_app(facts: Facts) -> Iterator[Result]:
    """What the running app says about its own connection."""
    live, kept = facts.broker.live, facts.broker.kept
    if facts.broker.connack is None:
        return
    state, said = _status(facts.subject.topics.status, kept or {})
    said = live or said
    if said is not None and said.last_error is not None and "uses the client id" in said.last_error:
        yield fail(f"it reports: {clean(said.last_error)}", RIVAL)
    elif said is not None and said.connects >= SEVERAL and said.uptime < said.connects * OFTEN:
        yield fail(f"it connected {said.connects} times in {said.uptime:.0f} s", f"{BREAKS}, {RIVAL}")
    elif said is not None and said.last_error is not None:
        yield warn(f"it reports: {clean(said.last_error)}", "see its log")
    elif live is not None:
        yield ok(f"it answers as {clean(live.client_id)!r}, after {counted(live.connects, 'connection')}")
    elif state == "online":
        advice = "see its log; if it hangs, restart it, and if not, see whether it may read and answer introspect"
        yield warn("its status is online, but it does not answer", advice)
    elif state is None and not _may_ask(facts):
        yield unknown("it could not be asked, and its status may not be read", allow_reading(facts))
    else:
        yield ok("it does not run" if state is None else f"it does not run; its status is {clean(state)!r}")
    yield from _troubled(facts, kept or {})


def _troubled(facts: Facts, kept: Mapping[str, bytes]) -> Iterator[Result]:
    """The devices that are in trouble, as the last heartbeat of an app that is online says."""
    prefix, status = facts.subject.topics.prefix, object_in(kept.get(facts.subject.topics.status, b"")) or {}
    devices = status.get("devices")
    if status.get("state") != "online" or not isinstance(devices, dict):
        return
    words = {name: each.get("status") for name, each in devices.items() if isinstance(each, dict)}
    names = [name for name, word in words.items() if isinstance(word, str) and word not in WELL]
    if names:
        yield warn(f"{_named(names)}: in trouble, as its heartbeat says", f"leadsman why --prefix {prefix} says why")


def other_clock(facts: Facts) -> Iterator[Result]:
    """Whether the clock of the running app is ours. The broker does not tell its own."""
    live = facts.broker.live
    if live is None or live.clock is None:
        return
    if abs(live.clock) <= SKEW:
        yield ok("the clock of the running app agrees with this one")
    else:
        side = "ahead of" if live.clock > 0 else "behind"
        text = f"the clock of the running app is {abs(live.clock):.0f} s {side} this one"
        yield warn(text, "let both machines follow a time server: timedatectl set-ntp true")


def home_assistant(facts: Facts) -> Iterator[Result]:
    """Whether Home Assistant's birth message can be read, and what it says."""
    broker = facts.broker
    if broker.birth_refused is not None:
        yield warn(broker.birth_refused, "add to the access list: topic read homeassistant/status")
    elif broker.birth is not None:
        yield ok(f"homeassistant/status is {clean(broker.birth)!r}")
    elif broker.kept is not None:
        yield unknown("no birth message is kept at homeassistant/status; Home Assistant keeps none by default")


def allow_reading(facts: Facts) -> str:
    """The advice where the access list keeps the doctor from seeing what the broker holds."""
    return f"to have this examined, add to the access list: topic read {facts.subject.topics.prefix}/#"


def _may_read(facts: Facts) -> bool:
    return facts.broker.probe is not None and facts.broker.probe.heard


def _may_ask(facts: Facts) -> bool:
    """Whether a request for introspection was passed on, so that a running app would have answered."""
    asked = facts.broker.filters.get(facts.subject.topics.introspect)
    return asked is not None and asked.heard is True


def _status(topic: str, kept: Mapping[str, bytes]) -> tuple[str | None, Live | None]:
    """The state in the status that the broker keeps, and what it says about the connection while it is online."""
    try:
        status = object_in(kept[topic]) or {}
        state, mqtt = str(status["state"]), status.get("mqtt", {})
        if state != "online":
            return state, None
        return state, Live("", mqtt.get("last_error"), int(mqtt.get("connects", 0)), float(status.get("uptime_s", 0.0)))
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError):
        return None, None


def _bound(facts: Facts) -> str:
    """A hint for access lists that depend on the client id: that of the doctor is another one."""
    return f" (if the list has %c: the doctor connects as {facts.subject.client_id}-doctor-…)"


def _named(topics: list[str]) -> str:
    shown = ", ".join(clean(topic) for topic in topics[:SHOWN])
    return shown if len(topics) <= SHOWN else f"{shown} and {len(topics) - SHOWN} more"
