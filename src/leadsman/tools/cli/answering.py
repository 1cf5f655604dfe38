"""Which process of an app is asked about devices. In a cluster each node answers for the devices that it has."""

import argparse
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from leadsman.errors import BrokerError, LeadsmanError
from leadsman.mqtt.broker import Brokers
from leadsman.mqtt.topics import Topics
from leadsman.text import clean
from leadsman.tools.cli.arguments import UsageError
from leadsman.tools.cli.nodes import Shared, apps
from leadsman.tools.cli.remote import ask, retained, running_app

if TYPE_CHECKING:
    from leadsman.introspection.document import Introspection, Request


def processes(brokers: Brokers, prefix: str, devices: Sequence[str] = ()) -> list[Topics]:
    """The topics of each process that answers about an app: of one that has all `devices`, or of all nodes if none is
    given. Outside a cluster it is one process, whether it runs or not.

    Raises:
        LeadsmanError: the app is a cluster, and none of its nodes has these devices.
    """
    filters = (f"{prefix}/nodes/+", f"{prefix}/nodes/+/status", f"{prefix}/status")
    try:
        seen = retained(brokers, filters)
    except BrokerError:
        seen = {}  # the request that follows says what is wrong, or needs no right to these topics
    nodes = answering(apps(seen.values(), time.time()), prefix, devices)
    return [Topics(prefix, None, node) for node in nodes] or [Topics(prefix)]


def process(brokers: Brokers, prefix: str, devices: Sequence[str] = ()) -> Topics:
    """The topics of the process that answers about these devices.

    Raises:
        LeadsmanError: see `processes`.
        UsageError: no device is given, and several nodes answer.
    """
    found = processes(brokers, prefix, devices)
    if len(found) > 1:
        places = " or --prefix ".join(f"{prefix}/nodes/{each.node}" for each in found)
        raise UsageError(
            f"{prefix!r} is a cluster, and each node answers for its own devices; write --prefix {places}, or name a "
            "device"
        )
    return found[0]


def ask_about_devices(options: argparse.Namespace, request: "Request") -> "Callable[..., Introspection]":
    """A function that sends a request to the process of a running app that has the devices of the command line, about
    these devices, and returns its answer; see `leadsman.tools.cli.remote.ask`. Raises as `process`."""
    brokers, prefix = running_app(options)
    topic = process(brokers, prefix, options.device or ()).introspect
    if options.device:
        request["devices"] = options.device
    return functools.partial(ask, brokers, topic, request, options.timeout)


def answering(found: Iterable[Shared], prefix: str, devices: Sequence[str]) -> list[str]:
    """The nodes of a cluster that are asked, by name; none if the app is no cluster, or no node of it runs.

    Args:
        found: what the nodes of some apps say.
        prefix: of the app.
        devices: one node has all of these; none: all nodes.

    Raises:
        LeadsmanError: no node has these devices.
    """
    nodes = [node for each in found if each.prefix == prefix for node in each.nodes if node.is_here]
    documents = [each.document for each in nodes if each.document is not None]
    owned = {each["node"]: each["devices"] for each in documents if each["kind"] == "cluster"}
    if not owned or not devices:
        return list(owned)
    having = [node for node, names in owned.items() if set(devices) <= set(names)]
    if not having:
        names = ", ".join(repr(clean(each)) for each in devices)
        raise LeadsmanError(
            f"no node of {prefix!r} has {names} now; leadsman cluster status {prefix} shows which node has which device"
        )
    return having[:1]
