"""Why a device is silent: walks the chain from its registration to what the broker retains, and names the first link
that does not pass a reading on. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING

from leadsman._version import __version__
from leadsman.introspection import delivery_links, reading_links
from leadsman.introspection.situation import Retained, Situation, span
from leadsman.mqtt.answers import Json
from leadsman.text import clean

if TYPE_CHECKING:
    from leadsman.introspection.document import Introspection
    from leadsman.introspection.explanations import Verdict

CHAIN = (*reading_links.LINKS, *delivery_links.LINKS)
OVERDUE = 120.0
"""Seconds without a heartbeat after which an app that says that it is online probably is not: four of its
default intervals."""


def why(device: str, document: "Introspection", retained: Retained | None = None, options: str = "") -> "Verdict":
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


def silent(document: "Introspection", retained: Mapping[str, Retained], options: str = "") -> "list[Verdict]":
    """The verdicts about the devices and side jobs that are silent; those of broken links come first. For `options`,
    see `why`."""
    sections = document.get("devices"), document.get("jobs")
    names = [name for section in sections if isinstance(section, dict) for name in section]
    verdicts = [why(name, document, retained.get(name), options) for name in names]
    return sorted((each for each in verdicts if each["state"] != "ok"), key=lambda each: each["state"] != "broken")


def refused(device: str, prefix: str, error: str, options: str = "") -> "Verdict":
    """The verdict about a device that its app does not know; `error` is what the app answered. For `options`, see
    `why`."""
    asked = Situation(device, {}, None)
    advice = f"list the devices: leadsman inspect{options} --prefix {quote(prefix)}"
    return asked.verdict("registration", "the app has no device of this name", [clean(error)], advice)


def locked_out(device: str, prefix: str, error: str, now: datetime) -> "Verdict":
    """The verdict about a device, where the broker refuses the one who asks.

    Args:
        device: its name, or empty text for all devices of the app.
        prefix: the topic prefix of the app.
        error: what the broker said.
        now: the time of the reader, with its zone.
    """
    asked = Situation(device, {}, None)
    asked.prefix, asked.now = prefix, now
    advice = (
        "correct the user name and the password: --mqtt, or the settings of the app; or allow the user at the broker"
    )
    return asked.verdict("connection", "the broker refuses the connection from here", [clean(error)], advice)


def unanswered(device: str, prefix: str, retained: Retained | None, error: str, now: datetime) -> "Verdict":
    """The verdict about a device whose app does not answer, from what the broker retains of it.

    Args:
        device: its name, or empty text for all devices of the app.
        prefix: the topic prefix of the app.
        retained: what the broker retains; None if the broker cannot be reached.
        error: why there is no answer.
        now: the time of the reader, with its zone.
    """
    asked = Situation(device, {}, retained)
    asked.prefix, asked.now = prefix, now
    lines = [clean(error)]
    if retained is None:
        advice = "start the broker, or correct its address or the password: --mqtt, or the settings of the app"
        return asked.verdict("connection", "the broker cannot be reached from here", lines, advice)
    if retained.state is not None:
        at = f", taken {asked.at(retained.taken_at)}" if retained.taken_at else ""
        lines.append(f"the broker still retains {clean(retained.state[:200])}{at}")
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
    advice = f"allow {asked.prefix}/introspect and {asked.prefix}/introspect/response in the broker's access list"
    return asked.verdict("app", "its app says that it is online, and does not answer", lines, advice, at)


def _last_known(asked: Situation, status: Mapping[str, Json]) -> list[str]:
    """What the last heartbeat says of the device."""
    devices = status.get("devices")
    report = devices.get(asked.name) if isinstance(devices, dict) else None
    if not isinstance(report, dict):
        return []
    error = report.get("last_error")
    return [f"its status was {clean(str(report.get('status')))}"] + (
        [f"last error: {clean(str(error))}"] if error else []
    )


def _nodes(asked: Situation, status: Mapping[str, Json]) -> list[str]:
    """What the broker knows of the nodes, if several share the app. A lease of a node that is gone ends by itself, at a
    time of that node's clock; with MQTT 5 the broker then forgets it."""
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
