"""Fifty situations of a device, each with the link that explains why it is silent."""

import copy
import itertools
import json
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from leadsman.core.introspection.document import Introspection, Link, Verdict
from leadsman.core.introspection.why import (
    CHAIN,
    OVERDUE,
    RetainedDocuments,
    refused,
    silent,
    unanswered,
    unreachable,
    why,
)
from leadsman.core.mqtt.topic_faults import OF_THE_BROKER, FaultKind, advise
from leadsman.errors import ConnackMissing, ConnectionRefused, NotListening
from leadsman_rigs.examples import examples

DOCUMENT, VERDICT = TypeAdapter(Introspection), TypeAdapter(Verdict)
START = "2026-11-22T08:00:00.000Z"
"""An hour ago."""
READ = "2026-11-22T08:59:30.000Z"
"""Half a minute ago; the interval is a minute."""
NEXT = "2026-11-22T09:00:30.000Z"
COUNTERS = {"polls": 60, "failed_polls": 0, "retried_polls": 0, "calls": 60, "failed_calls": 0, "retries": 0}
COUNTERS |= {"opens": 0, "deferrals": 0, "missed_polls": 0, "published": 60}
BOILER = {
    "kind": "telemetry",
    "handler": "boiler",
    "needs": ["SerialPort"],
    "enabled": True,
    "interval": 60.0,
    "schedule": None,
    "retry": 3,
    "circuit_breaker": None,
    "timeout": 20.0,
    "publish": None,
    "delivery": {"qos": 1, "retain": True, "expiry": None, "keep": "all", "history": None},
    "stale_after": 200.0,
}
BREAKER = {
    **dict.fromkeys(("recovery", "shared")),
    "threshold": 5,
    "ignore": [],
}
RUNTIME = {
    "status": "ok",
    "stale": False,
    "circuit": "closed",
    "consecutive_failures": 0,
    "attempts": 0,
    "retries_since_success": 0,
    "opens": 0,
    "opened_at": None,
    "failing_since": None,
    "last_error": None,
    "last_success_at": READ,
    "last_duration": 0.1,
    "next_poll_at": NEXT,
    "deferred_until": None,
    "deferred_reason": None,
    "poll_under_way": None,
    "counters": COUNTERS,
    "held": False,
    "missed_polls": 0,
    "published": {"published_at": READ, "suppressed": 0},
}
OUTBOX = {"messages": 0, "bytes": 0, "in_flight": 0, "delivered": 99, "dropped": 0, "dropped_by": {}, "oldest": None}
MQTT = {
    "broker": "mqtt://broker.lan:1883",
    "client_id": "house",
    "connected": True,
    "protocol": "5.0",
    "client": "mqtt5",
    "session": 7,
    "connects": 1,
    "breaks": 0,
    "window": 20,
    "limited_by": None,
    "last_error": None,
    "outbox": OUTBOX,
}
PORT = {"adapter": "SerialPort", "kind": "serial", "open": True, "error": None, "reopened": 0}
APP = {"name": "house", "version": "1", "prefix": "house", "leadsman": "1", "python": "3.12", "started_at": START}
KEPT = RetainedDocuments({"state": "online", "session": 7}, '{"watts":412.5}', "online", READ)
TIMEOUT = "DeviceTimeout: no message from /dev/ttyUSB0 within 3s"
FAILING = {
    "status": "error",
    "last_error": TIMEOUT,
    "failing_since": "2026-11-22T08:50:00.000Z",
    "consecutive_failures": 4,
    "counters": COUNTERS | {"failed_polls": 4},
    "last_success_at": "2026-11-22T08:49:00.000Z",
}
RETRYING = {"failed_calls": 2, "last_error": TIMEOUT, "next_call_at": "2026-11-22T09:00:04.000Z"}
NEVER = {
    "last_success_at": None,
    "counters": dict.fromkeys(COUNTERS, 0),
    "published": {"published_at": None, "suppressed": 0},
}
HISTORY = {"qos": 1, "retain": True, "expiry": None, "keep": "all", "history": 3600.0}
WAITING = {"topic": "house/boiler/state", "messages": 12, "in_flight": 0, "topics_before": 3, "oldest": 720.0}
WAITING |= {"paused_for": None, "refused": None}
SOURCE = {
    "kind": "source",
    "handler": "meter",
    "needs": ["SerialPort"],
    "enabled": True,
    "silence": 60.0,
    "stale_after": 180.0,
}
COMMAND = {"kind": "command", "handler": "lamp", "needs": [], "enabled": True, "timeout": 10.0}


def of(*, retained=KEPT, registered=BOILER, port=PORT, mqtt=MQTT, extra=(), **runtime):
    """A document about a boiler that works, but for these changes of its state."""
    section = {"registrations": [registered, *extra], "runtime": RUNTIME | runtime}
    document = {
        "app": APP | {"uptime": 3600.0},
        "mqtt": mqtt,
        "adapters": [port],
        "devices": {"boiler": section},
        "jobs": {},
    }
    return document, retained


def without_state(**changes):
    document, retained = of(registered=BOILER | changes)
    del document["devices"]["boiler"]["runtime"]
    return document, retained


def job(**runtime):
    document, retained = of(registered=BOILER | {"kind": "periodic"}, **runtime)
    section = document["devices"].pop("boiler")
    section["runtime"].pop("published")
    return document | {"jobs": {"boiler": section}}, retained


def suppressed(rule="OnChange(0.5)", count=12, at="2026-11-22T08:40:00.000Z", **more):
    compared = {"watts": {"published": 412.5, "read": 412.6}, "mode": {"published": "eco", "read": "eco"}}
    registered = BOILER | {"publish": rule} | more.pop("registered", {})
    return of(registered=registered, published={"published_at": at, "suppressed": count, "compared": compared}, **more)


