"""The demo itself: an app as a user would write it, a board that listens at the broker, and faults on a timetable."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time

from rich.console import Console
from rich.live import Live

from leadsman.adapters.serial.port import SerialPort
from leadsman.app import App
from leadsman.demo.board import Board, BoardLog
from leadsman.demo.broker import demo_broker, watching
from leadsman.demo.meter import Meter
from leadsman.demo.viewer import Viewer
from leadsman.errors import GarbledData, LeadsmanError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import CONNECT_TIMEOUT, Received
from leadsman.process import run as run_process
from leadsman.publish import Every, OnChange
from leadsman.resilience.backoff import ExponentialBackoff
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.settings.endpoint import DEFAULT_PORT
from leadsman.settings.sources import Where
from leadsman.testing.mosquitto import Mosquitto, free_port
from leadsman.text import counted

PREFIX = "leadsman-demo"
HOW_TO_SEE_AN_OUTAGE = "to see one, install mosquitto and leave out --broker"


def demo_app(broker: str, meter_path: str) -> App:
    """The app that is shown: four sensors of this machine, and a meter on a serial port."""
    import psutil

    app = App(PREFIX, version="demo", mqtt=broker, heartbeat="5s", adapters=(SerialPort(meter_path, timeout="500ms"),))

    @app.telemetry(
        "meter", interval="2s", retry=1, backoff=ExponentialBackoff("300ms"), circuit_breaker=CircuitBreaker(3)
    )
    async def meter(port: SerialPort) -> dict[str, float]:
        reply = await port.request(b"?\n")
        watts, _, unit = reply.decode("ascii", "replace").partition(" ")
        if unit != "W":
            raise GarbledData(f"{reply[:8].hex(' ')} … is not a reading in watts")
        return {"watts": float(watts)}

    @app.telemetry("load", interval="2s", publish=OnChange(0.02) | Every("10s"))
    def load() -> dict[str, float]:
        one, five, _ = psutil.getloadavg()
        return {"cpu_percent": psutil.cpu_percent(), "load_1m": round(one, 2), "load_5m": round(five, 2)}

    @app.telemetry("memory", interval="5s")
    def memory() -> dict[str, float]:
        state = psutil.virtual_memory()
        return {"used_percent": state.percent, "available_mib": state.available // 2**20}

    @app.telemetry("disk", interval="10s")
    def disk() -> dict[str, float]:
        state = psutil.disk_usage("/")
        return {"used_percent": state.percent, "free_gib": round(state.free / 2**30, 1)}

    temperatures = getattr(psutil, "sensors_temperatures", dict)
    if temperatures():  # virtual machines have none

        @app.telemetry("temperature", interval="5s", publish=OnChange(0.5) | Every("30s"))
        def temperature() -> dict[str, float]:
            return {chip: readings[0].current for chip, readings in temperatures().items() if readings}

    return app


def say(line: str) -> None:
    """Print a line with the time, at once."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def hear(message: Received, board: Board, *, lines: bool) -> None:
    """Keep the board, and print a line where there is none."""
    line = board.hear(message, time.time())
    if line is not None and lines:
        say(line)


async def make_trouble(meter: Meter, mosquitto: Mosquitto | None, board: Board, *, lines: bool) -> None:
    """A minute of faults, over and over. Without `mosquitto`, the broker is none that may be killed."""

    async def now(note: str, seconds: float) -> None:
        board.note = note
        if lines:
            say(f"--- {note}")
        await asyncio.sleep(seconds)

    while True:
        await now("all is well", 10)
        meter.babbling = True
        await now("on purpose: the meter answers garbage", 5)
        meter.babbling = False
        await now("all is well", 8)
        meter.unplug()
        await now("on purpose: the meter is unplugged", 12)
        meter.plug()
        await now("the meter is back; a probe will close its circuit", 8)
        if mosquitto is not None:
            mosquitto.kill()
            await now("on purpose: the broker is killed; the outbox keeps the readings", 6)
            mosquitto.start()
            await now("the broker is back; the outbox delivers", 6)
        else:
            await now(f"not shown here: an outage of the broker; {HOW_TO_SEE_AN_OUTAGE}", 6)


async def show(board: Board) -> None:
    """Draw the board until cancelled."""
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(board.screen(time.time(), *console.size), refresh=True)
            await asyncio.sleep(0.25)


def page_port() -> int:
    """The port of the page: the usual one, or a free one if another program has that."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return free_port()
    return DEFAULT_PORT


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


def run_demo(broker: str | None, duration: float | None) -> None:
    """Run the demo until Ctrl-C, or for `duration` seconds.

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
        app = demo_app(url, meter.device.path)
        if broker is not None:
            asyncio.run(reach(app.brokers.primary))
        page = f"127.0.0.1:{page_port()}"
        watch = f"leadsman watch --mqtt {app.brokers.primary}"
        board = Board(PREFIX, f"{app.brokers.primary} ({description})", f"http://{page}/ · {watch}")
        if lines:
            say(f"leadsman demo at {app.brokers.primary} ({description})")
            say(f"the page is at http://{page}/")
            say(f"watch it with: {watching(app.brokers.primary, PREFIX)}")
            say(f"or with: {watch}; leadsman why meter --mqtt {app.brokers.primary} says why the meter is silent")
            if mosquitto is None:
                say(f"an outage of the broker is not shown; {HOW_TO_SEE_AN_OUTAGE}")
        else:
            logger = logging.getLogger("leadsman")
            logger.addHandler(BoardLog(board))
            logger.setLevel(logging.INFO)

        async def serve() -> int:
            loop = asyncio.get_running_loop()
            viewer = Viewer(
                app.brokers.primary,
                f"{PREFIX}-viewer",
                f"{PREFIX}/#",
                lambda message: hear(message, board, lines=lines),
            )
            jobs = [
                viewer.listen(),
                make_trouble(meter, mosquitto, board, lines=lines),
                *([] if lines else [show(board)]),
            ]
            tasks = [loop.create_task(job) for job in jobs]
            if duration is not None:
                loop.call_later(duration, app.stop)
            try:
                return await app.serve()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=1.0)

        settings = Where.nowhere({"http.bind": page})  # none of another app
        run_process(PREFIX, lambda: app.load(settings), serve, app.stop)
        readings = sum(board.counts.values())
        print(f"The broker received {counted(readings, 'reading')} of {counted(len(board.counts), 'device')}.")
