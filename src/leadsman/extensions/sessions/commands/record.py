"""``leadsman record``: runs an app, and writes down what goes over the wires of its adapters."""

import argparse
import contextlib
import sys
import time

from leadsman.adapters.program import Programs
from leadsman.core.adapters.wires import WIRES
from leadsman.core.app import App
from leadsman.core.text import clean
from leadsman.core.text.redaction import MIN_SECRET_CHARS, Secret
from leadsman.core.wiring.process import ended_after
from leadsman.errors import LeadsmanError
from leadsman.extensions.sessions.mask import Mask
from leadsman.extensions.sessions.recorder import Recorder
from leadsman.tools.cli.arguments import (
    CODES,
    ONE_TARGET,
    RECORDING,
    Subcommand,
    UsageError,
    argument,
    ends_after,
    switch,
)
from leadsman.tools.cli.commands.run import app_to_run


def run(options: argparse.Namespace) -> None:
    """Run an app, and record it."""
    for text in options.hide:
        if len(text) < MIN_SECRET_CHARS:
            raise UsageError(f"--hide has {len(text)} characters; write at least {MIN_SECRET_CHARS}")
    hidden = [Secret(text) for text in options.hide]  # hidden as long as they live
    app = app_to_run(options)
    _name_unrecorded(app)
    file = sys.stdout
    recorder = Recorder(file, app.name, time.monotonic, time.time(), Mask(addresses=options.mask))
    token = WIRES.set(recorder)
    try:
        # What the app prints is no part of a session.
        with contextlib.redirect_stdout(sys.stderr), ended_after(options.duration, recorder.end):
            app.run(log_level=options.log_level, log_format=options.log_format)
    finally:
        WIRES.reset(token)
        recorder.end()
        del hidden
    if recorder.fault is not None:
        raise LeadsmanError(f"{recorder.fault}; what was written until then can be replayed")
    if not recorder.events:
        raise LeadsmanError("nothing was recorded: no adapter of the app opened anything; record for a longer time")


def _name_unrecorded(app: App) -> None:
    """Name the adapters of which a session has only what others do for them."""
    for adapter in app.setup.adapters:
        if adapter.resource_kind is None and not isinstance(adapter.adapter, Programs):
            print(
                f"leadsman record: {clean(adapter.label)} is recorded as far as it uses SerialPort, Modbus, "
                "HttpClient, BleRadio, CalDav, I2c, OneWire or Programs",
                file=sys.stderr,
            )


COMMAND = Subcommand(
    run,
    "Runs an app as leadsman run does, and prints a session: what goes over the wires of its adapters, with the "
    "times and the errors, a line of JSON for each event. Passwords, tokens and other secrets of the settings are "
    "hidden if they have six characters or more. Read it before you send it to somebody. Stop the app itself first: "
    "a port has one owner.",
    (
        "leadsman record house:app --for 10m > kitchen.session",
        "leadsman record house:app --for 24h --mask --hide SN-20417 > kitchen.session",
    ),
    (
        ONE_TARGET,
        ends_after("10m"),
        switch(
            "--mask",
            "replace addresses by others, each by the same one: of Bluetooth devices, hosts, ports and "
            "thermometers; not in the bytes of serial ports and I²C",
        ),
        argument(
            "--hide",
            "replace this text by ***, wherever it stands (can be repeated)",
            metavar="TEXT",
            action="append",
            default=[],
        ),
        *RECORDING,
    ),
    CODES,
)