def kept(**changes):
    return of(retained=KEPT._replace(**changes))


def expiring(published, retained=KEPT._replace(state=None), **more):
    delivery = {"qos": 1, "retain": True, "expiry": 600.0, "keep": "all", "history": None}
    return of(
        registered=BOILER | {"delivery": delivery, "publish": None},
        published={"published_at": published, "suppressed": 0},
        last_success_at=published,
        retained=retained,
        **more,
    )


OLD = "2026-11-22T08:40:00.000Z"
UNPLUGGED = PORT | {"open": False, "error": "PermissionError: [Errno 13] /dev/ttyUSB0"}
OPEN = FAILING | {"status": "circuit_open", "circuit": "open", "opened_at": "2026-11-22T08:54:00.000Z"}
AWAY = MQTT | {"connected": False, "last_error": "Connection refused", "away_since": "2026-11-22T08:30:00.000Z"}
FULL = MQTT | {"limited_by": "receive_maximum", "outbox": OUTBOX | {"messages": 900}}
HEARD = PORT | {"health": {"silent_for": 95.2, "discarded": 40}}
UNHEARD = PORT | {"health": {"silent_for": None}}
OVERSIZED = "the broker refused a message of 'house/boiler/state' (0x95)"
DENIED = "the broker does not accept messages of 'house/boiler/state': it closes the connection"

