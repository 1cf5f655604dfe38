"""``leadsman watch``: the board of the devices of one app or of many, in a terminal, over MQTT."""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from leadsman.core.introspection.situation import span
from leadsman.core.monitoring.log_format import wants_colour
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.connection_state import CREDENTIALS, ConnectionState, misconfigured
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.side_connection import SideConnection, new_client_id
from leadsman.core.text import clean
from leadsman.errors import BrokerError, ConnectionRefused, LeadsmanError, SubscriptionRefused, TlsRefused
from leadsman.tools.cli.arguments import SETTINGS, TIMEOUT, Subcommand, UsageError, argument, switch
from leadsman.tools.cli.board import BoardView, Heading, plain, screen
from leadsman.tools.cli.commands.why import given
from leadsman.tools.cli.fleet import Fleet
from leadsman.tools.cli.remote import NO_SUBSCRIBERS, known_brokers
from leadsman.tools.cli.screen import Line, text_of
from leadsman.tools.cli.tables import columns, json_text
from leadsman.tools.cli.terminal import FRAME, running, show, size
from leadsman.tools.cli.times import zone

ASKING = 3.0
"""Seconds between two requests about the visible devices."""
RECONNECT = 0.5
"""Seconds between two attempts to connect, except after a refusal that only a person can fix."""
PLAIN_WIDTH = 100
"""Columns of a board that is no screen."""


def run(options: argparse.Namespace) -> None:
    """Show the board of the devices of one app or of many until ``q`` or Ctrl-C; or print it, if asked for or without a
    terminal."""
    for pattern in options.pattern:
        levels = pattern.split("/")
        if "#" in pattern or "" in levels or any("+" in level and level != "+" for level in levels):
            raise UsageError(f"{clean(pattern)!r} is not a prefix; write one such as house, home/+ or 'g*'")
    watcher = FleetWatcher(known_brokers(options), options.pattern, given(options).options)
    if options.once or options.json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        again = options.json and not options.once
        asyncio.run(watcher.print(options.timeout, as_json=options.json, again=again))
    else:
        asyncio.run(watcher.show())


