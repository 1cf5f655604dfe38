"""The world outside an app: its connection to the broker, and its environment variables. A dry run gets harmless
ones."""

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt import client
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.connection import ConnAck, Connect, Connection, ConnectionListener, Connector
from leadsman.core.mqtt.link import Access
from leadsman.core.text import log_fields

if TYPE_CHECKING:
    from leadsman.core.wiring.plan import Plan

Serve = Callable[["Plan", Access, asyncio.Event], Coroutine[object, object, int]]
"""Runs an app; see `leadsman.core.wiring.run.serve`."""
logger = logging.getLogger("leadsman")


def load_modules(plan: "Plan") -> None:
    """Import what a run needs: what joins the app, and the client for the primary broker."""
    from leadsman.core.wiring import shipped
    from leadsman.core.wiring.build import core_parts

    server(plan)
    core_parts(plan)
    shipped.load_modules(plan)
    plan.sections.check_installed()
    client.choose(plan.brokers.primary, plan.brokers.primary.version)
    # Python loads it with the first name of a host, and remembers for ever that it failed for want of a descriptor.
    import_module("encodings.idna")


def server(plan: "Plan") -> Serve:
    """The function that runs the app: on this node alone, in turns with others, or as a node of a cluster."""
    from leadsman.core.wiring import run, shipped

    found: Serve = shipped.server(plan.sections) or run.serve
    return found


def access(brokers: Brokers, given: Connector | None, *, dry_run: bool) -> Access:
    """How the link reaches the brokers; see `connector`. One that is given stands for all of them."""
    made: dict[Broker, Connector] = {}

    def connector_of(broker: Broker) -> Connector:
        if broker not in made:
            made[broker] = connector(broker, given, dry_run=dry_run)
        return made[broker]

    return Access(brokers, connector_of) if given is None else Access(brokers, connector_of, _stands)


async def _stands(broker: Broker) -> None:
    """The connector that is given stands for all brokers, so the primary can be reached as the others can."""


def connector(broker: Broker, given: Connector | None, *, dry_run: bool) -> Connector:
    """The function that makes the connections: `given`, or the client for real brokers. In a dry run nothing is
    retained."""
    connect = _client(broker) if given is None else given
    return client.without_retained(connect) if dry_run else connect


def _client(broker: Broker) -> Connector:
    if broker.tls.insecure:
        logger.warning(
            "The certificate of %s is not verified, so anyone on the network path can read and "
            "change messages. Give its authority as ca=, and leave out insecure=true.",
            broker,
            extra=log_fields("certificate not verified"),
        )
    return _watch(functools.partial(client.connect, broker, system_clock(asyncio.get_running_loop())), broker)


def _watch(connect: Connector, broker: Broker) -> Connector:
    """As `connect`. What the broker does without is logged, once for each answer that it gives."""
    logged: set[str] = set()

    async def connected(packet: Connect, listener: ConnectionListener) -> Connection:
        connection = await connect(packet, listener)
        lacks = _lacking(connection.connack)
        if lacks and lacks not in logged:
            logged.add(lacks)
            logger.warning("%s %s", broker, lacks, extra=log_fields("broker limits"))
        return connection

    return connected


def _lacking(connack: ConnAck) -> str:
    """The features that a reading has to do without at this broker, or empty text."""
    lacks = []
    if not connack.retain_available:
        lacks.append("keeps no messages, so a new subscriber sees a device only with its next reading")
    if connack.maximum_qos == 0:
        lacks.append("acknowledges no messages, so some may be lost")
    return ", and ".join(lacks)


@contextmanager
def variables(name: str, given: Mapping[str, str] | None, *, dry_run: bool) -> Iterator[Mapping[str, str]]:
    """The environment variables: `given`, or those of the process. A dry run gets a state directory of its own, which
    is removed at the end of the block."""
    if given is not None or not dry_run:
        yield os.environ if given is None else given
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix=f"{name}-dry-run-", ignore_cleanup_errors=True) as directory:
        yield {"STATE_DIRECTORY": directory}
