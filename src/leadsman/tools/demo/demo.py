"""The demo itself: the app and its page, a board that listens at the broker and asks the app, and faults on a
timetable."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable

from leadsman.errors import LeadsmanError
from leadsman.monitoring.log_format import log_to
from leadsman.mqtt.answers import Json
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import CONNECT_TIMEOUT, Received
from leadsman.readings.buffer import Buffer
from leadsman.settings.discovery import HOMIE_PREFIX
from leadsman.settings.discovery import PREFIX as DISCOVERY_PREFIX
from leadsman.settings.sections import DEFAULT_PORT
from leadsman.settings.sources import Where
from leadsman.testing.mosquitto import free_port
from leadsman.text import count_noun
from leadsman.tools.cli.own_broker import Viewer, demo_broker, watching
from leadsman.tools.cli.tables import fill
from leadsman.tools.demo.app import PREFIX, SETTINGS, Moved, demo_app, use_door
from leadsman.tools.demo.board import Board, BoardLog, print_text, program, show
from leadsman.tools.demo.faults import Faults, Meter
from leadsman.wiring.process import run as run_process

ASK_EVERY = 0.5
"""Seconds between two questions."""
_TIMEOUT = 2.0
_QUESTION = "/introspect?sections=mqtt&sections=devices&sections=recent&sections=fields"


def page_port() -> int:
    """The port of the page: the usual one, or a free one if another program has that."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return free_port()
    return DEFAULT_PORT


async def keep_asking(page: str, show: Callable[[dict[str, Json]], None]) -> None:
    """Ask the app how it is doing until cancelled, and pass on each answer.

    Args:
        page: host and port.
        show: is called with each document of introspection.
    """
    while True:
        document = await asyncio.to_thread(_ask, page)
        if document is not None:
            show(document)
        await asyncio.sleep(ASK_EVERY)


def _ask(page: str) -> dict[str, Json] | None:
    """The document of introspection; None if the app does not answer, as before it has started."""
    connection = http.client.HTTPConnection(page, timeout=_TIMEOUT)
    try:
        connection.request("GET", _QUESTION)
        answer = connection.getresponse()
        document: dict[str, Json] | None = json.load(answer) if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    else:
        return document
    finally:
        connection.close()


DESCRIBED = f"{DISCOVERY_PREFIX}/device/{PREFIX}"
"""Below it Home Assistant reads what the devices are."""
DELIVERY = 5.0
"""Seconds that the app has at the end to deliver what waits."""


