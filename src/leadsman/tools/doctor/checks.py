"""The table of all checks: facts in, findings out. Pure."""

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from leadsman.core.adapters.resource import ResourceKind
from leadsman.core.extension_tools import CheckResult, Verdict
from leadsman.core.introspection.kept_reading import compare
from leadsman.core.loop.clock import rfc3339
from leadsman.core.monitoring.health import WELL
from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.connection_state import CREDENTIALS, V5
from leadsman.core.mqtt.diagnosis import NOT_AUTHORIZED
from leadsman.core.mqtt.topic_faults import advise
from leadsman.core.text import clean, count_noun
from leadsman.tools.doctor.facts import (
    Answered,
    BluetoothFacts,
    BrokerFacts,
    ConnectFailure,
    Facts,
    LiveFacts,
    SerialFacts,
    ServerFacts,
    faults_in,
)

_RANK: tuple[Verdict, ...] = ("ok", "unknown", "warn", "fail")


class Finding(NamedTuple):
    """A result, with the check that found it."""

    group: str
    check: str
    verdict: Verdict
    text: str
    advice: str = ""


def ok(text: str) -> CheckResult:
    """All is well."""
    return CheckResult("ok", text)


def warn(text: str, advice: str) -> CheckResult:
    """The app works with less than it could have."""
    return CheckResult("warn", text, advice)


def fail(text: str, advice: str) -> CheckResult:
    """Something does not work."""
    return CheckResult("fail", text, advice)