SITUATIONS = {
    "all is well": (of(), "none", "ok", "the broker retains watts 412.5 at house/boiler/state"),
    "all is well, and nobody looked at the broker": (of(retained=None), "none", "ok", "30s ago"),
    "well after failures before": (
        of(counters=COUNTERS | {"failed_polls": 9}),
        "none",
        "ok",
        "0 messages in the outbox",
    ),
    "well, though a subscription was refused": (
        of(mqtt=MQTT | {"last_error": "refused the subscription to 'house/+/set'"}),
        "none",
        "ok",
        "fault: refused the",
    ),
    "it publishes without retain": (
        of(
            registered=BOILER
            | {"delivery": {"qos": 0, "retain": False, "expiry": None, "keep": "all", "history": None}},
            retained=KEPT._replace(state=None),
        ),
        "none",
        "ok",
        "retains nothing",
    ),
    "the name is wrong": (
        ({**of()[0], "devices": {"boilers": {"registrations": [BOILER]}}}, KEPT),
        "registration",
        "broken",
        "it has boilers",
    ),
    "the app has no device at all": (({}, None), "registration", "broken", ""),
    "it is not enabled": (without_state(enabled=False), "enabled", "intended", "enabled=False"),
    "the app only shows its registrations": (without_state(), "app", "broken", "no state"),
    "it is held": (
        of(**FAILING | {"status": "held", "held": True}),
        "hold",
        "broken",
        "failing since 2026-11-22 08:50:00Z",
    ),
    "it is held, with an open circuit": (of(**OPEN | {"status": "held", "held": True}), "hold", "broken", TIMEOUT),
    "a person holds it": (of(status="held", held=True), "hold", "intended", "last success"),
    "a person isolated it": (
        of(status="isolated", circuit="isolated", opened_at=OLD),
        "isolation",
        "intended",
        "08:40:00Z (20m ago)",
    ),
    "its port cannot be opened": (of(port=UNPLUGGED, **FAILING), "adapter", "broken", "PermissionError"),
    "its port cannot be opened, and the circuit is open for that": (
        of(port=UNPLUGGED, **OPEN),
        "adapter",
        "broken",
        "Errno 13",
    ),
    "nothing listens at its port": (
        of(port=PORT | {"open": False, "error": "tcp://meter:502 cannot be opened: nothing listens there"}, **FAILING),
        "adapter",
        "broken",
        "nothing listens there",
    ),
    "its port is still opening": (of(port=PORT | {"open": False}, **NEVER), "adapter", "broken", "still opening"),
    "the port of another device is closed": (of(port=UNPLUGGED | {"adapter": "Other"}), "none", "ok", ""),
    "it asked for a pause": (
        of(status="deferred", deferred_until="2026-11-22T09:10:00.000Z", deferred_reason="defrosting"),
        "deferral",
        "intended",
        "(in 10m)",
    ),
    "it asked for a pause without a reason": (
        of(status="deferred", deferred_until=NEXT),
        "deferral",
        "intended",
        "no poll before 2026-11-22 09:00:30Z",
    ),
    "its pause is over, and the next poll is to come": (
        of(status="deferred", deferred_until="2026-11-22T08:59:50.000Z", next_poll_at=NEXT),
        "deferral",
        "intended",
        "the pause ended 2026-11-22 08:59:50Z",
    ),
    "it asked for a pause, and the document does not say until when": (
        of(status="deferred", deferred_until=None, deferred_reason=None, next_poll_at=NEXT),
        "deferral",
        "intended",
        "the next poll is due at",
    ),
    "it was marked unavailable": (
        of(status="deferred", deferred_until=None, deferred_reason="marked unavailable: it sleeps"),
        "deferral",
        "intended",
        "marked unavailable: it sleeps",
    ),
    "its circuit is open": (
        of(registered=BOILER | {"circuit_breaker": BREAKER}, **OPEN),
        "circuit",
        "broken",
        "after 5 failed polls",
    ),
    "its circuit is being probed": (of(**OPEN | {"circuit": "half_open"}), "circuit", "broken", "half open since"),
    "another member of its circuit fails the probes": (
        of(**OPEN | {"failed_probes": {"garage": 1, "cellar": 3}}),
        "circuit",
        "broken",
        "the circuit is shared; since it opened cellar failed 3 probes, garage failed 1 probe",
    ),
    "its circuit is open, and the port is silent": (
        of(port=HEARD, **OPEN),
        "circuit",
        "broken",
        "received nothing for 1m35s",
    ),
    "its last poll failed": (of(**FAILING), "call", "broken", "4 failed polls in a row"),
    "its poll under way failed twice": (
        of(**FAILING, poll_under_way=RETRYING),
        "call",
        "broken",
        "attempt 2 of 4 failed",
    ),
    "its poll retries until the next one": (
        of(registered=BOILER | {"retry": "until the next poll"}, **FAILING, poll_under_way=RETRYING),
        "call",
        "broken",
        "it retries until the next poll",
    ),
    "a call failed, and nothing is wrong yet": (of(poll_under_way=RETRYING), "call", "broken", "(in 4s)"),
    "its first poll fails": (
        of(**NEVER | {"last_error": TIMEOUT, "failing_since": OLD}, poll_under_way=RETRYING),
        "call",
        "broken",
        "it has never been read",
    ),
    "bytes arrive that fit no message": (of(port=HEARD, **FAILING), "call", "broken", "discarded 40 bytes"),
    "no byte ever arrived": (of(port=UNHEARD, **FAILING), "call", "broken", "received nothing yet"),
    "its handler has a bug": (of(**FAILING | {"last_error": "KeyError: 'watts'"}), "call", "broken", "KeyError"),
    "it waits for its first poll": (of(**NEVER, status="starting"), "schedule", "intended", "the first poll is due at"),
    "it waits for cron": (
        of(registered=BOILER | {"interval": None, "schedule": "0 6 * * *"}, **NEVER, status="starting"),
        "schedule",
        "intended",
        "0 6 * * *",
    ),
    "its first poll is under way": (of(**NEVER, busy=True), "call", "intended", "a call may take 20s"),
    "its first poll is overdue": (of(**NEVER, stale=True, status="stale"), "schedule", "broken", "interval is 1m"),
    "its source waits for the first reading": (
        of(registered=SOURCE, **NEVER, restarts=0),
        "call",
        "intended",
        "1 time",
    ),
    "its source is silent since the start": (
        of(registered=SOURCE, **NEVER, stale=True, restarts=4),
        "call",
        "broken",
        "started 5 times",
    ),
    "its source fell silent": (
        of(registered=SOURCE, port=HEARD, stale=True, status="stale", last_success_at=OLD),
        "staleness",
        "broken",
        "1m35s",
    ),
    "its handler hangs": (
        of(stale=True, status="stale", last_success_at=OLD, busy=True, missed_polls=19),
        "staleness",
        "broken",
        "19 missed polls",
    ),
    "the host slept": (
        of(stale=True, status="stale", last_success_at=OLD),
        "staleness",
        "broken",
        "stale 3m20s after that",
    ),
    "it is a side job": (job(), "job", "ok", "interval is 1m"),
    "it is a side job that fails": (job(**FAILING), "call", "broken", TIMEOUT),
    "it only takes commands": (
        of(registered=COMMAND, commands={"done": 3, "failed": 1, "refused": 2, "waiting": 0, "last_error": None}),
        "command",
        "ok",
        "3 executed, 1 of them failed, 2 refused",
    ),
    "its last command failed": (
        of(
            registered=COMMAND,
            commands={"done": 3, "failed": 1, "refused": 2, "waiting": 0, "last_error": "KeyError: 'on' (house.py:33)"},
        ),
        "command",
        "ok",
        "3 executed, 1 of them failed, 2 refused",
    ),
    "it is read, and takes commands": (of(extra=[COMMAND], **FAILING), "call", "broken", TIMEOUT),
    "its handler returns nothing": (
        of(published={"published_at": OLD, "suppressed": 0}),
        "result",
        "intended",
        "published last: 2026-11-22 08:40:00Z",
    ),
    "a window of its filters is open": (
        of(registered=BOILER | {"window": 3600.0}, published={"published_at": None, "suppressed": 0}),
        "result",
        "intended",
        "no reading of it was published",
    ),
    "its handler has never returned a reading": (
        of(published={"published_at": None, "suppressed": 0}),
        "result",
        "intended",
        "no reading of it was published",
    ),
    "the broker refused a message": (
        of(outbox=WAITING | {"messages": 0, "oldest": None, "refused": OVERSIZED}),
        "broker's answer",
        "broken",
        "0x95",
    ),
    "the broker hangs up on its topic": (
        of(outbox=WAITING | {"paused_for": 31.0, "refused": DENIED}),
        "broker's answer",
        "broken",
        "tried again in 31s",
    ),
    "the broker is away": (
        of(mqtt=AWAY, outbox=WAITING),
        "connection",
        "broken",
        "since 2026-11-22 08:30:00Z (30m ago)",
    ),
    "the broker refuses its history": (
        of(outbox=WAITING | {"topic": "house/boiler/history", "refused": DENIED}),
        "broker's answer",
        "broken",
        "the connection",
    ),
    "its rule keeps back what goes to its history": (
        suppressed(registered={"delivery": HISTORY}),
        "publish rule",
        "intended",
        "every reading goes to house/boiler/history too",
    ),
    "the broker is slow": (of(mqtt=FULL, outbox=WAITING), "outbox", "broken", "3 topics before it"),
    "its reading is on its way": (of(outbox=WAITING | {"messages": 1, "oldest": 0.02}), "none", "ok", ""),
    "its publish rule keeps it back": (
        suppressed(),
        "publish rule",
        "intended",
        "watts: 412.6 read, 412.5 published, a difference of 0.1",
    ),
    "its publish rule kept a reading back a moment ago": (
        suppressed(count=1, at=READ),
        "none",
        "ok",
        "OnChange(0.5) suppressed 1 reading",
    ),
    "its publish rule kept back what was read in the last two intervals": (
        suppressed(count=2, at=OLD, registered={"interval": 3600.0}),
        "none",
        "ok",
        "OnChange(0.5) suppressed 2 readings",
    ),
    "its publish rule keeps it back while the broker refuses it": (
        suppressed(outbox=WAITING | {"refused": DENIED}),
        "broker's answer",
        "broken",
        "closes the connection",
    ),
    "its reading expired": (expiring(OLD, stale=False), "expiry", "broken", "expires after 10m"),
    "its reading expired while its rule kept others back": (
        suppressed(
            registered={"delivery": {"qos": 1, "retain": True, "expiry": 600.0, "keep": "all", "history": None}},
            retained=KEPT._replace(state=None),
        ),
        "expiry",
        "broken",
        "suppressed 12 readings",
    ),
    "the broker forgot its reading": (kept(state=None), "retention", "broken", "retains nothing at house/boiler/state"),
    "the broker of MQTT 3.1.1 forgot its reading": (
        expiring(OLD, mqtt=MQTT | {"protocol": "3.1.1"}),
        "retention",
        "broken",
        "retains nothing",
    ),
    "a late will says that the app is offline": (
        kept(status={"state": "offline", "session": 6}),
        "availability",
        "broken",
        "of the session 6",
    ),
    "the broker says that it is offline": (
        kept(availability="offline"),
        "availability",
        "broken",
        "house/boiler/availability",
    ),
}


