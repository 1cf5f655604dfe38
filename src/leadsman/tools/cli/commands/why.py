"""``leadsman why``: asks a running app and its broker why a device is silent."""

import argparse
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.core.introspection.requests import SECTIONS
from leadsman.core.introspection.situation import RetainedDocuments
from leadsman.core.introspection.why import UNREADABLE, refused, silent, unanswered, unreachable, why
from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.broker import Brokers
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.topics import Topics
from leadsman.core.text import clean, count_noun, escape, split_urls
from leadsman.errors import BrokerError, SubscriptionRefused
from leadsman.tools.cli.arguments import (
    APP,
    PREFIX,
    SETTINGS,
    SOME_SILENT,
    TIMEOUT,
    Subcommand,
    named,
    switch,
)
from leadsman.tools.cli.commands import printers
from leadsman.tools.cli.remote import (
    Asked,
    any_version,
    ask_with_retained,
    named_app,
    one_device,
    prefix_of,
    processes,
    retained,
    section,
)
from leadsman.tools.cli.screen import BOLD, CYAN, GREEN, RED
from leadsman.tools.cli.tables import columns, fill, json_text, paint, print_text, table
from leadsman.tools.cli.times import local, localise, zone

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Introspection, Verdict

MAX_ASKED_DEVICES = 1000
"""Devices whose topics are asked for one by one: an answer may list more than any app has."""
_COLOURS = {"ok": GREEN, "intended": CYAN, "broken": RED}
"""Those of the states of a verdict."""
LEFT_OUT = "; passwords and other secrets are left out of the command: add them as you gave them here"


def run(options: argparse.Namespace) -> int:
    """Explain why a device is silent, or list the devices that are."""
    name = one_device(options)
    brokers, prefix = named_app(options)
    more = given(options)
    answers = verdicts(brokers, prefix, name, options.timeout, more.options)
    for each in answers.verdicts if more.left_out else ():
        each["advice"] += LEFT_OUT if "leadsman " in each["advice"] else ""
    show(answers, name, as_json=options.json)
    return SOME_SILENT if any(each["state"] == "broken" for each in answers.verdicts) else 0


class Given(NamedTuple):
    """What a person gave that another command needs, too, to reach the same app."""

    options: str
    """Text for a command line: empty, or with a space before it. Without credentials."""
    left_out: bool
    """Whether there were credentials."""


def given(options: argparse.Namespace) -> Given:
    """The given options that locate the app. An app with a command line of its own is not given."""
    target = getattr(options, "target", None)
    words = ["--app", target] if isinstance(target, str) else []
    words += [] if options.config is None else ["--config", str(options.config)]
    public = [each for each in options.set if clean(each) == each and "://" not in each]
    words += [word for each in public for word in ("--set", each)]
    urls = [] if options.mqtt is None else split_urls(options.mqtt)
    bare = [re.sub(r"(?<=://).*@", "", each) for each in urls]
    words += ["--mqtt", ",".join(bare)] if bare else []
    text = "".join(f" {shlex.quote(word)}" for word in words)
    return Given(text, len(public) < len(options.set) or bare != urls)


class Silences(NamedTuple):
    """What `verdicts` found."""

    verdicts: "list[Verdict]"
    ended: Sequence[str] = ()
    """About all devices: lines about silences that are over."""


def verdicts(brokers: Brokers, prefix: str | None, device: str | None, timeout: float, options: str = "") -> "Silences":
    """The verdict about one device, or those about all devices that are silent. If the app does not answer, or the
    broker cannot be reached, there is one verdict, from what the broker retains. In a cluster the node is asked that
    has the device, or all nodes.

    Args:
        brokers: where the app is.
        prefix: its topic prefix; None finds it with `prefix_of`.
        device: the device; None for all.
        timeout: seconds to wait for an answer.
        options: see `leadsman.core.introspection.why.why`.

    Raises:
        BrokerError: the app refuses to answer, and not because it does not have the device; or the broker refuses a
            subscription.
        LeadsmanError: no node of the cluster has the device, or the app answers in a form that this version cannot
            read.
        UsageError: there is no such app, or there are several.
    """
    try:
        prefix = prefix_of(brokers, device) if prefix is None else prefix
        found = processes(brokers, prefix, () if device is None else (device,))
    except SubscriptionRefused:
        raise
    except BrokerError as error:
        return Silences([unreachable(device or "", error)])
    answers = [_verdicts_of(brokers, topics, device, timeout, options) for topics in found]
    all_verdicts = [verdict for each in answers for verdict in each.verdicts]
    return Silences(all_verdicts, [line for each in answers for line in each.ended])