def unknown(text: str, advice: str = "") -> CheckResult:
    """It could not be seen."""
    return CheckResult("unknown", text, advice)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The verdict of the whole."""
    return max((each.verdict for each in findings), key=_RANK.index, default="ok")


MIN_IN_FLIGHT = 10
"""Messages in flight. With fewer, the road to the broker limits how many readings arrive."""
_DEVICE, _REST = 60, 300
"""Bytes of a heartbeat: a device, and the rest; see `leadsman.core.monitoring.heartbeat`."""
MIN_WILL_SHARE = 0.4
"""The part of a will delay that must have passed: brokers round, and one that counts whole seconds makes 1 s of 2."""
RUN_AGAIN = "run the doctor again; if this remains, check the broker's log"
"""The advice where something was not seen."""


def reach(facts: Facts) -> Iterator[CheckResult]:
    """Whether somebody listens at the address and speaks MQTT."""
    failure, broker = facts.broker.failure, facts.subject.broker
    if facts.broker.hung is not None:
        text = f"{broker} stopped answering while this was examined: {facts.broker.hung}"
        yield fail(text, "see whether the broker hangs: its log, the load of its machine, the network")
        return
    if failure is None:
        if facts.broker.connack is not None:
            yield ok(f"{broker} answers")
        return
    match failure.kind:
        case "address":
            hint = "most brokers use 1883, and 8883 with TLS" if not broker.unix else "the path is that of its listener"
            yield fail(failure.text, f"start the broker, or fix host and port; {hint}")
        case "name":
            yield fail(failure.text, f"fix the name, or its DNS: getent hosts {broker.host}")
        case "silent":
            advice = "fix user name and password, or host and port; or see whether the broker hangs: its log says more"
            yield fail(failure.text, advice)
        case "refused" if failure.code not in CREDENTIALS:
            yield fail(failure.text, "the log of the broker says more")
        case _:
            yield ok(f"{broker} answers")


def tls(facts: Facts) -> Iterator[CheckResult]:
    """Whether both sides accept the certificates."""
    failure, broker = facts.broker.failure, facts.subject.broker
    if failure is not None and failure.kind == "tls":
        yield fail(failure.text, "give the certificate's authority as ca=, and a host that the certificate names")
    elif failure is not None and failure.kind == "clock":
        yield fail(failure.text, "set the clock of this machine: timedatectl")
    elif facts.broker.connack is None or broker.unix:
        return
    elif not broker.encrypted:
        if broker.password is not None and broker.host not in ("localhost", "127.0.0.1", "::1"):
            yield warn("the password travels without encryption", "let the broker listen with TLS, and write mqtts://")
    elif broker.tls.insecure:
        yield warn("the certificate is not verified", "give its authority as ca=, and leave out insecure=true")
    else:
        yield ok("the certificate is accepted")


def authentication(facts: Facts) -> Iterator[CheckResult]:
    """Whether the broker accepts the credentials."""
    failure, user = facts.broker.failure, facts.subject.broker.username
    if failure is not None and failure.kind == "refused" and failure.code in CREDENTIALS:
        yield _refused(facts, failure)
    elif facts.broker.connack is not None:
        yield ok("anonymous" if user is None else f"as {user!r}")


def _refused(facts: Facts, failure: ConnectFailure) -> CheckResult:
    subject = facts.subject
    if subject.broker.username is None:
        return fail(
            f"the broker does not allow anonymous clients (0x{failure.code:02x})", "set MQTT__USERNAME, MQTT__PASSWORD"
        )
    command = f"mosquitto_passwd FILE {subject.broker.username}"
    advice = f"fix MQTT__PASSWORD, or give the broker this user (where it is mosquitto: {command})"
    other = f"; if it ties users to client ids, allow {subject.client_id}-doctor-* too"
    return fail(f"the broker refuses the user {subject.broker.username!r} (0x{failure.code:02x})", advice + other)


def version(facts: Facts) -> Iterator[CheckResult]:
    """Whether the broker speaks MQTT 5."""
    broker, wanted = facts.broker, facts.subject.broker.protocol
    asked = "" if facts.subject.broker.client is None else ", as the URL asks"
    if broker.protocol is None:
        return
    if broker.protocol == V5:
        yield ok(f"MQTT 5, through {broker.library}{asked}" + (f", {broker.software}" if broker.software else ""))
    elif wanted == broker.protocol:
        yield warn(f"MQTT {broker.protocol}, as the URL asks", "leave protocol= out: MQTT 5 reports refused messages")
    else:
        text = f"MQTT {broker.protocol} only: it has no refusals, no expiry, and no delay of the will"
        yield warn(text, "use a broker with MQTT 5, such as mosquitto 2")


def client_ids(facts: Facts) -> Iterator[CheckResult]:
    """Whether the broker distinguishes clients by their client ids."""
    if facts.broker.mixed_up:
        text = "connections with different client ids end each other: the broker assigns them one id"
        yield fail(text, f"give each app a user of its own{_in_mosquitto(facts, 'use_username_as_clientid false')}")


def limits(facts: Facts) -> Iterator[CheckResult]:
    """How much may be in flight, which qualities there are, and whether the heartbeat fits into a packet."""
    connack = facts.broker.connack
    if connack is None:
        return
    found = []
    if connack.receive_maximum < MIN_IN_FLIGHT:
        text = f"{connack.receive_maximum} in flight at a time (Receive Maximum): readings may wait for one another"
        found.append(warn(text, f"let it allow 20 or more{_in_mosquitto(facts, 'max_inflight_messages 20')}"))
    if connack.maximum_qos == 0:
        text = "QoS 0 only: a message that is lost on the way stays lost"
        found.append(warn(text, f"let it allow QoS 1{_in_mosquitto(facts, 'max_qos 2')}"))
    if connack.keepalive is not None and 0 < connack.keepalive < 10:
        text = f"the broker expects a message every {connack.keepalive} s: a slow network breaks the connection"
        found.append(warn(text, f"let it allow a keep-alive of 60 s{_in_mosquitto(facts, 'max_keepalive 60')}"))
    most, usual = connack.maximum_packet_size, _REST + _DEVICE * facts.subject.readers
    if most is not None and most < usual:
        text = f"packets of {most} bytes at most: the heartbeat alone has about {usual}"
        found.append(fail(text, f"let it allow 20,000 or more{_in_mosquitto(facts, 'max_packet_size 20000')}"))
    aliases = f", {connack.topic_alias_maximum} topic aliases" if connack.topic_alias_maximum else ""
    yield from found or [ok(f"{connack.receive_maximum} in flight, QoS {connack.maximum_qos}{aliases}")]


def retained(facts: Facts) -> Iterator[CheckResult]:
    """Whether the broker keeps messages."""
    connack, seen = facts.broker.connack, facts.broker.retained
    setting = _in_mosquitto(facts, "retain_available true")
    advice = f"let it keep messages{setting}; without them Home Assistant knows nothing after a restart"
    if connack is None:
        return
    if not connack.retain_available:
        yield warn("the broker keeps no messages", advice)
    elif seen is None:
        yield not_seen(facts.broker, "retained")
    elif seen.kept and seen.wildcards is False:
        text = "retained messages arrive only at a filter that is the very topic, and not at one with a wildcard"
        yield warn(
            text, "write exact topics in other subscribers; leadsman asks for each topic that its registry lists"
        )
    elif seen.kept:
        yield ok("retained messages arrive, and can be removed")
    elif seen.kept is None or seen.code is None or seen.code >= 0x80:
        yield unknown("this user may not publish or read the probe", allow_probes(facts))
    else:
        yield fail("a new subscriber does not get a retained message", advice)


def last_will(facts: Facts) -> Iterator[CheckResult]:
    """Whether the will comes, and not too early."""
    seen, broker = facts.broker.will, facts.broker
    if broker.connack is None:
        return
    if broker.will_refused is not None:
        topic = facts.subject.topics.status
        text = f"the will of the app, at {topic}, is refused: {broker.will_refused}"
        yield fail(text, f"allow the app to publish there: leadsman acl prints its access list; topic write {topic}")
    if seen is None or (seen.after is None and broker.hung is not None):
        yield not_seen(broker, "will")
    elif not seen.readable:
        yield unknown("this user may not publish or read the will of the probe", allow_probes(facts))
    elif seen.after is None:
        yield fail("no will came: subscribers do not notice that the app died", "the log of the broker says more")
    elif seen.after < MIN_WILL_SHARE * seen.wanted:
        text = f"the will came after {seen.after:.1f} s instead of {seen.wanted:g} s: short breaks show as offline"
        yield warn(text, "use a broker that has the will delay of MQTT 5, such as mosquitto 2")
    else:
        delay = f", after its delay of {seen.wanted:g} s" if seen.wanted else "; MQTT 3.1.1 has no delay"
        yield ok(f"the will comes{delay}")


def _in_mosquitto(facts: Facts, setting: str) -> str:
    """The setting of mosquitto, where the broker's version names it."""
    return f" ({setting} in mosquitto.conf)" if "mosquitto" in (facts.broker.software or "") else ""


