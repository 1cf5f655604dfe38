"""``leadsman cluster``: the nodes that share an app, what they own, draining one of them, and forgetting one. It asks
the broker, and needs no credentials of the engine."""

import argparse
import asyncio
import time

from leadsman.core.mqtt.broker import Brokers
from leadsman.core.mqtt.topics import check_prefix
from leadsman.core.text import clean, count_noun, escape
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import BrokerError, InvalidValue, LeadsmanError
from leadsman.extensions.nodes.document import Lacking
from leadsman.extensions.nodes.shown import SILENT, Shared, Shown, apps, filters_of
from leadsman.tools.cli.arguments import (
    APP,
    PREFIX,
    SETTINGS,
    TIMEOUT,
    WITHOUT_NODE,
    Subcommand,
    UsageError,
    argument,
    switch,
)
from leadsman.tools.cli.commands.clean import Removal, remove
from leadsman.tools.cli.remote import any_version, ask, named_app, retained, sender
from leadsman.tools.cli.tables import fill, json_text, print_text, table
from leadsman.tools.cli.times import local, zone

ACTIONS = ("status", "drain", "undrain", "forget")
_NAMED = 20
"""Devices without a node that a person reads; a program gets all that are known."""


def run(options: argparse.Namespace) -> int:
    """Show the nodes of an app, drain one, or forget one."""
    if options.action == "status":
        return _status(options)
    if options.item is None:
        raise UsageError(f"name the node, as status shows it: leadsman cluster {options.action} gateway-1")
    if options.json:
        raise UsageError("--json is for status")
    return _forget(options) if options.action == "forget" else _drain(options)


def _status(options: argparse.Namespace) -> int:
    if options.item is not None:
        if options.prefix is not None or options.target is not None:
            raise UsageError("write one prefix: leadsman cluster status house")
        try:
            options.prefix = check_prefix(options.item)
        except InvalidValue as error:
            raise UsageError(str(error)) from None
    found = _found(*named_app(options))
    if options.json:
        print(json_text({each.prefix: _document(each) for each in found}, indent=2))
    else:
        for number, each in enumerate(found):
            print("\n" * (number > 0) + _text(each))
    return WITHOUT_NODE if any(each.unowned_count for each in found) else 0


def _drain(options: argparse.Namespace) -> int:
    brokers, app, node = _node_of(options)
    draining = options.action == "drain"
    request = {"drain": draining, "by": sender()}
    answer = ask(brokers, f"{app}/nodes/{node.node}/drain", request, options.timeout)
    with any_version():
        left: list[Lacking] = answer["without_node"]
        if not draining:
            print_text(f"{node.node}: takes part again")
            return 0
        again = f"leadsman cluster undrain {node.node} ends that, and so does a restart"
        print_text(f"{node.node}: hands over its devices, and accepts none; {again}")
        for each in left:
            print_text(f"no other node can poll {_needing(each)}")
        return WITHOUT_NODE if left else 0


def _forget(options: argparse.Namespace) -> int:
    """Remove what a node that is gone for good left at the broker."""
    brokers, app, node = _node_of(options)
    if node.is_here:
        raise LeadsmanError(f"{clean(node.node)} runs: its state is {node.state}; stop it first")
    base, number = f"{app}/nodes/{node.node}", 0
    for broker in brokers:
        topics = tuple(retained(Brokers.of(broker), (f"{base}/#", f"{base}/status")))
        outcome = asyncio.run(remove(broker, Removal(topics), f"{base}/introspect/response"))
        for topic, why in outcome.stays.items():
            print_text(f"{clean(topic)} {why}")
        if complaints := outcome.complaints(broker):
            raise BrokerError("; ".join(complaints))
        number += len(topics)
    print_text(f"{node.node}: {count_noun(number, 'retained topic')} removed")
    return 0


def _node_of(options: argparse.Namespace) -> tuple[Brokers, str, Shown]:
    """The brokers, the prefix of the app that has the node of the command line, and the node.

    Raises:
        LeadsmanError: there is no such node.
        UsageError: there are several.
    """
    (brokers, prefix), node = named_app(options), str(options.item)
    apps = _found(brokers, prefix)
    having = [(brokers, each.prefix, shown) for each in apps for shown in each.nodes if shown.node == node]
    if not having:
        known = {shown.node for each in apps for shown in each.nodes}
        place = f"{apps[0].prefix!r} has" if len(apps) == 1 else f"the apps at {brokers} have"
        raise LeadsmanError(f"{place} no node {clean(node)!r}; {suggestion(node, known)}")
    if len(having) > 1:
        prefixes = " or --prefix ".join(each for _, each, _ in having)
        raise UsageError(f"{clean(node)!r} is a node of several apps; write --prefix {prefixes}")
    return having[0]


