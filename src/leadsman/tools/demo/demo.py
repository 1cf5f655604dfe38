"""The demo itself: the app and its page, the board of ``leadsman watch`` or lines, and what is broken on purpose."""

import asyncio
import contextlib
import http.client
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from leadsman.core.loop.durations import human
from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.side_connection import SideConnection
from leadsman.core.settings.sources import Where
from leadsman.core.text import count_noun
from leadsman.core.wiring.process import run as run_process
from leadsman.errors import BrokerError, LeadsmanError
from leadsman.testing.mosquitto import free_port
from leadsman.tools.cli.commands.watch import FleetWatcher
from leadsman.tools.cli.fleet import describe_reading
from leadsman.tools.cli.own_broker import Viewer, demo_broker, watching
from leadsman.tools.cli.tables import fill
from leadsman.tools.cli.terminal import stderr_to
from leadsman.tools.demo.app import PREFIX, SETTINGS, demo_app
from leadsman.tools.demo.faults import Faults, Meter

ASK_EVERY = 0.5
"""Seconds between two questions."""
DELIVERY = 5.0
"""Seconds that the app has at the end to deliver what waits."""
LOG_LINES = 2
"""Of the log, on the board."""
_TIMEOUT = 2.0
_REMEMBERED = 1000
"""Readings whose times are kept, so that one that arrives twice counts once."""


class Account:
    """What the broker has received of the app, and what the app says of its readings, also while the broker is away."""

    def __init__(self) -> None:
        self._arrived: dict[str, int] = {}
        self._newest: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
        self._app: dict[str, Json] = {"mqtt": {}, "devices": {}}

    def hear(self, message: Received) -> str | None:
        """Take a message of the broker. Returns it as a line, where it is worth one."""
        device, _, kind = message.topic.removeprefix(f"{PREFIX}/").rpartition("/")
        match device, kind:
            case "", "status":
                status = json.loads(message.payload)
                devices = ", ".join(f"{name} {each['status']}" for name, each in status.get("devices", {}).items())
                return f"heartbeat  {status['state']}, {status['health']}: {devices}"
            case _, "state" if not message.retain:
                reading = device, message.taken_at or ""  # MQTT 3.1.1 does not carry when it was taken
                if not message.taken_at or reading not in self._newest:
                    self._newest.append(reading)
                    self._arrived[device] = self._arrived.get(device, 0) + 1
                return f"{device:<10} {describe_reading(message.payload.decode())}"
            case _, "availability":
                return f"{device:<10} {message.payload.decode()}"
        return None

    async def ask(self, page: str) -> None:
        """Ask the app how it is doing until cancelled. `page`: its host and port."""
        while True:
            document = await asyncio.to_thread(_ask, page)
            if document is not None:
                self.update(document)
            await asyncio.sleep(ASK_EVERY)

    def update(self, document: dict[str, Json]) -> None:
        """Take the app's document of introspection."""
        self._app = document

    @property
    def arrived(self) -> int:
        """Readings that the broker received, each counted once."""
        return sum(self._arrived.values())

    @property
    def waiting(self) -> int:
        """Readings that wait in the app for the broker."""
        return sum(device["runtime"].get("outbox", {}).get("messages", 0) for device in self._app["devices"].values())

    @property
    def away(self) -> bool:
        """Whether the app has no connection to its broker."""
        return bool(self._app["mqtt"]) and not self._app["mqtt"]["connected"]

    @property
    def missing(self) -> int:
        """Readings that the app has handed over and the broker has not received."""
        handed_over = {name: each["runtime"]["counters"]["published"] for name, each in self._app["devices"].items()}
        return sum(max(0, count - self._arrived.get(name, 0)) for name, count in handed_over.items())


def _ask(page: str) -> dict[str, Json] | None:
    """The document of introspection; None if the app does not answer, as before it has started."""
    with contextlib.closing(http.client.HTTPConnection(page, timeout=_TIMEOUT)) as connection:
        try:
            connection.request("GET", "/introspect?sections=mqtt&sections=devices")
            answer = connection.getresponse()
            document: dict[str, Json] = json.load(answer)
        except (OSError, http.client.HTTPException, ValueError):
            return None
        return document if answer.status == http.client.OK else None


async def reach(broker: Broker) -> None:
    """See that there is a broker, which accepts our connections.

    Raises:
        LeadsmanError: there is none.
    """
    try:
        async with SideConnection().at(broker):
            pass
    except BrokerError as error:
        raise LeadsmanError(f"{error}; or write leadsman demo without --broker, which brings its own") from None


def program() -> str:
    """What to type in another terminal to run the command ``leadsman`` of this process. A virtual environment that is
    not active there, as after ``make demo``, is named."""
    own = Path(sys.executable).with_name("leadsman")
    found = shutil.which(own.name)
    if not own.is_file() or (found is not None and Path(found).samefile(own)):
        return own.name
    near = own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own
    return shlex.quote(str(near))