def allow_probes(facts: Facts) -> str:
    """The advice where the access list keeps the doctor from seeing something."""
    topics = facts.subject.topics
    return f"to have this examined, add to the access list: topic readwrite {topics.of('doctor', '#')}"


def not_seen(broker: BrokerFacts, step: str) -> CheckResult:
    """The result where a step of the examination brought no facts."""
    if broker.mixed_up:
        return unknown("not examined: the connections of the doctor would end that of the app")
    why = broker.faults.get(step, f"not examined: the broker hangs at {broker.hung}" if broker.hung else "not examined")
    return unknown(why, RUN_AGAIN)


SHOWN = 4
"""Topics that one line names."""
SKEW = 5.0
"""Seconds that two clocks may differ. The answer of the app takes its time, too."""
SEVERAL, OFTEN = 3, 60.0
"""Connections that were lost, and seconds: an app that connects this often does not keep its connection."""
OF_A_TOPIC = "the broker does not accept messages of"
"""Begins what an app reports of a topic that ends its connections, or whose messages are too large."""
REFUSED = "refused a message of"
"""The same of a topic whose messages the broker refuses."""
LIMITS_OF_A_TOPIC = "see the access list of the broker, and its limit of size"
_PAGE = re.compile(r"[0-9]{1,6}")
BREAKS = "see its log: a restart of the broker or a network fault ends connections; if the log names a client"
GONE = "start it if it was killed; if it runs, see its log: the network may be gone; if the log names a client"
RIVAL = "stop the other client with the client id of the app, or run the app with another prefix: --prefix"


def publishing(facts: Facts) -> Iterator[CheckResult]:
    """Whether each topic of the app may be published to."""
    offers, wanted = facts.broker.offers, facts.subject.published
    if facts.broker.connack is None:
        return
    if offers is None:
        yield _nothing(facts) or _not_offered(facts)
        return
    refused = {topic: code for topic, code in offers.items() if code is not None and code >= 0x80}
    closed = [topic for topic, code in offers.items() if code is None]
    if refused:
        codes = sorted({*refused.values()})
        why = ", ".join("not authorized" if code == NOT_AUTHORIZED else f"0x{code:02x}" for code in codes)
        advice = f"add to the access list: topic write {next(iter(refused))}{_bound(facts)}"
        yield fail(f"{_named([*refused])} may not be published to: {why}", advice)
    if closed:
        advice = f"see the access list and the broker's log: topic write {closed[0]}"
        yield fail(f"the broker closes the connection on {_named(closed)}", advice)
    tried = len(offers)
    if tried < len(wanted):
        yield unknown(f"{tried} of {count_noun(len(wanted), 'topic')} could be tried in the time")
    elif not refused and not closed:
        yield ok(f"all {count_noun(tried, 'topic')} of the app")