def test_there_are_fifty_situations():
    assert len(SITUATIONS) >= 50


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_first_broken_link_is_named_with_its_evidence(name):
    (document, retained), link, state, words = SITUATIONS[name]
    DOCUMENT.validate_python(document, strict=True)
    before = copy.deepcopy(document)

    verdict = why("boiler", document, retained)

    VERDICT.validate_python(verdict, strict=True)
    assert (verdict["link"], verdict["state"]) == (link, state), verdict
    assert words in "\n".join(verdict["evidence"]), verdict
    assert document == before


ADVICE = {
    "its port cannot be opened": "the group dialout",
    "nothing listens at its port": "check that the device is plugged in and switched on",
    "its circuit is open": "leadsman circuit boiler --prefix house --action close",
    "it is held": "leadsman release boiler --prefix house",
    "its handler has a bug": "leadsman trace boiler --prefix house --json",
    "its last poll failed": "check the power, the cable",
    "the broker is slow": "raise Receive Maximum",
    "the broker hangs up on its topic": "allow house/boiler/state",
    "the broker refuses its history": "allow house/boiler/history",
    "its reading expired while its rule kept others back": "make the expiry longer than the time between two",
    "the name is wrong": "write boilers",
    "its handler hangs": "find out where the handler blocks",
}


ORDERS = {
    "add",
    "allow",
    "ask",
    "check",
    "close",
    "compare",
    "correct",
    "find",
    "fix",
    "give",
    "let",
    "list",
    "look",
    "make",
}
ORDERS |= {"plug", "raise", "read", "release", "return", "see", "send", "set", "start", "stop", "use", "wait", "write"}


def test_the_table_has_each_link_in_the_order_of_the_chain_and_its_advice_is_an_order():
    verdicts = [why("boiler", *found) for found, *_ in SITUATIONS.values()]
    verdicts += [unanswered("boiler", "house", found, "no answer", AT) for found, *_ in UNANSWERED.values()]
    verdicts.append(unreachable("boiler", NotListening("refused", "pi:1884")))

    assert {row.link for row in CHAIN} == {each["link"] for each in verdicts} == set(get_args(Link))
    of_readings = [row.link for row in CHAIN[2:]]
    for earlier, later in itertools.pairwise(
        ["registration", "hold", "adapter", "call", "outbox", "retention", "none"]
    ):
        assert of_readings.index(earlier) < of_readings.index(later)
    for each in verdicts:
        assert each["advice"] == "nothing to do" or each["advice"].split()[0].strip(":,") in ORDERS, each


TOPIC = "house/boiler/state"
LOSSES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(get_args(FaultKind)),
        "error": st.just(f"something about {TOPIC}"),
        "since": st.just(START),
        "lost": st.integers(0, 1000),
        "lost_at": st.just(READ),
        "taken": st.integers(0, 9),
    }
)


@given(LOSSES, st.booleans(), st.sampled_from([None, KEPT, KEPT._replace(state=None)]), st.integers(0, 3))
def test_no_document_in_which_readings_were_lost_is_ok_and_what_is_to_be_done_fits(
    fault, connected, retained, failures
):
    of_broker = fault["kind"] in OF_THE_BROKER
    outbox = WAITING | {"topic": TOPIC, "messages": 0, "refused": fault["error"] if of_broker else None, "fault": fault}
    document = of(outbox=outbox, mqtt=MQTT | {"connected": connected}, consecutive_failures=failures)[0]

    verdict = why("boiler", document, retained)

    assert verdict["state"] != "ok"
    if verdict["link"] in ("broker's answer", "outbox"):
        assert verdict["advice"] == advise(fault["kind"], TOPIC)
        assert verdict["since"] == START
    else:
        assert failures or (verdict["link"] == "connection" and not connected and not of_broker)


