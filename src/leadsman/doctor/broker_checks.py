"""Checks of the connection to the broker, and of what the broker promises and does."""

from collections.abc import Iterator

from leadsman.doctor.facts import BrokerFacts, ConnectFailure, Facts
from leadsman.doctor.findings import Result, fail, ok, unknown, warn
from leadsman.mqtt.connection import SESSION_EXPIRY, WILL_DELAY
from leadsman.mqtt.connection_state import CREDENTIALS, V5

FEW = 10
"""Messages in flight. With fewer, the road to the broker limits how many readings arrive."""
_DEVICE, _TROUBLE, _LISTED, _REST = 60, 600, 128, 300
"""Bytes of a heartbeat: a device that is well, one in trouble, how many of these are listed, and the rest; see
`leadsman.monitoring.heartbeat`."""
EARLY = 0.7
"""The part of a will delay that must have passed: brokers round."""
AGAIN = "run the doctor again; if it stays, see the broker's log"
"""The advice where something was not seen."""


def reach(facts: Facts) -> Iterator[Result]:
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
            hint = "mosquitto uses 1883, and 8883 with TLS" if not broker.unix else "the path is that of `listener 0`"
            yield fail(failure.text, f"start the broker, or mend host and port; {hint}")
        case "name":
            yield fail(failure.text, f"mend the name, or its DNS: getent hosts {broker.host}")
        case "silent":
            yield fail(failure.text, "see whether the broker hangs, and whether host and port are those of a broker")
        case "refused" if failure.code not in CREDENTIALS:
            yield fail(failure.text, "the log of the broker says more")
        case _:
            yield ok(f"{broker} answers")


def tls(facts: Facts) -> Iterator[Result]:
    """Whether both sides accept the certificates."""
    failure, broker = facts.broker.failure, facts.subject.broker
    if failure is not None and failure.kind == "tls":
        yield fail(failure.text, "give the authority of the broker's certificate as ca=, and a host that is in it")
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


def authentication(facts: Facts) -> Iterator[Result]:
    """Whether the broker accepts the credentials."""
    failure, user = facts.broker.failure, facts.subject.broker.username
    if failure is not None and failure.kind == "refused" and failure.code in CREDENTIALS:
        yield _refused(facts, failure)
    elif facts.broker.connack is not None:
        yield ok("anonymous" if user is None else f"as {user!r}")


def _refused(facts: Facts, failure: ConnectFailure) -> Result:
    subject = facts.subject
    if subject.broker.username is None:
        return fail(
            f"the broker takes no anonymous clients (0x{failure.code:02x})", "set MQTT__USERNAME, MQTT__PASSWORD"
        )
    advice = f"mend MQTT__PASSWORD, or give the broker this user: mosquitto_passwd FILE {subject.broker.username}"
    other = f"; if it ties users to client ids, allow {subject.client_id}-doctor-* too"
    return fail(f"the broker refuses the user {subject.broker.username!r} (0x{failure.code:02x})", advice + other)


def version(facts: Facts) -> Iterator[Result]:
    """Whether the broker speaks MQTT 5."""
    broker, wanted = facts.broker, facts.subject.broker.protocol
    if broker.protocol is None:
        return
    if broker.protocol == V5:
        yield ok(f"MQTT 5, through {broker.library}" + (f", {broker.software}" if broker.software else ""))
    elif wanted != V5:
        yield warn(f"MQTT {broker.protocol}, as the URL asks", "leave protocol= out: refused messages are seen with 5")
    else:
        text = f"MQTT {broker.protocol} only: it has no refusals, no expiry, and no delay of the will"
        yield warn(text, "use a broker with MQTT 5, such as mosquitto 2")


def client_ids(facts: Facts) -> Iterator[Result]:
    """Whether the broker tells clients apart by their client ids."""
    if facts.broker.mixed_up:
        text = "connections with different client ids end each other: the broker gives them one id"
        yield fail(text, "take use_username_as_clientid out of mosquitto.conf, or give each app a user of its own")


def limits(facts: Facts) -> Iterator[Result]:
    """How much may be in flight, and which qualities there are."""
    connack = facts.broker.connack
    if connack is None:
        return
    clear = True
    if connack.receive_maximum < FEW:
        clear = False
        text = f"{connack.receive_maximum} in flight at a time (Receive Maximum): readings may wait for one another"
        yield warn(text, "raise max_inflight_messages in mosquitto.conf to 20 or more")
    if connack.maximum_qos == 0:
        clear = False
        yield warn("QoS 0 only: a message that is lost on the way stays lost", "raise max_qos in mosquitto.conf to 2")
    if connack.keepalive is not None and 0 < connack.keepalive < 10:
        clear = False
        text = f"the broker expects a message every {connack.keepalive} s: a slow network breaks the connection"
        yield warn(text, "raise max_keepalive in mosquitto.conf to 60 or more")
    if clear:
        aliases = f", {connack.topic_alias_maximum} topic aliases" if connack.topic_alias_maximum else ""
        yield ok(f"{connack.receive_maximum} in flight, QoS {connack.maximum_qos}{aliases}")