def _nothing(facts: Facts) -> CheckResult | None:
    """The result if the broker takes neither the probe nor a topic that the app needs; None if it takes one."""
    probe, topics = facts.broker.probe, facts.subject.topics
    if probe is None or probe.answer is None or probe.answer < 0x80:
        return None
    tried = f"{topics.of('doctor', 'probe')} and {topics.introspect}/response are refused"
    advice = "leadsman acl prints the access list that the app needs; or give the app the prefix that the list allows"
    return fail(f"this user may write nothing below {topics.prefix}/: {tried}", advice)


def _not_offered(facts: Facts) -> CheckResult:
    broker, probe = facts.broker, facts.broker.probe
    for step in ("access list", "probe"):
        if broker.mixed_up or step in broker.faults:
            return not_seen(broker, step)
    if probe is None:
        return not_seen(broker, "probe")
    if broker.protocol != V5:
        return unknown("MQTT 3.1.1 cannot report that a message is refused")
    if probe.early:
        return unknown("this broker would deliver the probes to your consumers, so none were sent")
    if probe.heard:
        return unknown("this connection cannot hold a message back, so none were sent")
    if probe.code is not None and probe.code < 0x80:
        return unknown(f"{facts.subject.topics.of('doctor', 'probe')} may not be read", allow_probes(facts))
    return unknown(f"{facts.subject.topics.of('doctor', 'probe')} may not be published to", allow_probes(facts))


def subscribing(facts: Facts) -> Iterator[CheckResult]:
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
        yield unknown(f"{_named(failed)}: {clean(broker.filters[failed[0]].fault or '')}", RUN_AGAIN)
    elif all(heard or (heard is None and each in elsewhere) for each, heard in found.items()):
        text = f"requests arrive at {count_noun(len(found) - len(elsewhere), 'filter')}"
        yield ok(text + (f", and the broker accepts {count_noun(len(elsewhere), 'further one')}" if elsewhere else ""))


def _heard(answer: Answered) -> bool | None:
    if answer.refused is not None:
        return False
    return answer.heard if answer.published is not None and answer.published < 0x80 else None


def orphans(facts: Facts) -> Iterator[CheckResult]:
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
    if facts.broker.live is not None:  # the app that runs has found some, and lists them
        devices = devices.union(dict(_listed(prefix, kept)))
    found = left_behind(prefix, devices, kept)
    if found:
        text = f"{_named(found)} {'is' if len(found) == 1 else 'are'} kept, and no device of the app publishes there"
        yield warn(text, f"remove {'it' if len(found) == 1 else 'each'}: mosquitto_pub -r -n -t {found[0]}")
    elif facts.broker.live is not None and f"{prefix}/registry" not in kept and _may_read(facts):
        text = (
            f"the broker keeps no registry of the running app at {prefix}/registry, so what else it left is not known"
        )
        yield warn(text, f"add to the access list: topic write {prefix}/registry, topic write {prefix}/registry/#")
    elif not facts.broker.crowded:
        yield ok(f"{count_noun(len(kept), 'retained topic')}, all of the app")


def left_behind(prefix: str, devices: Iterable[str], kept: Mapping[str, bytes]) -> list[str]:
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


def _listed(prefix: str, kept: Mapping[str, bytes]) -> Iterator[tuple[str, object]]:
    """The devices in the registry, without the pages that it no longer has, with their entries."""
    old = _old_pages(prefix, kept)
    for topic, payload in kept.items():
        if topic == f"{prefix}/registry" or (topic.startswith(f"{prefix}/registry/") and topic not in old):
            devices = (object_in(payload) or {}).get("devices")
            yield from devices.items() if isinstance(devices, dict) else ()


def _old_pages(prefix: str, kept: Mapping[str, bytes]) -> list[str]:
    registry = object_in(kept.get(f"{prefix}/registry", b""))
    pages = None if registry is None else registry.get("pages", 1)
    if not isinstance(pages, int):
        return []
    numbered = {topic: topic.removeprefix(f"{prefix}/registry/") for topic in kept}
    return [topic for topic, page in numbered.items() if _PAGE.fullmatch(page) and int(page) > pages]


