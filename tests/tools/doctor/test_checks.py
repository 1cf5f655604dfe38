"""Every check, as a table from facts to findings."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Broker
from leadsman.core.adapters.resource import CalendarSearch, Resource
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.topics import Topics
from leadsman.tools.doctor.checks import CHECKS, Finding, findings, left_behind, worst
from leadsman.tools.doctor.facts import (
    Answered,
    BluetoothFacts,
    BrokerFacts,
    ConnectFailure,
    DiskFacts,
    Facts,
    LiveFacts,
    MachineFacts,
    ProbeFacts,
    RetainedFacts,
    SerialFacts,
    ServerFacts,
    StateFacts,
    Will,
)
from leadsman.tools.doctor.subject import Subject

TOPICS = ("house/status", "house/a/state")
SUBJECT = Subject(
    "house", Broker(), "house", Topics("house"), TOPICS, {"house/+/set": "house/doctor/set"}, frozenset("a"), 1
)
SOUND = BrokerFacts(
    ConnAck(receive_maximum=20),
    "5.0",
    "mqtt5",
    probe=ProbeFacts(0, True, False),
    offers=dict.fromkeys(TOPICS, 0),
    filters={"house/introspect": Answered(None, 0, True), "house/+/set": Answered(None, 0, True)},
    retained=RetainedFacts(0, True, True),
    will=Will(1.4, 1.0),
    kept={},
    birth="online",
    software="mosquitto version 2.0.11",
)
MACHINE = MachineFacts("3.12", "1.0", 1.8e9, "Europe/Berlin", None, True, (DiskFacts(Path("/"), 2**40),), None)
UNSEEN = {"offers": None}
PORT = SerialFacts("/dev/ttyUSB0", group="dialout")
SERVER = Resource("http", "http://inverter.lan")
BUS = Resource("i2c", "/dev/i2c-1")
CALENDARS = Resource("calendars", "https://cloud.example")


FOUND = {"house/b/state": b"", "house/registry": b'{"devices":{"a":{},"b":{}}}'}
"""What a broker keeps of an app that has found a device, and lists it."""


def compared(read="by time", lost=(), fault=None, stopped=None):
    search = CalendarSearch("Waste", read, lost, fault)
    return Facts(SUBJECT, servers=(ServerFacts(CALENDARS, None, (search,), stopped),))


def broker(**facts):
    return Facts(SUBJECT, SOUND._replace(**facts), MACHINE)


def elsewhere(answer):
    """An app with a subscription of its own."""
    facts = SOUND._replace(filters={**SOUND.filters, "zigbee2mqtt/#": answer})
    return Facts(SUBJECT._replace(elsewhere=("zigbee2mqtt/#",)), facts, MACHINE)


def lost(kind, code=0):
    return Facts(SUBJECT, BrokerFacts(failure=ConnectFailure(kind, "why", code)), MACHINE)


def machine(**facts):
    return Facts(SUBJECT, SOUND, MACHINE._replace(**facts))


def with_broker(url, facts=SOUND):
    return Facts(SUBJECT._replace(broker=Broker.from_url(url)), facts, MACHINE)


def with_connack(**fields):
    return broker(connack=ConnAck(receive_maximum=20)._replace(**fields))


NEW, OLD = "2026-11-27T13:00:00.000Z", b"2026-11-27T11:00:00.000Z"
"""When the last reading was taken, and one of two hours before."""


OLD_PAGE = {"house/registry/2": b'{"devices":{"a":{"topics":{"state":"house/old/state"},"retained":["state"]}}}'}
"""A page that the registry no longer has, from when the readings of a device were at another topic."""


def running(published, readings=(), taken_at=(), more=()):
    """An app that says what it published last, and what the broker has of it, and `more` that it has."""
    devices = {name: {"topics": {"state": f"house/{name}/state"}, "retained": ["state"]} for name in published}
    kept = {"house/registry": json.dumps({"app": "house", "devices": devices}).encode()}
    kept |= {f"house/{name}/state": payload for name, payload in dict(readings).items()} | dict(more)
    return broker(live=LiveFacts("house", None, 1, 9.0, published=published), kept=kept, taken_at=dict(taken_at))


def test_a_setting_of_mosquitto_is_named_only_where_the_broker_is_one():
    def advice(software):
        found = findings(broker(software=software, retained=RetainedFacts(0, False)))
        return " ".join(each.advice for each in found)

    assert "retain_available true in mosquitto.conf" in advice("mosquitto version 2.0.11")
    assert "mosquitto" not in advice(None)


def status(**mqtt):
    return {"house/status": json.dumps({"state": "online", "uptime": 20.0, "mqtt": mqtt}).encode()}


def losing(kind="refused", beside=()):
    """What an app says of whose devices the broker refuses messages."""
    faults = {
        topic: {"kind": kind, "error": f"0x90: {topic}", "lost": 3} for topic in ("house/a/state", "house/b/state")
    }
    return status(connects=1, last_error="0x90: house/a/state", faults=dict(beside) | faults)


def losing_readings(published):
    """An app that loses readings of two devices; one of a third is on its way."""
    facts = running(published, dict.fromkeys(published, b"21"))
    live = facts.broker.live._replace(losing=frozenset("ab"), waiting=frozenset("d"))
    return facts._replace(broker=facts.broker._replace(live=live))


def test_what_is_sound_needs_no_advice():
    found = findings(Facts(SUBJECT, SOUND, MACHINE))

    assert {each.verdict for each in found} == {"ok"}
    assert not [each for each in found if each.advice]


STATUSES = {"a": "held", "b": "error", "c": "ok", "d": "isolated"}
GOODBYE = b'{"state":"offline","at":"2026-01-01T00:00:00+00:00"}'
TROUBLED = {
    "house/status": json.dumps(
        {"state": "online", "devices": {name: {"status": word} for name, word in STATUSES.items()}}
    ).encode()
}
CASES = [
    (lost("address"), "address", "fail", "why", "start the broker"),
    (lost("name"), "address", "fail", "why", "getent hosts localhost"),
    (lost("silent"), "address", "fail", "why", "hangs"),
    (lost("refused", 0x97), "address", "fail", "why", "log"),
    (broker(hung="probe"), "address", "fail", "stopped answering", "hangs"),
    (lost("tls"), "TLS", "fail", "why", "ca="),
    (lost("clock"), "TLS", "fail", "why", "timedatectl"),
    (with_broker("mqtt://u:p@broker.lan"), "TLS", "warn", "without encryption", "mqtts://"),
    (with_broker("mqtts://broker.lan?insecure=1"), "TLS", "warn", "not verified", "ca="),
    (with_broker("mqtts://broker.lan"), "TLS", "ok", "accepted", ""),
    (lost("refused", 0x87), "authentication", "fail", "does not allow anonymous clients", "MQTT__USERNAME"),
    (with_broker("mqtt://u:p@h", lost("refused", 0x86).broker), "authentication", "fail", "'u'", "house-doctor-"),
    (broker(protocol="3.1.1"), "version", "warn", "3.1.1 only", "MQTT 5"),
    (
        with_broker("mqtt://h?protocol=3.1.1", SOUND._replace(protocol="3.1.1")),
        "version",
        "warn",
        "as the URL",
        "protocol=",
    ),
    (
        with_broker("mqtt://h?client=aiomqtt", SOUND._replace(library="aiomqtt")),
        "version",
        "ok",
        "through aiomqtt, as the URL asks, mosquitto",
        "",
    ),
    (broker(mixed_up=True), "client ids", "fail", "end each other", "use_username_as_clientid"),
    (with_connack(receive_maximum=1), "limits", "warn", "1 in flight", "max_inflight_messages"),
    (with_connack(maximum_qos=0), "limits", "warn", "QoS 0", "max_qos"),
    (with_connack(keepalive=5), "limits", "warn", "every 5 s", "max_keepalive"),
    (with_connack(maximum_packet_size=200), "limits", "fail", "200 bytes", "max_packet_size"),
    (with_connack(retain_available=False), "retained", "warn", "keeps no messages", "retain_available"),
    (broker(retained=RetainedFacts(0, False)), "retained", "fail", "does not get", "retain_available"),
    (broker(retained=RetainedFacts(0, None)), "retained", "unknown", "may not", "house/doctor/#"),
    (broker(retained=None), "retained", "unknown", "not examined", "again"),
    (broker(will=Will(None, 1.0)), "will", "fail", "no will", "log"),
    (broker(will=Will(None, 1.0), hung="probe"), "will", "unknown", "hangs at probe", "again"),
    (broker(will=Will(0.1, 2.0)), "will", "warn", "0.1 s instead of 2 s", "will delay"),
    (broker(will=Will(1.0, 2.0)), "will", "ok", "after its delay of 2 s", ""),
    (broker(will=Will(0.1, 0.0)), "will", "ok", "no delay", ""),
    (broker(will=Will(None, 0.0, readable=False)), "will", "unknown", "may not", "house/doctor/#"),
    (broker(will=None, faults={"will": "oh"}), "will", "unknown", "oh", "again"),
    (broker(offers={**SOUND.offers, "house/a/state": 0x87}), "publish", "fail", "house/a/state may not", "topic write"),
    (
        broker(offers={**SOUND.offers, "house/a/state": None}),
        "publish",
        "fail",
        "closes the connection on",
        "topic write",
    ),
    (broker(offers={"house/status": 0}), "publish", "unknown", "1 of 2 topics", ""),
    (broker(**UNSEEN, probe=ProbeFacts(0x87, False)), "publish", "unknown", "may not be published", "house/doctor/#"),
    (broker(**UNSEEN, probe=ProbeFacts(0, False)), "publish", "unknown", "may not be read", "house/doctor/#"),
    (broker(**UNSEEN, probe=ProbeFacts(0, True, True)), "publish", "unknown", "your consumers", ""),
    (broker(**UNSEEN, probe=ProbeFacts(0, True)), "publish", "unknown", "hold a message back", ""),
    (broker(**UNSEEN, protocol="3.1.1"), "publish", "unknown", "cannot report", ""),
    (broker(**UNSEEN, faults={"access list": "oh"}), "publish", "unknown", "oh", "log"),
    (broker(filters={"house/+/set": Answered("no")}), "subscribe", "fail", "no", "topic read house/+/set"),
    (broker(filters={"house/+/set": Answered(None, 0, False)}), "subscribe", "fail", "do not arrive", "topic read"),
    (
        broker(filters={"house/+/set": Answered(None, 0x87)}),
        "subscribe",
        "unknown",
        "may not publish",
        "house/doctor/#",
    ),
    (broker(filters={}), "subscribe", "unknown", "not examined", "log"),
    (elsewhere(Answered("no")), "subscribe", "fail", "no", "topic read zigbee2mqtt/#"),
    (
        elsewhere(Answered()),
        "subscribe",
        "ok",
        "requests arrive at 2 filters, and the broker accepts 1 further one",
        "",
    ),
    (
        broker(filters={"house/+/set": Answered(fault="oh"), "house/+/get": Answered(None, 0, True)}),
        "subscribe",
        "unknown",
        "house/+/set: oh",
        "again",
    ),
    (
        broker(filters={"house/+/set": Answered(fault="oh"), "house/+/get": Answered("no")}),
        "subscribe",
        "fail",
        "no",
        "topic read house/+/get",
    ),
    (broker(kept=None), "orphans", "unknown", "not examined", "again"),
    (broker(probe=ProbeFacts(0x87, False)), "orphans", "unknown", "house/# may not be read", "topic read house/#"),
    (broker(filters={}), "running app", "unknown", "the doctor could not ask it", "topic read house/#"),
    (broker(kept={"house/b/state": b""}), "orphans", "warn", "house/b/state is kept", "mosquitto_pub -r -n"),
    (
        broker(kept=FOUND, live=LiveFacts("house", None, 1, 9.0)),
        "orphans",
        "ok",
        "2 retained topics, all of the app",
        "",
    ),
    (
        broker(kept={**FOUND, "house/registry/2": b'{"devices":{"c":{}}}'}, live=LiveFacts("house", None, 1, 9.0)),
        "orphans",
        "warn",
        "house/registry/2 is kept",
        "mosquitto_pub -r -n",
    ),
    (
        broker(
            kept={**FOUND, "house/c/state": b"", "house/registry/2": b'{"devices":{"c":{}}}'},
            live=LiveFacts("house", None, 1, 9.0),
        ),
        "orphans",
        "warn",
        "house/c/state, house/registry/2",
        "mosquitto_pub -r -n",
    ),
    (broker(kept=FOUND), "orphans", "warn", "house/b/state is kept", "mosquitto_pub -r -n"),
    (broker(kept={"house/a/state": b""}, crowded=True), "orphans", "warn", "it looked at 1", "--retained-only"),
    (
        Facts(SUBJECT._replace(devices=None), SOUND._replace(crowded=True), MACHINE),
        "orphans",
        "warn",
        "it looked at 0",
        "--retained-only",
    ),
    (broker(live=LiveFacts("house", None, 1, 9.0)), "running app", "ok", "answers as 'house', after 1 connection", ""),
    (
        broker(live=LiveFacts("house", "another client uses the client id 'house'", 2, 9.0)),
        "running app",
        "fail",
        "it reports",
        "other",
    ),
    (broker(live=LiveFacts("house", "oh", 1, 9.0)), "running app", "warn", "oh", "log"),
    (broker(will_refused="0x90"), "will", "fail", "the will of the app, at house/status, is refused: 0x90", "acl"),
    (
        broker(retained=RetainedFacts(0, True, False)),
        "retained",
        "warn",
        "not at one with a wildcard",
        "exact topics",
    ),
    (running({"a": NEW}), "arrival", "fail", "nothing arrives at house/a/state", "topic write house/a/state"),
    (running({"a": NEW}, {"a": b'{"t":1,"taken_at":"%b"}' % OLD}), "arrival", "fail", "nothing arrives", "access list"),
    (running({"a": NEW}, {"a": b"21"}, {"house/a/state": OLD.decode()}), "arrival", "fail", "nothing arrives", "list"),
    (running({"a": NEW}, {"a": b"21"}, {"house/a/state": NEW}), "arrival", "ok", "the last readings of 1 device", ""),
    (running({"a": NEW}, {"a": b"21"}), "arrival", "ok", "the last readings of 1 device are at the broker", ""),
    (running({"a": NEW}, {"a": b"21"}, more=OLD_PAGE), "arrival", "ok", "the last readings of 1 device are", ""),
    (broker(kept=status(connects=7)), "running app", "fail", "7 times in 20 s", "client id"),
    (
        broker(kept=status(connects=2, last_error="the broker does not accept messages of 'house/a/state'")),
        "running app",
        "fail",
        "messages of 'house/a/state'",
        "access list",
    ),
    (
        broker(kept=status(connects=7, last_error="the broker does not accept messages of 'house/a/state'")),
        "running app",
        "fail",
        "7 times in 20 s, and it reports: the broker does not accept",
        "if they allow it, stop the other client",
    ),
    (broker(kept=status(connects=7)), "running app", "fail", "7 times in 20 s", "a restart of the broker"),
    (
        broker(kept=status(connects=1, last_error="the broker refused a message of 'house/a/state' (0x90)")),
        "running app",
        "fail",
        "it reports: the broker refused a message of 'house/a/state'",
        "access list",
    ),
    (broker(kept=losing()), "running app", "fail", "0x90: house/a/state; 3 messages lost", "allow house/a/state in"),
    (broker(kept=losing()), "running app", "fail", "0x90: house/b/state; 3 messages lost", "allow house/b/state in"),
    (broker(kept=losing("over_limit")), "running app", "fail", "house/b/state; 3 messages lost", "limit on the size"),
    (broker(kept=losing(beside={"house/c/state": 5})), "running app", "fail", "0x90: house/b/state", "house/b/state"),
    (broker(kept=losing(beside={"x": {"lost": [1]}})), "running app", "fail", "0x90: house/b/state", "house/b/state"),
    (broker(kept=losing("of another version")), "running app", "fail", "house/b/state", "house/b/state"),
    (losing_readings({}), "arrival", "fail", "readings of a, b do not arrive, or not all of them", "leadsman why"),
    (losing_readings({"c": NEW}), "arrival", "fail", "readings of a, b do not arrive", "leadsman why"),
    (losing_readings({"c": NEW}), "arrival", "ok", "1 device are at the broker; those of d are on their way", ""),
    (broker(kept=TROUBLED), "running app", "warn", "a, b: in trouble", "leadsman why --prefix house"),
    (broker(kept=status(connects=1)), "running app", "warn", "does not answer", "log"),
    (broker(kept={"house/status": GOODBYE}), "running app", "ok", "its status is 'offline'", ""),
    (broker(kept={"house/status": b'{"state":"offline"}'}), "running app", "warn", "its will", "start it"),
    (broker(kept={"house/status": b'{"state":"offline"}'}), "running app", "warn", "its will", "other client"),
    (broker(kept={"house/status": b"\xff"}), "running app", "ok", "does not run", ""),
    (broker(live=LiveFacts("house", None, 1, 9.0, 0.2)), "clock", "ok", "agrees", ""),
    (broker(live=LiveFacts("house", None, 1, 9.0, -70.0)), "clock", "warn", "70 s behind", "time server"),
    (broker(birth=None), "Home Assistant", "unknown", "no birth message", ""),
    (broker(birth=None, birth_refused="no"), "Home Assistant", "warn", "no", "topic read"),
    (Facts(SUBJECT._replace(missing=("x needs y; type: z",)), SOUND), "libraries", "fail", "x needs y", "type: z"),
    (Facts(SUBJECT, serial=(PORT,)), "serial port", "ok", "may be opened", ""),
    (
        Facts(SUBJECT, serial=(PORT._replace(exists=False, present=("/dev/b",)),)),
        "serial port",
        "fail",
        "/dev/b",
        "plug",
    ),
    (Facts(SUBJECT, serial=(PORT._replace(device=False),)), "serial port", "fail", "no", "by-id"),
    (
        Facts(SUBJECT, serial=(PORT._replace(allowed=False, member=False),)),
        "serial port",
        "fail",
        "opened",
        "-aG dialout",
    ),
    (Facts(SUBJECT, serial=(PORT._replace(allowed=False),)), "serial port", "fail", "opened", "udev"),
    (
        Facts(SUBJECT, serial=(PORT._replace(holders=("a (1)", "b (2)")),)),
        "serial port",
        "fail",
        "a (1), b (2)",
        "only one",
    ),
    (Facts(SUBJECT, serial=(PORT._replace(holders=("a (1)",)),)), "serial port", "ok", "a (1)", ""),
    (Facts(SUBJECT, serial=(PORT._replace(stable="/dev/x"),)), "serial port", "warn", "another device", "/dev/x"),
    (Facts(SUBJECT, serial=(SerialFacts("socket://h:1", fault="oh"),)), "serial port", "fail", "oh", "DNS"),
    (Facts(SUBJECT, serial=(SerialFacts("socket://h:1"),)), "serial port", "ok", "has an address", ""),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("", {"hci0": True}),)), "Bluetooth", "ok", "hci0", ""),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("", {"hci0": False}),)), "Bluetooth", "fail", "no power", "power on"),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("hci1", {"hci0": True}),)), "Bluetooth", "fail", "hci1", "hci0"),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("", {}),)), "Bluetooth", "fail", "no adapter", "plug"),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("", {}, "oh"),)), "Bluetooth", "fail", "oh", "systemctl"),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("", {}, "oh", "soft"),)), "Bluetooth", "fail", "blocked", "rfkill"),
    (Facts(SUBJECT, bluetooth=(BluetoothFacts("", {}, "oh", "hard"),)), "Bluetooth", "fail", "switched off", "key"),
    (Facts(SUBJECT, servers=(ServerFacts(CALENDARS, None),)), "calendars", "ok", "cloud.example", ""),
    (Facts(SUBJECT, servers=(ServerFacts(CALENDARS, "oh"),)), "calendars", "fail", "oh", "password"),
    (Facts(SUBJECT, servers=(ServerFacts(SERVER, None),)), "HTTP server", "ok", "inverter.lan answers", ""),
    (Facts(SUBJECT, servers=(ServerFacts(SERVER, "401"),)), "HTTP server", "fail", "401", "in a browser"),
    (Facts(SUBJECT, servers=(ServerFacts(BUS, None),)), "bus", "ok", "/dev/i2c-1 is there", ""),
    (Facts(SUBJECT, servers=(ServerFacts(BUS, "no bus; turn it on"),)), "bus", "fail", "no bus", "turn it on"),
    (Facts(SUBJECT, servers=(ServerFacts(BUS, "oh"),)), "bus", "fail", "oh", "dmesg"),
    (compared(lost=("Bins", "Glass")), "calendar search", "fail", "2 events, such as 'Bins'", 'search="all"'),
    (compared("whole while small", ("Bins",)), "calendar search", "warn", "1 event, such as 'Bins'", 'search="all"'),
    (compared("whole", ("Bins",)), "calendar search", "ok", "reads it whole", ""),
    (compared(), "calendar search", "ok", "all events of 1 calendar", ""),
    (compared(fault="too large"), "calendar search", "unknown", "'Waste' could not be compared: too large", ""),
    (compared(stopped="too slow"), "calendar search", "unknown", "not all calendars were compared: too slow", "again"),
    (machine(now=0.0), "clock", "fail", "1970", "set-ntp"),
    (machine(synchronised=False), "clock", "warn", "no time server", "set-ntp"),
    (machine(synchronised=None), "clock", "unknown", "does not report", ""),
    (machine(zone=None), "time zone", "warn", "no name", "set-timezone"),
    (machine(disks=(DiskFacts(Path("/x"), 1000),)), "disk", "fail", "0 MiB free at /x", "make room"),
    (machine(disks=(DiskFacts(Path("/x"), 50 * 2**20),)), "disk", "warn", "50 MiB", "make room"),
    (machine(state=StateFacts(Path("/s"), True, True)), "state", "ok", "can be written", ""),
    (machine(state=StateFacts(Path("/s"), False, True)), "state", "ok", "will be made", ""),
    (machine(state=StateFacts(Path("/s"), True, False)), "state", "fail", "may not be written", "user of the app"),
    (machine(state=StateFacts(Path("/s"), False, False)), "state", "fail", "cannot be made", "user of the app"),
    (machine(state=StateFacts(Path("/s"), True, True, 0o777)), "state", "warn", "others may write", "chmod 700"),
    (Facts(SUBJECT, unfinished={"broker": "late"}), "unfinished", "fail", "broker: late", "again"),
]


@pytest.mark.parametrize(("facts", "check", "verdict", "text", "advice"), CASES)
def test_each_fault_is_named_with_what_to_do(facts, check, verdict, text, advice):
    found = [each for each in findings(facts) if (each.check, each.verdict) == (check, verdict)]

    assert [each for each in found if text in each.text and advice in each.advice], findings(facts)
    assert verdict in ("ok", "unknown") or all(each.advice for each in found)


def test_every_check_has_a_case_that_is_not_well():
    wrong = {check for _, check, verdict, _, _ in CASES if verdict != "ok"}

    assert {each.name for each in CHECKS} - wrong == {"versions"}


@given(st.lists(st.sampled_from(["ok", "unknown", "warn", "fail"])))
def test_the_whole_is_as_bad_as_its_worst_part(verdicts):
    found = [Finding("a", "b", verdict, "") for verdict in verdicts]

    expected = next((verdict for verdict in ("fail", "warn", "unknown") if verdict in verdicts), "ok")
    assert worst(found) == expected


NAMES = st.text("abc", min_size=1, max_size=2)


@given(st.sets(NAMES), st.sets(NAMES))
def test_only_devices_that_are_not_registered_leave_orphans(registered, others):
    gone = others - registered
    kept = [f"house/{name}/{word}" for name in registered | others for word in ("state", "availability", "ledger")]

    kept += ["house/status", "house/registry", "elsewhere/x/state"]
    found = left_behind("house", registered, dict.fromkeys(kept, b""))

    assert set(found) == {f"house/{name}/{word}" for name in gone for word in ("state", "availability", "ledger")}


def test_what_has_a_status_of_its_own_belongs_to_another_app():
    kept = ["house/garden/state", "house/garden/status", "house/garden/pump/state"]

    assert left_behind("house", (), dict.fromkeys(kept, b"")) == []


def test_pages_that_the_registry_no_longer_has_are_orphans():
    kept = {"house/registry": b'{"pages":2}', "house/registry/2": b"", "house/registry/3": b""}

    assert left_behind("house", (), kept) == ["house/registry/3"]