def packet_size(facts: Facts) -> Iterator[Result]:
    """Whether the app's documents fit."""
    broker, subject = facts.broker, facts.subject
    if broker.connack is None:
        return
    most = broker.connack.maximum_packet_size
    usual = _REST + _DEVICE * subject.readers
    worst = _REST + _TROUBLE * min(subject.readers, _LISTED) + _DEVICE * max(0, subject.readers - _LISTED)
    advice = f"raise max_packet_size in mosquitto.conf to {max(20_000, 2 * worst)} or more, or leave it out"
    if most is not None and most < usual:
        yield fail(f"packets of {most} bytes at most: the heartbeat alone has about {usual}", advice)
    elif most is not None and most < worst:
        yield warn(f"packets of {most} bytes at most: the heartbeat grows to {worst} while devices fail", advice)
    elif broker.size is not None and broker.size.code is not None and broker.size.code < 0x80:
        yield ok(f"a message of {broker.size.bytes} bytes is taken")
    elif broker.size is not None:
        why = "closes the connection" if broker.size.code is None else f"refuses it (0x{broker.size.code:02x})"
        text = f"a message of {broker.size.bytes} bytes is not taken: the broker {why}"
        yield warn(text, "raise message_size_limit in mosquitto.conf")
    else:
        yield ok("no limit is known" if most is None else f"packets of {most} bytes")


def retained(facts: Facts) -> Iterator[Result]:
    """Whether the broker keeps messages."""
    connack, seen = facts.broker.connack, facts.broker.retained
    advice = "set retain_available true in mosquitto.conf; without it Home Assistant knows nothing after a restart"
    if connack is None:
        return
    if not connack.retain_available:
        yield warn("the broker keeps no messages", advice)
    elif seen is None:
        yield not_seen(facts.broker, "retained and expiry")
    elif seen.kept:
        yield ok("kept for new subscribers, and removed")
    elif seen.kept is None or seen.code is None or seen.code >= 0x80:
        yield unknown("this user may not publish or read the probe", allow_probes(facts))
    else:
        yield fail("a retained message is not there for a new subscriber", advice)


def expiry(facts: Facts) -> Iterator[Result]:
    """Whether messages expire."""
    seen = facts.broker.retained
    if seen is None or not seen.kept:
        return
    if seen.expired is None:
        yield unknown("MQTT 3.1.1 has no expiry: a reading stays until the next one")
    elif seen.expired:
        yield ok("a message that expires is gone in time")
    else:
        yield warn(
            "a retained message did not expire", "let consumers look at the age of a reading, or use mosquitto 2"
        )


def last_will(facts: Facts) -> Iterator[Result]:
    """Whether the will comes, and not too early."""
    seen, broker = facts.broker.will, facts.broker
    if broker.connack is None:
        return
    if seen is None or (seen.after is None and broker.hung is not None):
        yield not_seen(broker, "will")
    elif not seen.readable:
        yield unknown("this user may not publish or read the will of the probe", allow_probes(facts))
    elif seen.after is None:
        yield fail("no will came: subscribers do not notice that the app died", "the log of the broker says more")
    elif seen.after < EARLY * seen.wanted:
        text = f"the will came after {seen.after:.1f} s instead of {seen.wanted:g} s: short breaks show as offline"
        yield warn(text, "use a broker that has the will delay of MQTT 5, such as mosquitto 2")
    else:
        delay = f", after its delay of {seen.wanted:g} s" if seen.wanted else "; MQTT 3.1.1 has no delay"
        yield ok(f"the will comes{delay}")


def session(facts: Facts) -> Iterator[Result]:
    """Whether the broker keeps a session long enough for the will delay."""
    seen = facts.broker.will
    if seen is not None and seen.session_expiry is not None and seen.session_expiry < SESSION_EXPIRY:
        text = f"the broker keeps a session for {seen.session_expiry} s instead of {SESSION_EXPIRY} s"
        if seen.session_expiry < WILL_DELAY:
            yield warn(f"{text}: the will comes at its end", f"allow sessions of {SESSION_EXPIRY} s")
        else:
            yield ok(text)


def takeover(facts: Facts) -> Iterator[Result]:
    """Whether a new connection replaces an old one with the same client id."""
    seen = facts.broker.takeover
    if seen is None:
        if facts.broker.connack is not None:
            yield not_seen(facts.broker, "takeover of the client id")
    elif not seen.accepted:
        text = f"a second connection with one client id is refused: {seen.text}"
        yield fail(
            text, "let the broker close the old connection, or the app waits after each break for its keep-alive"
        )
    elif not seen.ended:
        yield fail(
            "two connections have one client id at a time", "use a broker that ends the older one (MQTT 5 §3.1.4)"
        )
    else:
        yield ok("a new connection replaces the old one")


def allow_probes(facts: Facts) -> str:
    """The advice where the access list keeps the doctor from seeing something."""
    topics = facts.subject.topics
    return f"to have this examined, add to the access list: topic readwrite {topics.of('doctor', '#')}"


def not_seen(broker: BrokerFacts, step: str) -> Result:
    """The result where a step of the examination brought no facts."""
    if broker.mixed_up:
        return unknown("not examined: the connections of the doctor would end that of the app")
    why = broker.faults.get(step, f"not examined: the broker hangs at {broker.hung}" if broker.hung else "not examined")
    return unknown(why, AGAIN)