def arrival(facts: Facts) -> Iterator[CheckResult]:
    """Whether the readings that a running app published, and the broker acknowledged, are at the broker. MQTT 3.1.1
    has no refusal, and some brokers acknowledge what their access list denies."""
    live, kept = facts.broker.live, facts.broker.kept
    if (
        live is None
        or kept is None
        or not (live.published or live.losing)
        or not (facts.broker.retained and facts.broker.retained.kept)
    ):
        return
    topics = {name: topic for name, topic in _states(facts.subject.topics.prefix, kept) if name in live.published}
    silent = [topic for name, topic in topics.items() if not _is_there(facts.broker, topic, live.published[name])]
    if silent:
        text = f"nothing arrives at {_named(silent)}, although the app publishes there and the broker acknowledges it"
        yield fail(text, f"see the access list of the broker: topic write {silent[0]}{_bound(facts)}")
    elif topics:
        more = f"; those of {_named(sorted(live.waiting))} are on their way" if live.waiting else ""
        yield ok(f"the last readings of {count_noun(len(topics), 'device')} are at the broker{more}")
    if live.losing:
        text = f"readings of {', '.join(map(clean, sorted(live.losing)))} do not arrive, or not all of them"
        yield fail(text, f"leadsman why --prefix {facts.subject.topics.prefix} explains it")


def _states(prefix: str, kept: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """The devices in the registry whose readings the broker shall keep, with their topics."""
    for name, entry in _listed(prefix, kept):
        paths, words = (entry.get("topics"), entry.get("retained")) if isinstance(entry, dict) else (None, None)
        if isinstance(paths, dict) and isinstance(words, list) and "state" in words:
            state = paths.get("state")
            if isinstance(state, str):
                yield name, state


def _is_there(broker: BrokerFacts, topic: str, published: str) -> bool:
    """Whether the broker has a reading as new as the one that it acknowledged."""
    return compare(published, (broker.kept or {}).get(topic), broker.taken_at.get(topic)).is_there


def running_app(facts: Facts) -> Iterator[CheckResult]:
    """What the running app reports about its own connection."""
    live, kept = facts.broker.live, facts.broker.kept
    if facts.broker.connack is None:
        return
    state, said = _status(facts.subject.topics.status, kept or {})
    said = live or said
    reports = None if said is None or said.last_error is None else f"it reports: {clean(said.last_error)}"
    faults = {} if said is None else said.faults
    known = {f"it reports: {clean(each.text)}" for each in faults.values()}
    often = said is not None and said.connects >= SEVERAL and said.uptime < said.connects * OFTEN
    times = "" if said is None else f"it connected {said.connects} times in {said.uptime:.0f} s"
    if reports is not None and "uses the client id" in reports:
        yield fail(reports, RIVAL)
    elif reports is not None and _is_of_a_topic(reports) and often:  # a rival may have met this topic each time
        yield fail(f"{times}, and {reports}", f"{LIMITS_OF_A_TOPIC}; if they allow it, {RIVAL}")
    elif reports is not None and _is_of_a_topic(reports) and not faults:
        yield fail(reports, LIMITS_OF_A_TOPIC)
    elif reports is not None and reports in known:
        pass  # it is named below
    elif often or reports is not None:
        if often:
            yield fail(times, f"{BREAKS}, {RIVAL}")
        if reports is not None:
            yield warn(reports, "see its log")
    elif live is not None:
        yield ok(f"it answers as {clean(live.client_id)!r}, after {count_noun(live.connects, 'connection')}")
    elif state == "online":
        advice = "see its log; if the app hangs, restart it; else check that it may read and answer introspect"
        yield warn("its status is online, but it does not answer", advice)
    elif state is None and not _may_ask(facts):
        yield unknown("the doctor could not ask it, and may not read its status", allow_reading(facts))
    elif state == "offline" and _is_will(kept or {}, facts.subject.topics.status):
        yield warn("it lost its connection: its status is its will", f"{GONE}, {RIVAL}")
    else:
        yield ok("it does not run" if state is None else f"it does not run; its status is {clean(state)!r}")
    for topic, fault in faults.items():
        lost = f"; {count_noun(fault.lost, 'message')} lost" if fault.lost else ""
        yield fail(f"it reports: {clean(fault.text)}{lost}", advise(fault.kind, clean(topic)))
    yield from _troubled(facts, kept or {})


def _is_of_a_topic(reports: str) -> bool:
    """Whether an app reports that the broker does not take the messages of a topic."""
    return OF_A_TOPIC in reports or REFUSED in reports


def _troubled(facts: Facts, kept: Mapping[str, bytes]) -> Iterator[CheckResult]:
    """The devices that are in trouble, by the last heartbeat of an app that is online."""
    prefix, status = facts.subject.topics.prefix, object_in(kept.get(facts.subject.topics.status, b"")) or {}
    devices = status.get("devices")
    if status.get("state") != "online" or not isinstance(devices, dict):
        return
    words = {name: each.get("status") for name, each in devices.items() if isinstance(each, dict)}
    names = [name for name, word in words.items() if isinstance(word, str) and word not in WELL]
    if names:
        yield warn(f"{_named(names)}: in trouble, as its heartbeat says", f"leadsman why --prefix {prefix} explains it")


def other_clock(facts: Facts) -> Iterator[CheckResult]:
    """Whether the clock of the running app agrees with ours. A broker does not publish its own."""
    live = facts.broker.live
    if live is None or live.clock is None:
        return
    if abs(live.clock) <= SKEW:
        yield ok("the clock of the running app agrees with this one")
    else:
        side = "ahead of" if live.clock > 0 else "behind"
        text = f"the clock of the running app is {abs(live.clock):.0f} s {side} this one"
        yield warn(text, "let both machines follow a time server: timedatectl set-ntp true")


def home_assistant(facts: Facts) -> Iterator[CheckResult]:
    """Whether Home Assistant's birth message can be read, and its payload."""
    broker = facts.broker
    if broker.birth_refused is not None:
        yield warn(broker.birth_refused, "add to the access list: topic read homeassistant/status")
    elif broker.birth is not None:
        yield ok(f"homeassistant/status is {clean(broker.birth)!r}")
    elif broker.kept is not None:
        yield unknown("whether it runs: it keeps no birth message at homeassistant/status, which is its default")


def allow_reading(facts: Facts) -> str:
    """The advice where the access list keeps the doctor from seeing what the broker holds."""
    return f"to have this examined, add to the access list: topic read {facts.subject.topics.prefix}/#"


def _may_read(facts: Facts) -> bool:
    return facts.broker.probe is not None and facts.broker.probe.heard


def _may_ask(facts: Facts) -> bool:
    """Whether a request for introspection was passed on, so that a running app would have answered."""
    asked = facts.broker.filters.get(facts.subject.topics.introspect)
    return asked is not None and asked.heard is True


def _status(topic: str, kept: Mapping[str, bytes]) -> tuple[str | None, LiveFacts | None]:
    """The state in the status that the broker keeps, and what it has about the connection while it is online."""
    try:
        status = object_in(kept[topic]) or {}
        state, mqtt = str(status["state"]), status.get("mqtt", {})
        if state != "online":
            return state, None
        connects, uptime = int(mqtt.get("connects", 0)), float(status.get("uptime", 0.0))
        return state, LiveFacts("", mqtt.get("last_error"), connects, uptime, faults=faults_in(mqtt))
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError):
        return None, None