async def reach(broker: Broker) -> None:
    """See that somebody accepts connections there.

    Raises:
        LeadsmanError: nobody does.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, writer = await asyncio.open_connection(broker.host, broker.port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "no answer"
        raise LeadsmanError(
            f"there is no broker at {broker}: {reason}; start one there, or write leadsman demo without --broker"
        ) from None
    writer.close()


def in_home_assistant(broker: Broker, *, own: bool) -> tuple[str, str]:
    """What to do to see the devices there, and how to see what describes them. `own`: the broker is that of the demo,
    so that nobody else uses it yet."""
    where = "the devices are at Settings > Devices & services > MQTT"
    if own:
        how = f"set up the MQTT integration of one on this machine with broker {broker.host} and port {broker.port}"
        where = f"{how}; {where}"
    else:
        where = f"if its MQTT integration has this broker, {where}"
    return f"Home Assistant: {where}", f"their descriptions: {watching(broker, DESCRIBED)}"


def in_controllers(broker: Broker, *, own: bool) -> tuple[str]:
    """How to see what describes the devices by Homie."""
    return (f"their descriptions by Homie 5: {watching(broker, HOMIE_PREFIX)}",)


HINTS = {"homeassistant": in_home_assistant, "homie": in_controllers}
"""The hints about the devices, by the convention that describes them."""


def introduce(broker: Broker, description: str, page: str, hints: Iterable[str]) -> None:
    """Print where to look."""
    print_text(f"leadsman demo at {broker} ({description})")
    print_text(f"the page is at http://{page}/")
    print_text(f"watch it with: {watching(broker, PREFIX)}")
    leadsman = program()
    print_text(f"or with: {leadsman} watch --mqtt {broker}")
    print_text(f"why the meter is silent: {leadsman} why meter --mqtt {broker}")
    print_text(f"the gaps of each device: {leadsman} gaps --mqtt {broker}")
    changed = ", ".join(f"{setting.rpartition('.')[2]} = {value!r}" for setting, value in SETTINGS.items())
    print_text(f"the disk is as the settings say, in [devices.disk]: {changed}")
    print_text(f"whether the broker suits the app: {leadsman} doctor --prefix {PREFIX} --mqtt {broker}")
    for hint in hints:
        print_text(hint)


async def end_after(duration: float, trouble: asyncio.Task[None], board: Board, stop: Callable[[], None]) -> None:
    """End the demo after so many seconds: mend what is broken, and let the app deliver what waits."""
    await asyncio.sleep(duration)
    trouble.cancel()
    end = time.monotonic() + DELIVERY
    while (board.away or board.waiting) and time.monotonic() < end:  # noqa: ASYNC110  # the app answers when it is asked
        await asyncio.sleep(ASK_EVERY)
    stop()


def take_leave(board: Board, faults: Faults, broker: Broker | None) -> None:
    """Print what stays, and what came of it all. `broker` is the one that was named, which outlives the demo."""
    if broker is not None:
        clean = f"{program()} clean --prefix {PREFIX} --all --mqtt {broker}"
        print(f"The broker keeps the retained messages until you type: {clean}")
    if board.away:
        outcome = f"{count_noun(board.missing, 'reading')} on disk for the next start, {board.arrived} received"
    else:
        outcome = f"{count_noun(board.missing, 'reading')} lost, {board.arrived} received"
    print(fill(f"{faults.account}: {outcome}.", further="  "))


def run_demo(broker: str | None, duration: float | None, discovery: str | None = None) -> None:
    """Run the demo until Ctrl-C, or for `duration` seconds.

    Args:
        broker: the URL of a broker; None starts one.
        duration: seconds, or None.
        discovery: the convention by which the devices are described, or None.

    Raises:
        LeadsmanError: there is no broker to be had, or nobody answers at the one that was named.
    """
    lines = not sys.stdout.isatty()
    with contextlib.ExitStack() as stack:
        mosquitto = None
        url, description = broker or "", "the broker you named"
        if broker is None:
            url, description, mosquitto = stack.enter_context(demo_broker())
        meter = stack.enter_context(Meter())
        moves: Buffer[Moved] = Buffer(100)
        app = demo_app(url, meter.device.path, moves, discovery)
        if broker is not None:
            asyncio.run(reach(app.brokers.primary))
        page = f"127.0.0.1:{page_port()}"
        watch = f"{program()} watch --mqtt {app.brokers.primary}"
        board = Board(PREFIX, f"{app.brokers.primary} ({description})", f"http://{page}/ · {watch}")

        def announce(note: str) -> None:
            board.note = note
            if lines:
                print_text(f"--- {note}")

        def hear(message: Received) -> None:
            line = board.hear(message, time.time())
            if line is not None and lines:
                print_text(line)

        faults = Faults(meter, mosquitto, announce)
        hints = HINTS[discovery](app.brokers.primary, own=broker is None) if discovery else ()
        if lines:
            introduce(app.brokers.primary, description, page, hints)
            if mosquitto is None:
                print_text("an outage of the broker is not shown; to see one, install mosquitto and leave out --broker")
        else:
            board.events.extend(hints)
            log_to(BoardLog(board), "INFO")

        async def serve() -> int:
            loop = asyncio.get_running_loop()
            viewer = Viewer(app.brokers.primary, f"{PREFIX}-viewer", f"{PREFIX}/#", hear)
            trouble = loop.create_task(faults.make())
            jobs = [use_door(moves), viewer.listen(), keep_asking(page, board.take), *([] if lines else [show(board)])]
            if duration is not None:
                jobs.append(end_after(duration, trouble, board, app.stop))
            tasks = [trouble, *(loop.create_task(job) for job in jobs)]
            try:
                return await app.serve(None if mosquitto is None else viewer.connect_next)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=1.0)

        settings = Where.nowhere({"http.bind": page, **SETTINGS})  # none of another app
        run_process(PREFIX, lambda: app.load(settings), serve, app.stop)
        take_leave(board, faults, None if broker is None else app.brokers.primary)
