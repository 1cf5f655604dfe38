"""``leadsman ble scan``: the Bluetooth devices in range, the decoder of each, and its lines of settings."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence

from leadsman.adapters.ble import BleRadio, recognise
from leadsman.adapters.ble.decoders import load
from leadsman.core.text import count_noun, escape
from leadsman.errors import LeadsmanError, NotInstalled
from leadsman.tools.cli.advertisers import MORE, Advertiser, Advertisers, AirView, line_of, screen
from leadsman.tools.cli.arguments import Subcommand, argument, ends_after, switch
from leadsman.tools.cli.screen import Line
from leadsman.tools.cli.tables import json_text
from leadsman.tools.cli.terminal import running, show, signals_set, size
from leadsman.tools.cli.times import zone

SCANNER_SILENCE = 10.0
"""Seconds without any advertisement after which the scanner is started again, or explains why it cannot be."""
PRINTING = 1.0
"""Seconds between two looks for what is new, where the output is no terminal: a device sends its name apart."""
MAX_SETTINGS = 100
"""Devices whose settings are printed at the end; a program gets all."""


def run(options: argparse.Namespace) -> None:
    """Show the Bluetooth devices in range."""
    radio = BleRadio(options.adapter, silence=SCANNER_SILENCE)
    radio.check_installed()
    missing = _missing_decoders()
    heard = Advertisers(recognise)
    try:
        hint = MORE if missing else ""
        asyncio.run(scan(radio, heard, options.duration, as_json=options.json, hint=hint))
    finally:
        if len(heard) and not options.json:
            _print_settings(heard.ranked())
        if len(heard) and missing:
            print(f"only sensors of BTHome are recognised: {missing}", file=sys.stderr)
    if not len(heard):
        raise LeadsmanError("no Bluetooth device was heard; is a sensor in range and awake, and is it advertising?")


async def scan(radio: BleRadio, heard: Advertisers, duration: float | None, *, as_json: bool, hint: str = "") -> None:
    """Scan until somebody quits, or for `duration` seconds. `hint` is at the bottom of the screen.

    Raises:
        DeviceError: the adapter cannot scan, or no longer.
    """

    async def listen() -> None:
        async for advertisement in radio.advertisements():
            heard.hear(advertisement, time.monotonic())

    async def end() -> None:
        await (asyncio.Event().wait() if duration is None else asyncio.sleep(duration))

    async with radio:
        await radio.probe()
        if not as_json and sys.stdout.isatty() and sys.stdin.isatty():
            view = AirView()

            def press(keys: Sequence[str]) -> bool:
                rows = heard.ranked()
                return any(view.press(key, rows) for key in keys)

            await show(lambda: _frame(heard, view, hint), press, listen(), end())
            return
        done = asyncio.Event()
        with signals_set(done):
            async with running(done, listen(), end()):
                while not done.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PRINTING):
                            await done.wait()
                    for each in heard.changed():
                        print(json_text(each.document()) if as_json else escape(line_of(each)), flush=True)


def _missing_decoders() -> str:
    """Import the decoders, before any advertisement. Returns what to install if they are missing."""
    try:
        load()
    except NotInstalled as error:
        return str(error)
    return ""


def _frame(heard: Advertisers, view: AirView, hint: str) -> list[Line]:
    clock = f"{time.strftime('%H:%M:%S')} {zone()}"
    return screen(heard.ranked(), view, size(), time.monotonic(), clock, heard.forgotten, hint)


def _print_settings(rows: list[Advertiser]) -> None:
    """Print the settings of the devices with a decoder, to be pasted."""
    known = [each for each in rows if each.decoder]
    for each in known[:MAX_SETTINGS]:
        print("", *map(escape, each.settings), sep="\n")
    more = f"; --json has the settings of the other {len(known) - MAX_SETTINGS}" if len(known) > MAX_SETTINGS else ""
    print(f"\n{count_noun(len(rows), 'device')}, {len(known)} recognised{more}", file=sys.stderr)


COMMAND = Subcommand(
    run,
    "Shows the Bluetooth devices in range: address, name, signal, what each advertises, and the decoder that knows it. "
    "On a terminal it is a table, where the arrows choose a device and its lines of settings are below. Elsewhere it "
    "prints a line for each device that is new or advertises something else. At the end come the settings of all "
    "devices that a decoder knows, with a line for the bind key of one that encrypts. It needs no app and no broker, "
    "and connects to no device. The extra ble-decoders knows more than the sensors of BTHome.",
    (
        "leadsman ble scan",
        "leadsman ble scan --for 30s --adapter hci1",
        "leadsman ble scan --for 10s --json | jq -r .settings",
    ),
    (
        argument("action", "scan", choices=("scan",), metavar="ACTION"),
        argument("--adapter", "the Bluetooth adapter, such as hci1 (default: the first one)", metavar="NAME"),
        ends_after("10s"),
        switch("--json", "print one JSON object for each device that is new or has changed"),
    ),
)