def _is_will(kept: Mapping[str, bytes], topic: str) -> bool:
    """Whether the broker published this status after it lost the app. A will was written ahead, so it has no time."""
    return "at" not in (object_in(kept.get(topic, b"")) or {})


def _bound(facts: Facts) -> str:
    """A hint for access lists that depend on the client id: that of the doctor is another one."""
    return f" (if the list has %c: the doctor connects as {facts.subject.client_id}-doctor-…)"


def _named(topics: list[str]) -> str:
    shown = ", ".join(clean(topic) for topic in topics[:SHOWN])
    return shown if len(topics) <= SHOWN else f"{shown} and {len(topics) - SHOWN} more"


MIB = 1024 * 1024
LITTLE, NEARLY_NONE = 200 * MIB, 10 * MIB
"""Bytes of free disk. Logs and SQLite's journal need some."""
LONG_AGO = 1_767_225_600.0
"""Epoch seconds of 2026-01-01: a clock that is behind it was never set."""


def libraries(facts: Facts) -> Iterator[CheckResult]:
    """Whether the libraries that the adapters need are installed."""
    for line in facts.subject.missing:
        what, _, advice = line.partition("; ")
        yield fail(what, advice or "install it")


def serial_ports(facts: Facts) -> Iterator[CheckResult]:
    """Whether the ports exist, may be used, and are not used by others."""
    for port in facts.serial:
        yield _serial_port(port)
        if port.stable is not None:
            yield warn(f"{port.name} may name another device after the next start", f"write {port.stable}")