def _verdicts_of(brokers: Brokers, topics: Topics, device: str | None, timeout: float, options: str) -> "Silences":
    """As `verdicts`, of one process."""
    request: dict[str, object] = {"sections": [*SECTIONS, "fields"], "devices": [device]}
    if device is None and (gaps := _gaps()) is not None:
        request = {"sections": [*SECTIONS, "fields", "ledger"], "since": time.time() - gaps.LATELY}
    name, of = device or "", device or "+"
    root = Topics(topics.prefix, of, topics.node)  # which of both it has is known with the answer
    places = [each for where in (topics, root) for each in (where.state(of), where.availability(of))]
    try:
        found = ask_with_retained(brokers, topics.introspect, request, timeout, [*places, topics.lease], topics.status)
    except SubscriptionRefused:
        raise
    except BrokerError as error:
        return Silences([unreachable(name, error)])
    if found.data is not None:
        with any_version():
            return _judged(brokers, topics, device, found, options)
    reason = found.error or ""
    if not found.refused:
        kept, now = _retained(topics, name, found.seen), datetime.now(UTC)
        return Silences([unanswered(name, topics.prefix, kept, reason, now, broke=found.broke)])
    if device is None or not reason.startswith("there is no device"):
        raise BrokerError(reason)
    return Silences([refused(name, topics.prefix, reason, options)])


def _judged(brokers: Brokers, topics: Topics, device: str | None, found: Asked, options: str) -> "Silences":
    """The verdicts of an answer."""
    document = cast("Introspection", found.data)
    topics = Topics(topics.prefix, document.get("app", {}).get("root"), topics.node)
    if device is not None:
        return Silences([why(device, document, _retained(topics, device, found.seen), options)])
    names = tuple(document.get("devices", {}))
    seen = _seen_exactly(brokers, topics, names, found.seen)
    documents = {name: _retained(topics, name, seen) for name in names}
    return Silences(silent(document, documents, options), _ended(document))


def _seen_exactly(
    brokers: Brokers, topics: Topics, names: Sequence[str], seen: Mapping[str, Received]
) -> Mapping[str, Received]:
    """What the broker retains of devices, those included of which it sent nothing for a filter with a wildcard. If it
    sent something of one device for that filter, it sent all that it has."""
    wanted = [topic for name in names[:MAX_ASKED_DEVICES] for topic in (topics.state(name), topics.availability(name))]
    if not wanted or any(topic in seen for topic in wanted):
        return seen
    try:
        return {**retained(brokers, [*wanted, f"{topics.introspect}/response"]), **seen}
    except BrokerError:
        return seen  # these may not be read, either


def _gaps() -> ModuleType | None:
    """``leadsman gaps``; None if there is no such command."""
    return printers(("ledger",)).get("ledger")


def _ended(document: "Introspection") -> list[str]:
    """Lines about silences that are over; none if the app has another version, and other ledgers."""
    if (gaps := _gaps()) is None:
        return []
    try:
        return [*gaps.ended_lately(section(document, "ledger"))]
    except UNREADABLE:
        return []