@pytest.mark.parametrize("name", ADVICE)
def test_one_thing_to_do_is_said(name):
    (document, retained), *_ = SITUATIONS[name]

    assert ADVICE[name] in why("boiler", document, retained)["advice"]


@pytest.mark.parametrize(
    ("away", "cause", "advice"),
    [
        ({}, "the app has no connection to the broker: cannot connect: timed out", "start the broker, or"),
        ({"last_error": None}, "the app has no connection to the broker", "start the broker, or"),
        ({"not_listening": "pi:1884"}, "nothing listens at pi:1884", "start the broker, or"),
        ({"refusal": 0x88}, "the app has no connection to the broker: cannot connect: timed out", "start the broker"),
        (
            {"refusal": 0x87},
            "the broker refused the user name or the password (0x87)",
            "correct the user name and the password, or allow the user at the broker",
        ),
        (  # what others say about a password is no refusal of it
            {"last_error": "cannot connect; check MQTT__PASSWORD"},
            "the app has no connection to the broker: cannot connect; check MQTT__PASSWORD",
            "start the broker, or",
        ),
    ],
)
def test_the_cause_leads_where_the_app_has_no_connection(away, cause, advice):
    document, retained = of(mqtt=AWAY | {"last_error": "cannot connect: timed out"} | away, outbox=WAITING)

    verdict = why("boiler", document, retained)

    assert verdict["summary"] == cause
    assert verdict["advice"].startswith(advice)
    assert verdict["advice"].endswith("the readings wait in the outbox until then")


@pytest.mark.parametrize(
    ("polls", "cause", "evidence"),
    [
        (1, "no answer for 10s.", ": 1 failed poll"),
        (3, "no answer for 10s, 3 polls in a row.", "3 failed polls in a row"),
    ],
)
def test_one_failed_poll_is_not_in_a_row(polls, cause, evidence):
    failing = {"consecutive_failures": polls, "failing_since": "2026-11-22T08:59:50.000Z"}
    document, retained = of(**FAILING | failing | {"last_error": "DeviceTimeout: no answer"})

    verdict = why("boiler", document, retained)

    assert verdict["cause"].startswith(cause)
    assert [line for line in verdict["evidence"] if line.endswith(evidence)]


SINCE = {
    "its last poll failed": FAILING["failing_since"],
    "its circuit is open": FAILING["failing_since"],
    "the broker is away": AWAY["away_since"],
    "its handler hangs": OLD,
    "all is well": None,
}


@pytest.mark.parametrize("name", SINCE)
def test_it_is_said_since_when(name):
    (document, retained), *_ = SITUATIONS[name]

    assert why("boiler", document, retained)["since"] == SINCE[name]


def test_the_silent_devices_are_listed_and_broken_ones_come_first():
    document, _ = of()
    document["devices"] |= {
        "pump": suppressed()[0]["devices"]["boiler"],
        "tank": of(**FAILING)[0]["devices"]["boiler"],
    }
    document["jobs"]["sweep"] = job()[0]["jobs"]["boiler"]

    found = silent(document, {"boiler": KEPT, "pump": KEPT, "tank": KEPT})

    assert [(each["device"], each["link"]) for each in found] == [("tank", "call"), ("pump", "publish rule")]


def test_a_document_from_the_wire_is_enough():
    document, retained = of(**FAILING)

    assert why("boiler", json.loads(json.dumps(document)), retained) == why("boiler", document, retained)


def test_what_a_device_says_cannot_drive_the_terminal():
    document, _ = of(**FAILING | {"last_error": "OSError: \x1b[2J\nforged"})

    assert not [line for line in why("boiler", document)["evidence"] if not line.isprintable()]


AT = datetime(2026, 11, 22, 9, tzinfo=UTC)
GOODBYE = {"state": "offline", "session": 1_795_334_400_000, "at": OLD, "uptime": 9.0}
WILL = {"state": "offline", "session": 1_795_334_400_000}
ONLINE = {
    "state": "online",
    "at": "2026-11-22T08:59:50.000Z",
    "devices": {"boiler": {"status": "error", "last_error": TIMEOUT}},
}
UNANSWERED = {
    "no such app": (RetainedDocuments(), "app", "retains nothing at house/status", None),
    "it was stopped": (
        RetainedDocuments(GOODBYE),
        "app",
        "its last status was sent 2026-11-22 08:40:00Z (20m ago)",
        OLD,
    ),
    "it crashed": (RetainedDocuments(WILL, "{}", "online", READ), "app", "it had connected 2026-11-22", READ),
    "it hangs": (
        RetainedDocuments({"state": "online", "at": OLD}),
        "app",
        "its last heartbeat was sent 2026-11-22 08:40:00Z",
        OLD,
    ),
    "it may not be asked": (RetainedDocuments(ONLINE), "app", f"last error: {TIMEOUT}", ONLINE["at"]),
    "a node takes over": (
        RetainedDocuments(GOODBYE, lease={"owner": "pi-1", "until": "2026-11-22T09:00:10Z"}),
        "app",
        "the node pi-1 has the lease, until 2026-11-22 09:00:10Z (in 10s): it is active, or takes over",
        OLD,
    ),
    "no node takes over": (
        RetainedDocuments(WILL, lease={"owner": "pi-1", "until": OLD}),
        "app",
        "no node is active: the lease of pi-1 ended 2026-11-22 08:40:00Z (20m ago), and no standby node took over",
        None,
    ),
    "the broker has forgotten the lease": (
        RetainedDocuments(ONLINE | {"node": {"name": "pi-1"}}),
        "app",
        "no node is active: the lease of pi-1 is gone, and no standby node took over",
        ONLINE["at"],
    ),
    "the lease is none": (RetainedDocuments(WILL, lease={"owner": 1, "until": []}), "app", "published its will", None),
    "the time of its session is not a time": (
        RetainedDocuments({"state": "offline", "session": 10**30}),
        "app",
        "an unknown time",
        None,
    ),
}