def _serial_port(port: SerialFacts) -> CheckResult:
    name = clean(port.name)
    if port.fault is not None:
        return fail(f"{name}: {port.fault}", "fix the name of the gateway, or its DNS")
    if "://" in port.name:
        return ok(f"{name}: the name has an address; the doctor does not connect, since many gateways serve one client")
    if not port.exists:
        there = f"; there are {', '.join(port.present[:3])}" if port.present else ""
        return fail(f"{name} does not exist{there}", "plug the device in, or name another port; dmesg lists new ports")
    if not port.device:
        return fail(f"{name} is not a serial port", "name a port such as /dev/serial/by-id/usb-…")
    if not port.allowed:
        advice = f"sudo usermod -aG {port.group} $USER, then log in again"
        if port.member:
            advice = f"let the group {port.group} read and write it: a udev rule with MODE=0660"
        return fail(f"{name} may not be opened by this user", advice)
    if len(port.holders) > 1:
        return fail(f"{name} is open in {', '.join(port.holders)}", "let only one program read the port")
    if port.holders:
        return ok(f"{name} is open in {port.holders[0]}; is that the app?")
    return ok(f"{name} is there, and may be opened")


def bluetooth(facts: Facts) -> Iterator[CheckResult]:
    """Whether BlueZ runs, and the adapter has power."""
    for radio in facts.bluetooth:
        yield _bluetooth(radio)


def _bluetooth(radio: BluetoothFacts) -> CheckResult:
    if radio.blocked == "hard":
        return fail("the radio is switched off", "switch it on: a key of the machine, or its firmware")
    if radio.blocked == "soft":
        return fail("the radio is blocked", "rfkill unblock bluetooth")
    if radio.fault is not None:
        return fail(radio.fault, "apt-get install bluez; systemctl start bluetooth; in a container, mount /run/dbus")
    if not radio.adapters:
        return fail("BlueZ has no adapter", "plug one in; bluetoothctl list shows the adapters that BlueZ knows")
    wanted = radio.wanted or min(radio.adapters)
    if wanted not in radio.adapters:
        return fail(f"there is no adapter {clean(wanted)!r}", f"write one of {', '.join(sorted(radio.adapters))}")
    if not radio.adapters[wanted]:
        return fail(f"{wanted} has no power", "bluetoothctl power on")
    return ok(f"BlueZ answers, and {wanted} has power")


def calendars(facts: Facts) -> Iterator[CheckResult]:
    """Whether the calendar servers accept the user."""
    for each in _servers(facts, "calendars"):
        yield _reached(each, "accepts the user", "url, username and password")


def servers(facts: Facts) -> Iterator[CheckResult]:
    """Whether the servers that are read over HTTP answer, and accept the account."""
    for each in _servers(facts, "http"):
        yield _reached(each, "answers", "what the error names")


def buses(facts: Facts) -> Iterator[CheckResult]:
    """Whether the I²C buses can be opened, and one-wire has a thermometer."""
    for each in _servers(facts, "i2c", "onewire"):
        fault, _, advice = (each.fault or "").partition("; ")
        yield fail(fault, advice or "look at dmesg") if fault else ok(f"{each.resource.name} is there, and may be used")


def _servers(facts: Facts, *kinds: ResourceKind) -> list[ServerFacts]:
    return [each for each in facts.servers if each.resource.kind in kinds]


def _reached(each: ServerFacts, well: str, fix: str) -> CheckResult:
    if each.fault is None:
        return ok(f"{each.resource.name} {well}")
    return fail(each.fault, f"open the address in a browser; fix {fix}")


def calendar_searches(facts: Facts) -> Iterator[CheckResult]:
    """Whether a search by time on a calendar server brings all events."""
    advice = 'write CalDav(…, search="all"), which reads each calendar whole'
    for each in _servers(facts, "calendars"):
        name, clear = each.resource.name, 0
        for search in each.searches:
            calendar = f"{name}: a search by time of {clean(search.calendar)!r}"
            if search.fault is not None:
                yield unknown(f"{calendar} could not be compared: {search.fault}")
            elif not search.lost:
                clear += 1
            else:
                first = clean(search.lost[0])[:40]
                text = f"{calendar} leaves out {count_noun(len(search.lost), 'event')}, such as {first!r}"
                match search.read:
                    case "whole":
                        yield ok(f"{text}; the app reads it whole")
                    case "whole while small":
                        yield warn(f"{text}; the app reads it whole while it is small", advice)
                    case "by time":
                        yield fail(text, advice)
        if clear:
            yield ok(f"{name}: a search by time brings all events of {count_noun(clear, 'calendar')}")
        if each.stopped is not None:
            yield unknown(f"{name}: not all calendars were compared: {each.stopped}", RUN_AGAIN)


