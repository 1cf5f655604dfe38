"""The table of the commands. Each has a file of its own, which is imported when the command is typed: the help of all
commands and the start of one do not wait for what the others need."""

import importlib

from leadsman.tools.cli.arguments import Subcommand

COMMANDS = {
    "run": "run an app until Ctrl-C or SIGTERM",
    "check": "check an app and its settings without running it",
    "doctor": "examine the broker and the machine of an app, and say what to fix",
    "inspect": "show what an app registers, or the state of a running app",
    "trace": "show each failed call of a running app, and the decision",
    "why": "say why a device is silent",
    "watch": "watch the devices of one app or of many",
    "gaps": "show which readings of each device are missing, and why",
    "held": "list the devices that are held",
    "hold": "stop polling a device until somebody releases it",
    "release": "poll a held device again",
    "circuit": "isolate, close or disable the circuit of a device",
    "poll": "poll a device now, and print the reading",
    "outbox": "show the readings that wait for the broker, and those that it refused",
    "ble": "show the Bluetooth devices in range, with the settings of each",
    "cluster": "show the nodes that share an app, and drain one",
    "clean": "remove the retained topics that an app left at the broker",
    "acl": "print the access list that an app needs",
    "simulate": "run an app for a simulated day with faults, and compare retry policies",
    "record": "run an app, and write down what goes over the wires of its adapters",
    "replay": "run an app without its hardware, on a recorded session",
    "schema": "print the JSON Schema of every topic of an app",
    "init": "write a small app with settings, a test, a Dockerfile and a systemd unit",
    "health": "check the health file of an app, for containers",
    "completion": "print a completion script for your shell",
    "demo": "watch real readings arrive at a real broker, while things fail on purpose",
}
"""What each does, by name, in the order of the reference."""

DEMO = "leadsman.tools.demo.command"
"""This command is no file beside this one: nothing imports the demo."""

GROUPS = {
    "start": ("demo", "init", "check", "run", "completion"),
    "look": ("watch", "inspect", "gaps", "trace", "held", "health", "schema", "ble"),
    "explain": ("why", "doctor", "simulate", "record", "replay"),
    "operate": ("poll", "hold", "release", "circuit", "outbox", "clean", "acl"),
    "several machines": ("cluster",),
}
"""The commands by what a person wants, for the help."""


def command(name: str) -> Subcommand:
    """A command of the table, imported."""
    module = DEMO if name == "demo" else f"{__name__}.{name}"
    found: Subcommand = importlib.import_module(module).COMMAND
    return found