@pytest.mark.parametrize(
    ("error", "cause", "evidence"),
    [
        (
            ConnectionRefused(0x87, "it says no"),
            "the broker refused the user name or the password (0x87)",
            ["it says no"],
        ),
        (NotListening("refused", "pi:1884"), "nothing listens at pi:1884", ["refused"]),
        (NotListening("no lease"), "the broker cannot be reached from here: no lease", []),
        (ConnectionRefused(0x89, "it is busy"), "the broker cannot be reached from here: it is busy", []),
        (ConnackMissing("no CONNACK"), "the broker cannot be reached from here: no CONNACK", []),
    ],
)
def test_the_cause_leads_where_there_is_no_connection_from_here(error, cause, evidence):
    verdict = unreachable("boiler", error)

    VERDICT.validate_python(verdict, strict=True)
    assert (verdict["link"], verdict["summary"], verdict["evidence"]) == ("connection", cause, evidence)
    assert ("password" in verdict["advice"]) == ("password" in cause or isinstance(error, ConnackMissing))


@pytest.mark.parametrize("name", UNANSWERED)
def test_an_app_that_does_not_answer_is_judged_by_what_the_broker_retains(name):
    retained, link, words, since = UNANSWERED[name]

    verdict = unanswered("boiler", "house", retained, "no answer at 'house/introspect'", AT)

    VERDICT.validate_python(verdict, strict=True)
    assert (verdict["link"], verdict["state"], verdict["since"]) == (link, "broken", since)
    assert words in "\n".join(verdict["evidence"])


@pytest.mark.parametrize(("device", "advice"), [("", "why DEVICE; or raise"), ("boiler", "raise the broker's limit")])
def test_an_app_whose_connection_breaks_as_it_answers_sends_too_much(device, advice):
    verdict = unanswered(device, "house", RetainedDocuments({"state": "offline"}), "no answer", AT, broke=True)

    VERDICT.validate_python(verdict, strict=True)
    assert "too large for the broker" in verdict["summary"]
    assert advice in verdict["advice"]


def test_the_first_line_about_a_device_that_takes_commands_is_why_the_last_one_failed():
    (document, retained), *_ = SITUATIONS["its last command failed"]

    expected = "its last command failed or was refused: KeyError: 'on' (house.py:33)"
    assert why("boiler", document, retained)["summary"] == expected


def test_an_app_that_sends_heartbeats_and_does_not_answer_is_told_from_one_that_hangs():
    fresh, late = ({"state": "online", "at": at} for at in ("2026-11-22T08:59:50.000Z", "2026-11-22T08:57:50.000Z"))

    advice = unanswered("", "house", RetainedDocuments(fresh), "", AT)["advice"]
    assert "access list" in advice
    assert "ask again in 10s: if the app has just died" in advice
    assert (
        f"no heartbeat for {round(OVERDUE + 10) // 60}m10s"
        in unanswered("", "house", RetainedDocuments(late), "", AT)["summary"]
    )


def test_a_device_that_its_app_does_not_know_is_explained_by_the_answer():
    verdict = refused("boilr", "house", "there is no device 'boilr'; did you mean 'boiler'?")

    assert (verdict["link"], verdict["evidence"]) == (
        "registration",
        ["there is no device 'boilr'; did you mean 'boiler'?"],
    )