def versions(facts: Facts) -> Iterator[CheckResult]:
    """The versions of Python and leadsman."""
    if facts.machine is not None:
        yield ok(f"Python {facts.machine.python}, leadsman {facts.machine.leadsman}")


def clock(facts: Facts) -> Iterator[CheckResult]:
    """Whether the clock is set, and follows a time server."""
    machine = facts.machine
    if machine is None:
        return
    if machine.now < LONG_AGO:
        yield fail(f"the clock says {rfc3339(machine.now)}", "set it: timedatectl set-ntp true")
    elif machine.synchronised is None:
        yield unknown("the kernel does not report whether the clock follows a time server")
    elif machine.synchronised:
        yield ok("it follows a time server")
    else:
        yield warn("it follows no time server: readings get wrong times", "timedatectl set-ntp true")


def time_zone(facts: Facts) -> Iterator[CheckResult]:
    """Whether the time zone is known."""
    machine = facts.machine
    if machine is None:
        return
    if machine.zone is not None:
        yield ok(machine.zone)
    else:
        yield warn(
            machine.zone_fault or "it has no name", "timedatectl set-timezone Europe/Berlin, or TZ=Europe/Berlin"
        )


def disk(facts: Facts) -> Iterator[CheckResult]:
    """Whether there is space."""
    for each in facts.machine.disks if facts.machine is not None else ():
        text = f"{each.free // MIB} MiB free at {each.path}"
        advice = "make room: journalctl --vacuum-size=100M, apt-get clean"
        yield fail(text, advice) if each.free < NEARLY_NONE else warn(text, advice) if each.free < LITTLE else ok(text)


def state(facts: Facts) -> Iterator[CheckResult]:
    """Whether the state of the app can be written, by it alone."""
    found = None if facts.machine is None else facts.machine.state
    if found is None:
        return
    if not found.writable:
        what = "may not be written by this user" if found.exists else "does not exist, and cannot be made by this user"
        yield fail(f"{found.path} {what}", "run the doctor as the user of the app, or set STATE_DIRECTORY")
    elif found.exists and found.mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield warn(f"others may write to {found.path} ({found.mode:03o})", f"chmod 700 {found.path}")
    else:
        yield ok(f"{found.path} " + ("can be written" if found.exists else "will be made"))


def unfinished(facts: Facts) -> Iterator[CheckResult]:
    """What did not come to an end."""
    for name, why in facts.unfinished.items():
        yield fail(f"{name}: {why}", "run the doctor again; if this stays, see whether this part of the machine hangs")


class Check(NamedTuple):
    """One check. It gives no result where it does not apply, and several where several things are wrong."""

    group: str
    name: str
    check: Callable[[Facts], Iterable[CheckResult]]


CHECKS = (
    Check("broker", "address", reach),
    Check("broker", "TLS", tls),
    Check("broker", "authentication", authentication),
    Check("broker", "version", version),
    Check("broker", "client ids", client_ids),
    Check("broker", "limits", limits),
    Check("broker", "retained", retained),
    Check("broker", "will", last_will),
    Check("topics", "publish", publishing),
    Check("topics", "subscribe", subscribing),
    Check("topics", "orphans", orphans),
    Check("topics", "running app", running_app),
    Check("topics", "arrival", arrival),
    Check("topics", "clock", other_clock),
    Check("topics", "Home Assistant", home_assistant),
    Check("devices", "libraries", libraries),
    Check("devices", "serial port", serial_ports),
    Check("devices", "Bluetooth", bluetooth),
    Check("devices", "calendars", calendars),
    Check("devices", "calendar search", calendar_searches),
    Check("devices", "HTTP server", servers),
    Check("devices", "bus", buses),
    Check("machine", "versions", versions),
    Check("machine", "clock", clock),
    Check("machine", "time zone", time_zone),
    Check("machine", "disk", disk),
    Check("machine", "state", state),
    Check("doctor", "unfinished", unfinished),
)
"""In the order in which they are shown."""


def findings(facts: Facts) -> list[Finding]:
    """The results of all checks, those of the extensions of the app last."""
    found = [Finding(each.group, each.name, *result) for each in CHECKS for result in each.check(facts)]
    own = ((of, name, result) for (of, name), results in facts.own_checks.items() for result in results)
    return [*found, *(Finding(of, name, *result) for of, name, result in own)]