def print_text(line: str) -> None:
    """Print a line with the time, at once."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def in_home_assistant(broker: Broker) -> tuple[str, str]:
    """How to see the devices there, and what describes them."""
    return (
        f"Home Assistant: give its MQTT integration the broker {broker.host} and the port {broker.port}, "
        "unless it has them; the devices are at Settings > Devices & services > MQTT",
        f"their descriptions: {watching(broker, f'homeassistant/device/{PREFIX}')}",
    )


def introduce(broker: Broker, description: str, page: str, hints: Sequence[str]) -> None:
    """Print where to look."""
    leadsman = program()
    changed = ", ".join(f"{setting.rpartition('.')[2]} = {value!r}" for setting, value in SETTINGS.items())
    for line in (
        f"leadsman demo at {broker} ({description})",
        f"the page is at http://{page}/",
        f"watch it with: {watching(broker, PREFIX)}",
        f"or with: {leadsman} watch --mqtt {broker}",
        f"why the meter is silent: {leadsman} why meter --mqtt {broker}",
        f"the gaps of each device: {leadsman} gaps --mqtt {broker}",
        f"the disk is as the settings say, in [devices.disk]: {changed}",
        f"whether the broker suits the app: {leadsman} doctor --prefix {PREFIX} --mqtt {broker}",
        *hints,
    ):
        print_text(line)


async def end_after(duration: float, trouble: asyncio.Task[None], account: Account, stop: Callable[[], None]) -> None:
    """End the demo after so many seconds: fix what is broken, and let the app deliver what waits."""
    await asyncio.sleep(duration)
    trouble.cancel()
    end = time.monotonic() + DELIVERY
    while (account.away or account.waiting) and time.monotonic() < end:  # noqa: ASYNC110  # the app answers when it is asked
        await asyncio.sleep(ASK_EVERY)
    stop()


def print_summary(account: Account, lasted: dict[str, float], broker: Broker | None) -> None:
    """Print what stays, and what came of it all. `broker` is the one that was named, which outlives the demo."""
    if broker is not None:
        clean = f"{program()} clean --prefix {PREFIX} --all --mqtt {broker}"
        print(f"The broker keeps the retained messages until you type: {clean}")
    parts = [f"{name} for {human(max(1, round(seconds)))}" for name, seconds in lasted.items()]
    broken = ", ".join(parts) or "nothing was broken"
    fate = "on disk for the next start" if account.away else "lost"
    outcome = f"{count_noun(account.missing, 'reading')} {fate}, {account.arrived} received"
    print(fill(f"{broken[0].upper()}{broken[1:]}: {outcome}.", further="  "))


def run_demo(url: str | None, duration: float | None, *, discovery: bool = False) -> None:
    """Run the demo until ``q`` or Ctrl-C, or for `duration` seconds.

    Args:
        url: of a broker; None starts one.
        duration: seconds, or None.
        discovery: whether Home Assistant is told of the devices.

    Raises:
        LeadsmanError: there is no broker to be had, or nobody answers at the one that was named.
    """
    lines = not (sys.stdout.isatty() and sys.stdin.isatty())
    account, page = Account(), f"127.0.0.1:{free_port()}"
    note, log = "", deque[str](maxlen=LOG_LINES)

    def announce(text: str) -> None:
        nonlocal note
        note = text
        if lines:
            print_text(f"--- {text}")

    def hear(message: Received) -> None:
        line = account.hear(message)
        if lines and line is not None:
            print_text(line)

    with contextlib.ExitStack() as stack:
        at, description, mosquitto = url or "", "the broker you named", None
        if url is None:
            at, description, mosquitto = stack.enter_context(demo_broker())
        meter = stack.enter_context(Meter())
        app = demo_app(at, meter.path, "homeassistant" if discovery else None)
        broker, faults = app.brokers.primary, Faults(meter, mosquitto, announce)
        hints = in_home_assistant(broker) if discovery else ()
        if url is not None:
            asyncio.run(reach(broker))
        if lines:
            introduce(broker, description, page, hints)
            if mosquitto is None:
                print_text("an outage of the broker is not shown; to see one, install mosquitto and leave out --broker")
        else:
            stack.enter_context(stderr_to(log.append))

        def notes() -> Sequence[str]:
            waiting = f"; {count_noun(account.waiting, 'reading')} on disk" if account.away else ""
            return f"the page is at http://{page}/", *hints, f"{note}{waiting}", *log

        async def show() -> None:
            await FleetWatcher(app.brokers, [PREFIX], f" --mqtt {broker}", notes).show()
            os.kill(os.getpid(), signal.SIGINT)

        async def serve() -> int:
            loop = asyncio.get_running_loop()
            viewer = Viewer(broker, f"{PREFIX}/#", hear)
            trouble = loop.create_task(faults.make())
            jobs = [meter.answer(), viewer.listen(), account.ask(page)]
            if not lines:
                jobs.append(show())
            if duration is not None:
                jobs.append(end_after(duration, trouble, account, app.stop))
            tasks = [trouble, *(loop.create_task(job) for job in jobs)]
            try:
                return await app.serve(None if mosquitto is None else viewer.connect_next)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=1.0)

        settings = Where.nowhere({"http.bind": page, **SETTINGS})  # none of another app
        run_process(PREFIX, lambda: app.load(settings), serve, app.stop)
    print_summary(account, faults.lasted, None if url is None else broker)