def odd(value):
    """The value without each of its fields in turn, or with something else in it."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        if isinstance(value, dict):
            yield {name: each for name, each in value.items() if name != key}
        for other in (None, [], {}, "\x1b[2J", 7, 10**400, *odd(inner)):
            yield value | {key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1 :]]


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_document_of_another_version_gives_a_verdict_too(name):
    (document, retained), *_ = SITUATIONS[name]

    for each in odd(document):
        VERDICT.validate_python(why("boiler", each, retained), strict=True)
        silent(each, {})


def test_a_field_that_is_missing_is_named():
    document = of()[0]
    del document["devices"]["boiler"]["runtime"]["held"]

    verdict = why("boiler", document)

    assert (verdict["link"], verdict["state"]) == ("app", "broken")
    assert verdict["evidence"][0] == "the field 'held' is missing"
    assert verdict["evidence"][1].startswith("the version of leadsman there is 1, and here it is ")


TEXTS = st.one_of(st.just(READ), st.just(NEXT), st.text(max_size=20))
NAMES = st.sampled_from(["boiler", "pump", ""]) | st.text(max_size=5)
JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5)
PLAIN = {str: TEXTS, int: st.integers(), float: st.floats(), bool: st.booleans(), type(None): st.none(), Any: JSON}


def values_of(kind):
    """Any value of a type."""
    if is_typeddict(kind):
        fields = {name: values_of(each) for name, each in get_type_hints(kind).items()}
        required = {name: fields.pop(name) for name in kind.__required_keys__}
        return st.fixed_dictionaries(required, optional=fields)
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) is list:
        return st.lists(values_of(*arguments), max_size=2)
    if get_origin(kind) is dict:
        return st.dictionaries(NAMES, values_of(arguments[1]), max_size=2)
    return PLAIN[kind] if kind in PLAIN else st.one_of([values_of(each) for each in arguments])


@pytest.mark.slow
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(
    document=values_of(Introspection),
    status=st.none() | st.dictionaries(st.sampled_from(["state", "session", "at", "devices"]), JSON),
    others=st.none() | st.tuples(*[st.none() | TEXTS] * 3),
)
def test_any_document_gives_exactly_one_verdict(document, status, others):
    retained = None if others is None else RetainedDocuments(status, *others)
    names = [*document.get("devices", {}), *document.get("jobs", {}), "nobody"]

    for name in names:
        verdict = why(name, document, retained)

        VERDICT.validate_python(verdict, strict=True)
        assert verdict["link"] in get_args(Link)
        assert verdict["summary"]
        assert verdict["advice"]
    assert len(silent(document, {})) < len(names)
    VERDICT.validate_python(unanswered("x", "house", retained or RetainedDocuments(), "no answer", AT), strict=True)


@settings(max_examples=examples(200))
@given(
    state=st.sampled_from(list(SITUATIONS)),
    more=st.fixed_dictionaries(
        {},
        optional={
            "held": st.booleans(),
            "stale": st.booleans(),
            "busy": st.booleans(),
            "circuit": st.sampled_from(["closed", "open", "half_open", "isolated", "disabled"]),
            "next_poll_at": st.none() | TEXTS,
            "last_success_at": st.none() | TEXTS,
            "opened_at": st.none() | TEXTS,
            "failing_since": st.none() | TEXTS,
            "deferred_until": st.none() | TEXTS,
            "last_error": st.none() | TEXTS,
            "poll_under_way": st.none() | st.just(RETRYING),
            "outbox": st.just(WAITING),
            "published": st.fixed_dictionaries(
                {"published_at": st.none() | TEXTS, "suppressed": st.integers(0, 3)},
                optional={"compared": st.dictionaries(TEXTS, st.fixed_dictionaries({"published": JSON, "read": JSON}))},
            ),
        },
    ),
)
def test_situations_mixed_at_random_give_one_verdict_that_a_terminal_can_show(state, more):
    (document, retained), *_ = copy.deepcopy(SITUATIONS[state])
    for section in (*document.get("devices", {}).values(), *document.get("jobs", {}).values()):
        if "runtime" in section:
            section["runtime"] |= more

    verdict = why("boiler", document, retained)

    VERDICT.validate_python(verdict, strict=True)
    assert all(line.isprintable() for line in (*verdict["evidence"], verdict["summary"], verdict["advice"]))


KINDS = (None, "serial", "bluetooth", "calendars", "http", "i2c", "onewire")
ERRORS = (
    "DeviceTimeout: silent for 3s",
    "DeviceUnavailable: the server is down",
    "GarbledData: 0 is no reading",
    "PermanentError: no calendar 'Wast'",
    "HttpRefused: the server answers with status 404",
    "HttpUnavailable: the server answers with status 503",
    "PermissionError: [Errno 13] denied",
    "FileNotFoundError: [Errno 2] nothing there",
    "HTTPStatusError: Server error '500 Internal Server Error'",
    "ConnectError: All connection attempts failed",
)
OF_WIRES = ("cable", "plug", "baud", "wiring", "port", "dialout")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_advice_fits_the_kind_of_the_adapter(kind, error):
    port = {key: value for key, value in (PORT | {"kind": kind}).items() if value is not None or key == "error"}
    document, retained = of(port=port, **FAILING | {"last_error": error})

    advice = why("boiler", document, retained)["advice"]

    assert "traceback" not in advice
    if kind not in ("serial", "i2c", "onewire"):
        assert not [word for word in OF_WIRES if word in advice]
    if kind == "bluetooth":
        assert "baud" not in advice


HEARD = {"received": 6, "failed": 6, "dropped": 0, "waiting": 0, "received_at": READ}
HEARD |= {"last_error": "AM2301.Temperature: Input should be a valid number"}
NOT_HEARD = HEARD | {"received": 0, "failed": 0, "received_at": None, "last_error": None}
SILENT_SOURCES = {
    "unread": NEVER | {"status": "stale", "stale": True},
    "failing": FAILING | {"last_error": "DeviceTimeout: silent for 3s"},
    "stale": {"status": "stale", "stale": True},
}


@pytest.mark.parametrize("how", SILENT_SOURCES)
def test_what_a_source_without_an_adapter_is_fed_by_is_named_if_it_is_silent(how):
    fed = SOURCE | {"needs": []}

    def asked(heard):
        mqtt = MQTT | {"subscriptions": {"tele/bathrom/SENSOR": heard}}
        return why("boiler", *of(registered=fed, mqtt=mqtt, **SILENT_SOURCES[how]))

    verdict = asked(NOT_HEARD)
    assert verdict["summary"] == "nothing was received at tele/bathrom/SENSOR"
    assert verdict["advice"].startswith("check the topic tele/bathrom/SENSOR, and that its sender runs")
    assert "received nothing at tele/bathrom/SENSOR" in verdict["evidence"]
    verdict = asked(HEARD)
    assert verdict["summary"].startswith("the last message at tele/bathrom/SENSOR failed: AM2301.Temperature")
    assert verdict["advice"].endswith("with the type that its handler takes")
    assert any("Input should be a valid number" in line for line in verdict["evidence"])
    verdict = asked(HEARD | {"last_error": None})  # those that failed did so long ago
    assert "tele/bathrom" not in verdict["summary"] + verdict["advice"]


def test_each_fed_device_is_told_of_its_own_topic_only():
    fed = SOURCE | {"needs": []}
    mqtt = MQTT | {"subscriptions": {"a": NOT_HEARD | {"device": "attic"}, "b": NOT_HEARD | {"device": "boiler"}}}
    of_another = MQTT | {"subscriptions": {"a": NOT_HEARD | {"device": "attic"}}}
    silent = SILENT_SOURCES["stale"]

    assert why("boiler", *of(registered=fed, mqtt=mqtt, **silent))["summary"] == "nothing was received at b"
    assert "received" not in why("boiler", *of(registered=fed, mqtt=of_another, **silent))["summary"]


def test_a_device_with_an_adapter_is_not_fed_by_a_subscription():
    mqtt = MQTT | {"subscriptions": {"tele/bathrom/SENSOR": NOT_HEARD}}

    assert "tele/bathrom" not in str(why("boiler", *of(mqtt=mqtt, **FAILING)))


def test_an_app_of_another_version_that_names_no_kind_or_another_one_has_neutral_advice():
    document, retained = of(port=PORT | {"kind": "tin-can"}, **FAILING)

    assert "nothing comes from it" in why("boiler", document, retained)["advice"]


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: float() argument must be a string or a real number, not 'coroutine' (app.py:7 in boiler)",
        "ResultError: the handler returned a coroutine; write await before the call that makes it",
    ],
)
def test_a_forgotten_await_is_named(error):
    document, retained = of(**FAILING | {"last_error": error})

    assert why("boiler", document, retained)["advice"].startswith("write await before the call")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("KeyError: 'temperature' (house.py:19)", "correct the code at house.py:19, and restart the app"),
        ("KeyError: 'temperature' (house.py:19 in boiler)", "correct the code at house.py:19, and restart the app"),
        ("HTTPError: HTTP Error 503: Service Unavailable", "check the server"),
        ("HTTPStatusError: Server error '503 Service Unavailable' for url 'http://x/'", "check the server"),
        ("HTTPError: 429 Client Error: Too Many Requests for url: http://x/", "ask less often"),
        ("HTTPError: HTTP Error 404: Not Found", "read what the server answered"),
    ],
)
def test_the_advice_names_the_code_or_the_server_that_fails(error, advice):
    document, retained = of(**FAILING | {"last_error": error})

    assert why("boiler", document, retained)["advice"].startswith(advice)


@pytest.mark.parametrize(("due", "named"), [("2026-11-22T09:00:20.000Z", False), ("2026-11-22T09:59:00.000Z", True)])
def test_where_the_next_poll_is_far_away_it_says_how_to_poll_at_once(due, named):
    document, retained = of(**FAILING | {"next_poll_at": due})

    assert ("then poll it at once: leadsman poll boiler" in why("boiler", document, retained)["advice"]) == named


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("OnChange(0.5)", "add | Every('10m')"),
        ("OnChange(0.5) & Every('10s')", "add | Every('10m')"),
        ("OnChange(0.5) | Every('10s')", "wait: the rule has an Every(…)"),
        ("Every('5m')", "wait: the rule has an Every(…)"),
    ],
)
def test_a_rule_that_publishes_in_time_anyway_needs_no_other(rule, advice):
    assert why("boiler", *suppressed(rule))["advice"].startswith(advice)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        (FAILING, "no message from /dev/ttyUSB0 within 3s for 10m, 4 polls in a row. leadsman tries it every 1m."),
        (
            FAILING | {"last_error": "OSError: [Errno 113] No route to host"},
            "No route to host for 10m, 4 polls in a row.",
        ),
        (
            FAILING | {"last_error": "KeyError: 't' (plant.py:57)"},
            "KeyError: 't' (plant.py:57) for 10m, 4 polls in a row.",
        ),
        (
            FAILING | {"last_error": "DeviceUnavailable: the port does not exist; is the device plugged in?"},
            "the port does not exist; is the device plugged in? It has failed for 10m, 4 polls in a row.",
        ),
        (
            FAILING | {"last_error": "ResultError: it is a list; return a dict, or None", "failing_since": None},
            "ResultError: it is a list; return a dict, or None. It has failed 4 polls in a row. leadsman tries",
        ),
    ],
)
def test_the_cause_of_a_failure_is_one_line(changes, cause):
    verdict = why("boiler", *of(**changes))

    assert verdict["cause"].startswith(cause), verdict


def test_the_reason_of_a_pause_is_in_the_first_line():
    document, retained = of(status="deferred", deferred_until=NEXT, deferred_reason="HTTP 429")

    assert why("boiler", document, retained)["summary"] == "the device asked for a pause: HTTP 429"


VOLTS = {"fields": {"boiler": {"volts": {"unit": "V", "precision": 1}}}}


def test_what_the_broker_retains_has_units_and_the_decimals_that_are_declared():
    document, _ = of()

    found = why("boiler", document | VOLTS, KEPT._replace(state='{"volts":231.23849487304688}'))
    assert "the broker retains volts 231.2 V at house/boiler/state" in found["evidence"]
    found = why("boiler", document, KEPT._replace(state="[1, 2]"))
    assert "the broker retains [1, 2] at house/boiler/state" in found["evidence"]


def test_what_a_publish_rule_compares_has_units_and_no_more_than_six_digits():
    published = {"published_at": READ, "suppressed": 3}
    compared = {"volts": {"published": 231.23849487304688, "read": 231.23990000001}}
    document, retained = of(
        registered=BOILER | {"publish": "OnChange(0.5)"}, published=published | {"compared": compared}
    )

    evidence = why("boiler", document | VOLTS, retained)["evidence"]

    assert "volts: 231.24 V read, 231.238 V published, a difference of 0.00140513 V" in evidence


def test_a_device_that_works_has_no_cause():
    assert "cause" not in why("boiler", *of())


def test_the_cause_leads_while_a_poll_tries_again():
    document, retained = of(poll_under_way=RETRYING)

    verdict = why("boiler", document, retained)

    assert verdict["summary"] == f"a call failed, and its poll tries again: {TIMEOUT}"