def _found(brokers: Brokers, prefix: str | None) -> list[Shared]:
    """The apps with nodes at a prefix, or at all prefixes of one level.

    Raises:
        BrokerError: the broker cannot be reached.
        LeadsmanError: there is none.
    """
    filters = filters_of(prefix or "+")
    seen = retained(brokers, [*filters, filters[-1]])
    found = apps(seen.values(), time.time())
    if not found:
        which = f"no node of {prefix!r}" if prefix else "no node of any app"
        advice = "an app has nodes while it runs with --standby or [cluster]; write --prefix for one of several levels"
        raise LeadsmanError(f"{which} has a document at {brokers}; {advice}")
    return [each for each in found if prefix in (None, each.prefix)]


def _text(shared: Shared) -> str:
    """One app for a person."""
    here = sum(each.is_here for each in shared.nodes)
    head = (
        f"{shared.prefix}: {here} of {count_noun(len(shared.nodes), 'node')}, {count_noun(shared.registered, 'device')}"
    )
    heads = ("node", "state", f"since ({zone()})", "owns", "labels", "hand-overs", "version")
    lines = [fill(escape(head)), "", table(heads, [_cells(each) for each in shared.nodes])]
    notes = [
        f"{each.node} does not reach the engine since {since}" for each in shared.nodes if (since := _cut_off(each))
    ]
    hidden = [each.node for each in shared.nodes if each.state == SILENT and each.document is None]
    if hidden:
        topics = f"{shared.prefix}/nodes/+"
        notes.append(f"{', '.join(hidden)}: online, but no document at {topics} can be read; may this user read there?")
    notes += [f"no node can poll {_needing(each)}" for each in shared.lacking]
    if shared.unowned_count:
        names = ", ".join(shared.unowned[:_NAMED])
        more = ", …" if shared.unowned_count > _NAMED and names else ""
        notes.append(
            f"no node owns {count_noun(shared.unowned_count, 'device')}" + (f": {names}{more}" if names else "")
        )
    return "\n".join(lines + [""] * bool(notes) + [fill(escape(each), further="  ") for each in notes])


def _cells(shown: Shown) -> tuple[str, ...]:
    document, state = shown.document, shown.state.replace("_", " ")
    if document is None:
        return shown.node, state, "", "", "", "", ""
    owns = count_noun(document["device_count"], "device")
    if "shard_count" in document:
        owns += f" in {count_noun(document['shard_count'], 'shard')}"
    elif "token" in document:
        owns += f", token {document['token']}"
    moves = document["handovers"]
    if document["kind"] == "standby":
        told = count_noun(moves["takeovers"], "takeover")
    else:
        told = f"{moves['gained']} gained, {moves['lost']} lost, {moves['released']} released"
    labels = ", ".join(document["labels"])
    return shown.node, state, local(document["since"]), owns, labels, told, document["version"]


def _cut_off(shown: Shown) -> str:
    """Since when a node does not reach the engine; empty if it does."""
    engine = {} if shown.document is None else shown.document.get("engine", {})
    if not shown.is_here or engine.get("reachable", True):
        return ""
    return local(engine.get("unreachable_since")) or "an unknown time"


def _needing(lacking: Lacking) -> str:
    """Devices by what they need."""
    devices, needs = count_noun(lacking["devices"], "device"), lacking["needs"]
    return f"{devices} that {'needs' if lacking['devices'] == 1 else 'need'} {', '.join(needs)}" if needs else devices


def _document(shared: Shared) -> dict[str, object]:
    nodes = [{**(each.document or {}), "node": each.node, "state": each.state} for each in shared.nodes]
    return {
        "nodes": nodes,
        "devices": shared.registered,
        "without_node": {
            "devices": list(shared.unowned),
            "count": shared.unowned_count,
            "labels": list(shared.lacking),
        },
    }


COMMAND = Subcommand(
    run,
    "Shows which nodes share an app, with --standby or [cluster], and what each node owns. It also "
    "drains a node before its machine is taken down. It asks the broker, which keeps a document of "
    "each node.\n"
    "status:  the nodes, the devices that no node owns, and the labels that no node has. Without "
    "PREFIX it shows all apps.\n"
    "drain:   the node hands everything over to the others at once and accepts nothing, until undrain "
    "or a restart.\n"
    "undrain: the node takes part again.\n"
    "forget:  remove the document, status and registry of a node whose machine is gone for good.",
    (
        "leadsman cluster status",
        "leadsman cluster status house --mqtt mqtt://broker.lan",
        "leadsman cluster drain gateway-1 --prefix house",
        "leadsman cluster undrain gateway-1",
        "leadsman cluster status house --json | jq '.house.without_node.devices'",
    ),
    (
        argument("action", ", ".join(ACTIONS), choices=ACTIONS, metavar="ACTION"),
        argument("item", "the prefix for status, else the node", nargs="?", metavar="PREFIX|NODE"),
        APP,
        *SETTINGS,
        PREFIX._replace(help="the topic prefix of the app (default: all of one level)"),
        TIMEOUT,
        switch("--json", "print JSON"),
    ),
    "Exits with 3 if devices have no node, or will have none as long as the node drains; with 1 "
    "if there is no node, or none of that name, or no answer; else with 0.",
)