def show(answers: Silences, device: str | None, *, as_json: bool) -> None:
    """Print verdicts, for a program or for a person. A person also reads which silences are over."""
    found = answers.verdicts
    if as_json:
        print(json_text(found[0] if device is not None else found, indent=2))
    elif device is None and len(found) > 1:
        colours = {clean(each["device"]): _COLOURS[each["state"]] for each in found}
        print(table(("device", "link", f"since ({zone()})", "why"), [_row(each) for each in found], colours))
        print()
        print_text(f"{_summary(found)}; leadsman why DEVICE has the evidence, and what to do.")
    elif not found:
        print("No device is silent.")
    for each in found if not as_json and (device is not None or len(found) == 1) else ():
        print("\n".join(lines(each)))
    if answers.ended and not as_json:
        print()
        for line in (*answers.ended, f"leadsman gaps has more. Times are local: {zone()}."):
            print_text(line)


def lines(verdict: "Verdict") -> list[str]:
    """A verdict for a person: what it is, the evidence, and what to do."""
    name = f"{clean(verdict['device'])}: " if verdict["device"] else ""
    since = f", since {local(verdict['since'])}" if verdict["since"] and verdict["state"] != "ok" else ""
    summary, cause = f"{verdict['summary']}{since}", verdict.get("cause")
    evidence = [localise(each) for each in verdict["evidence"]]
    if since or evidence != verdict["evidence"]:
        evidence.append(f"times are local: {zone()}")
    if cause is not None:  # a person reads this line, if no other one
        evidence = [summary, *evidence]
    first = fill(escape(f"{name}{cause or summary}"), further="  ").split("\n")
    found = [paint(line, _COLOURS[verdict["state"]]) for line in first]
    found += [fill(escape(each), "  ", "    ") for each in evidence]
    return found if verdict["state"] == "ok" else [*found, *_to_do(escape(verdict["advice"]))]


def _to_do(advice: str) -> list[str]:
    """What to do. On a terminal, a command line at its end is a line of its own that is never broken, since a person
    pastes it."""
    text, before, command = advice.rpartition(": leadsman ")
    if columns() is None or not before:
        text, command = advice, ""
    lines = fill(f"To do: {text}{':' if command else ''}", "", "  ").split("\n")
    return [paint(line, BOLD) for line in [*lines, *([f"  leadsman {command}"] if command else [])]]


def _summary(found: "Sequence[Verdict]") -> str:
    broken = sum(each["state"] == "broken" for each in found)
    parts = [f"{count_noun(broken, 'device')} silent that should not be"] if broken else []
    parts += [f"{count_noun(len(found) - broken, 'device')} silent that may be"] if broken < len(found) else []
    return ", ".join(parts)


def _row(verdict: "Verdict") -> tuple[str, ...]:
    return clean(verdict["device"]), verdict["link"], local(verdict["since"]), verdict.get("cause", verdict["summary"])


def _retained(topics: Topics, device: str, seen: Mapping[str, Received]) -> RetainedDocuments:
    """What the broker retains of a device."""
    state, availability = seen.get(topics.state(device)), seen.get(topics.availability(device))
    status, lease = seen.get(topics.status), seen.get(topics.lease)
    return RetainedDocuments(
        None if status is None else object_in(status.payload),
        None if state is None else state.payload.decode(errors="replace"),
        None if availability is None else availability.payload.decode(errors="replace"),
        None if state is None else state.taken_at,
        None if lease is None else object_in(lease.payload),
    )


COMMAND = Subcommand(
    run,
    "Walks the chain from the registration of a device to what the broker retains, and names the "
    "first link that does not pass a reading on, with the evidence and one thing to do. Without "
    "DEVICE, lists the silent devices. Without MODULE:APP and --prefix, asks the only app at the "
    "broker, or the only one there that has the device.",
    (
        "leadsman why boiler",
        "leadsman why boiler --prefix house",
        "leadsman why house:app boiler",
    ),
    (
        named("[MODULE:APP] [DEVICE]", "the app, such as house:app, and the device (default: all that are silent)"),
        APP,
        *SETTINGS,
        PREFIX,
        TIMEOUT,
        switch("--json", "print the verdict as JSON; without DEVICE, a list"),
    ),
    "Exits with 3 if a device is silent that should not be, or if the broker cannot be reached; with "
    "1 if the app or the broker refuses to answer, else with 0.",
)
