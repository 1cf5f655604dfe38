"""The command line of one app, for apps that are installed as programs of their own.

::

    main = command_line(app, demo={"address": "AA:BB:CC:DD:EE:FF"})      [project.scripts] house = "house:main"
"""

import argparse
import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from leadsman.app import App
from leadsman.errors import InvalidValue

if TYPE_CHECKING:
    from leadsman.mqtt.connection import Received


def command_line(app: App, demo: Mapping[str, str] | None = None) -> Callable[[Sequence[str] | None], int]:
    """What `app` does when it is called as a program: it runs, or what its options say; ``--help`` lists them.

    Args:
        app: which.
        demo: settings for ``--demo``, as ``--set`` takes them.

    Returns:
        A function of the arguments, None for those of the process, that gives the exit code.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        from leadsman.cli.main import done

        options = _parser(app).parse_args(arguments)
        options.target, options.given = app, dict(demo or {}) if options.run is _demo else {}
        with _ended(options.duration):
            return done(options, app.name)

    return main


def _parser(app: App) -> argparse.ArgumentParser:
    from leadsman.cli import commands
    from leadsman.cli.main import CODES, add_prefix, add_running, add_settings, duration

    parser = argparse.ArgumentParser(
        prog=app.name,
        description=f"Publishes to MQTT below {app.topics.prefix}/, until Ctrl-C or SIGTERM.",
        epilog=f"examples:  {app.name} --demo    {app.name} --check    {app.name} --mqtt mqtt://broker.lan\n\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=commands.run)
    parser.add_argument("--version", action="version", version=f"{app.name} {app.version}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--demo",
        dest="run",
        action="store_const",
        const=_demo,
        help="without hardware: see what it would publish; needs mosquitto or leadsman[demo]",
    )
    what.add_argument(
        "--check", dest="run", action="store_const", const=commands.check, help="say what is wrong, or what it would do"
    )
    add_settings(parser)
    add_prefix(parser)
    add_running(parser)
    parser.add_argument(
        "--for", dest="duration", metavar="TIME", type=duration, help="end after this long, such as 30s"
    )
    return parser


def _demo(options: argparse.Namespace) -> int:
    """Twins for adapters, a broker of its own, and every message as it comes."""
    from leadsman.cli import commands
    from leadsman.demo.broker import demo_broker

    if options.mqtt is not None:
        raise InvalidValue("--demo has a broker of its own; write --dry-run --mqtt URL for one of yours")
    with demo_broker() as (options.mqtt, words, _):
        print(f"at {options.mqtt} ({words}); Ctrl-C ends it", flush=True)
        threading.Thread(target=lambda: asyncio.run(_view(options.mqtt)), name="viewer", daemon=True).start()
        return commands.run_with_twins(options)


async def _view(url: str) -> None:
    """Print what the broker has, as any subscriber sees it."""
    from leadsman.demo.viewer import Viewer
    from leadsman.mqtt.broker import Broker

    await Viewer(Broker.from_url(url), "leadsman-viewer", "#", _print).listen()


def _print(message: "Received") -> None:
    print(f"{message.topic}  {message.payload.decode(errors='replace')[:200]}", flush=True)


@contextlib.contextmanager
def _ended(after: float | None) -> Iterator[None]:
    """Within it, the process is asked to end after so many seconds."""
    if after is None:
        yield
        return
    from leadsman.process import ended_by_sigterm  # the time may be over before the app runs

    timer = threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGTERM))
    timer.daemon = True
    with ended_by_sigterm():
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