class FleetWatcher(SideConnection):
    """Listens to the apps of a broker, and shows them. Of several brokers it takes the first that it can reach, and
    the next one after a failure.

    Args:
        brokers: where the apps are.
        patterns: prefixes of apps; see `Fleet`.
        options: what another command needs to reach the brokers; see `leadsman.tools.cli.commands.why.given`.
        notes: what else the board shows; called for each frame.
    """

    def __init__(
        self,
        brokers: Brokers,
        patterns: Collection[str],
        options: str = "",
        notes: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        super().__init__()
        self._brokers = brokers
        self._options = options
        self._notes = notes
        self._failures = 0
        self._fleet = Fleet(patterns)
        self._view = BoardView()
        self._transaction = new_client_id("leadsman-watch")
        self._away_since: float | None = time.time()
        self._next_attempt = 0.0
        self._reason = ""
        self._refused: str | None = None
        self._asked = 0
        self._requests: dict[int, str] = {}
        """The prefixes of the apps that were asked, by packet identifier."""
        self._deaf: set[str] = set()
        """Those of them without a subscriber, by the PUBACK."""
        self._found_more = False
        self._settled = asyncio.Event()

    async def show(self) -> None:
        """Draw the board until it is left."""
        await show(lambda: self._frame(time.time()), self._press, self._listen(), self._ask())

    async def print(self, timeout: float, *, as_json: bool, again: bool) -> None:
        """Print the board when its apps have answered, or after `timeout` seconds; then every `ASKING` seconds with
        `again`.

        Raises:
            BrokerError: the broker cannot be reached.
            LeadsmanError: without `again`, no app has a prefix that was given. The board was printed.
        """
        async with running(asyncio.Event(), self._listen()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._settled.wait()
            if self._away_since is not None:
                hint = "see its log, and check its URL (--mqtt, MQTT__URL)"
                raise BrokerError(self._reason or f"{self._broker} did not answer within {timeout:g} s; {hint}")
            await self._answers(timeout)
            self._print(as_json=as_json)
            if not again and (unmatched := self._fleet.unmatched):
                refused = f" ({self._refused})" if self._refused else ""
                names = clean(" or ".join(unmatched))
                advice = "leadsman watch --once shows all apps with a prefix of one level"
                if not set(unmatched[0]) & set("+*?"):
                    advice += f", and leadsman watch '{clean(unmatched[0])}/nodes/+' the nodes of a cluster"
                raise LeadsmanError(f"no app with the prefix {names} at {self._broker}{refused}; {advice}")
            while again:
                await asyncio.sleep(ASKING)
                await self._answers(ASKING)
                self._print(as_json=as_json)

    async def _answers(self, timeout: float) -> None:
        """Ask about all devices, and wait for the answers."""
        now = time.time()
        wanted = [(row.prefix, row.device) for row in self._fleet.rows(now)]
        answers, before = self._fleet.answers, self._fleet.answers.copy()
        asked = self._request(wanted)
        await self.until(
            lambda: all(answers.get(each, 0) > before.get(each, 0) for each in asked if each not in self._deaf), timeout
        )

    def _print(self, *, as_json: bool) -> None:
        now = time.time()
        apps, rows = self._fleet.apps(now), self._fleet.rows(now)
        if as_json:
            verdicts = {(row.prefix, row.device): self._fleet.verdict(row.prefix, row.device, now) for row in rows}
            document = {
                "broker": str(self._broker),
                "lost": self._trouble(now),
                "apps": [app._asdict() for app in apps],
                "devices": [row._asdict() | {"why": verdicts[row.prefix, row.device]} for row in rows],
            }
            print(json_text(document), flush=True)
            return
        colour = wants_colour(sys.stdout, os.environ)
        width = columns() or PLAIN_WIDTH
        lines = plain(apps, rows, width, self._options)
        print("\n".join(text_of(line, colour=colour) for line in lines), flush=True)

    # The connection

    async def _listen(self) -> None:
        """Keep a connection until cancelled."""
        session, wait = ConnectionState(), RECONNECT
        while True:
            try:
                await self._live()
                session, wait = ConnectionState(), RECONNECT
            except BrokerError as error:
                self._reason = clean(str(error))
                self._failures += 1
                if self._failures == len(self._brokers):  # who prints the board once waits for no broker that is away
                    self._settled.set()
                session, wait = after(error, session, random.random())
                if self._failures % len(self._brokers):
                    wait = RECONNECT
            self._away_since = self._away_since or time.time()
            self._next_attempt = time.time() + wait
            await asyncio.sleep(wait)

    @property
    def _broker(self) -> Broker:
        """The broker in use, or the next one."""
        return self._brokers.all[self._failures % len(self._brokers)]

    async def _live(self) -> None:
        """One connection, from CONNECT to its end: subscribe to what finds the apps, and to each app that is found."""
        self._refused, subscribed, asked = None, set[str](), set[str]()
        self._requests.clear()
        self._deaf.clear()
        async with self.at(self._broker):
            await self._subscribe(self._fleet.filters)
            self._away_since = None
            while self.broken is None:
                self._found_more = False
                new = [prefix for prefix in self._fleet.prefixes if prefix not in subscribed]
                for prefix in new:
                    await self._subscribe(Fleet.filters_of(prefix))
                    subscribed.add(prefix)
                exact = {each for prefix in subscribed for each in self._fleet.exact_topics(prefix)} - asked
                await self._subscribe(exact)
                asked |= exact
                if new or exact:
                    continue
                self._settled.set()
                await self.until(lambda: self._found_more, math.inf)
        self._reason = clean(str(self.broken))

    async def _subscribe(self, filters: Collection[str]) -> None:
        for each in filters:
            try:
                await self.connection.subscribe(each)
            except SubscriptionRefused as error:
                self._refused = clean(str(error))

    async def _ask(self) -> None:
        """Ask the apps about the devices that are visible."""
        while True:
            self._request(self._view.visible)
            await asyncio.sleep(ASKING if self._fleet.prefixes else FRAME)

    def _request(self, devices: Collection[tuple[str, str]]) -> list[str]:
        """Ask about devices. Returns the prefixes of the apps that were asked."""
        if self._away_since is not None:
            return []
        requests = self._fleet.requests(devices)
        for prefix, request in requests.items():
            self._asked += 1
            payload = request | {"transaction": f"{self._transaction}-{self._asked}"}
            with contextlib.suppress(BrokerError):  # `lost` follows
                packet = self.connection.publish(Message(f"{prefix}/introspect", json.dumps(payload).encode()))
                self._requests[packet] = prefix
        return list(requests)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self._found_more |= self._fleet.hear(message, time.time()) is not None
        self._news.set()

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        prefix = self._requests.pop(packet_id, "")
        if code == NO_SUBSCRIBERS:
            self._deaf.add(prefix)
            self._news.set()
        else:
            self._deaf.discard(prefix)
        if code >= 0x80:
            self._refused = f"the broker refused a request for introspection (0x{code:02x})"

    # The screen

    def _frame(self, now: float) -> list[Line]:
        """The lines of the screen."""
        view, rows = self._view, self._fleet.rows(now)
        clock = f"{datetime.fromtimestamp(now):%H:%M:%S} {zone()}"
        head = Heading(str(self._broker), clock, self._trouble(now), self._options, self._notes())
        why = self._fleet.verdict(*view.chosen, now) if view.detail and view.chosen is not None else None
        return screen(head, self._fleet.apps(now), rows, view, size(), why)

    def _trouble(self, now: float) -> str | None:
        """What is wrong with our own connection; None if nothing is."""
        if self._away_since is None:
            return self._refused
        left = self._next_attempt - now
        again = f"; next attempt in {span(left)}" if left > RECONNECT else ""
        away, reason = span(now - self._away_since), self._reason or "connecting"
        return f"no connection to the broker for {away}: {reason}{again}; the board shows old values"

    def _press(self, keys: Sequence[str]) -> bool:
        """Do what keys ask for. Returns whether to quit."""
        rows = self._fleet.rows(time.time())
        return any(self._view.press(key, rows) for key in keys)


def after(error: BrokerError, session: ConnectionState, draw: float) -> tuple[ConnectionState, float]:
    """What follows a connection that failed: a new state, and seconds until the next attempt. A wrong password or
    certificate is tried again as seldom as an app does it, since some brokers ban impatient clients. `draw` is uniform
    in [0, 1)."""
    if isinstance(error, TlsRefused) or (isinstance(error, ConnectionRefused) and error.code in CREDENTIALS):
        return misconfigured(session, draw)
    return ConnectionState(), RECONNECT


COMMAND = Subcommand(
    run,
    "Shows a board of the devices of all apps at the broker, or of the apps with the given prefixes: status, last "
    "value, next poll and error of each device. Keys: q quits, arrows choose a device, Enter explains its "
    "silence, s sorts, / filters, t hides devices without trouble. Without a terminal, it prints the board once.",
    (
        "leadsman watch",
        "leadsman watch house garden",
        "leadsman watch 'home/+' --mqtt mqtt://broker.lan",
        "leadsman watch --once --json | jq '.devices[] | select(.status != \"ok\")'",
    ),
    (
        argument(
            "pattern",
            "prefixes of apps, such as house, 'g*' or 'home/+' (default: all of one level)",
            nargs="*",
            metavar="PREFIX",
        ),
        *SETTINGS,
        TIMEOUT,
        switch("--once", "print the board once"),
        switch("--json", "print JSON: with --once one document, else one a line"),
    ),
)
