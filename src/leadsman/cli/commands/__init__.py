"""The table of the commands. Each has a file of its own, which is imported when the command is typed: the help of all
commands and the start of one do not wait for what the others need."""

import importlib
from typing import NamedTuple

from leadsman.cli.arguments import Command


class Entry(NamedTuple):
    """What is known of a command before it is imported."""

    module: str
    """It has the `Command`, under the name ``COMMAND``."""
    summary: str
    """For the list of the commands."""


COMMANDS = {
    "run": Entry("leadsman.cli.commands.run", "run an app until Ctrl-C or SIGTERM"),
    "check": Entry("leadsman.cli.commands.check", "check an app and its settings without running it"),
    "doctor": Entry(
        "leadsman.cli.commands.doctor", "examine the broker and the machine of an app, and say what to mend"
    ),
    "inspect": Entry("leadsman.cli.commands.inspect", "show what an app registers, or the state of a running app"),
    "trace": Entry("leadsman.cli.commands.trace", "show each failed call of a running app, and the decision"),
    "why": Entry("leadsman.cli.commands.why", "say why a device is silent"),
    "watch": Entry("leadsman.cli.commands.watch", "watch the devices of one app or of many"),
    "gaps": Entry("leadsman.cli.commands.gaps", "show which readings of each device are missing, and why"),
    "held": Entry("leadsman.cli.commands.held", "list the devices that are held"),
    "hold": Entry("leadsman.cli.commands.hold", "stop polling a device until somebody releases it"),
    "release": Entry("leadsman.cli.commands.release", "poll a held device again"),
    "circuit": Entry("leadsman.cli.commands.circuit", "isolate, close or disable the circuit of a device"),
    "poll": Entry("leadsman.cli.commands.poll", "poll a device now, and print the reading"),
    "outbox": Entry(
        "leadsman.cli.commands.outbox", "show the readings that wait for the broker, and send refused ones again"
    ),
    "cluster": Entry("leadsman.cli.commands.cluster", "show the nodes that share an app, and drain one"),
    "clean": Entry("leadsman.cli.commands.clean", "remove the retained topics that an app left at the broker"),
    "acl": Entry("leadsman.cli.commands.acl", "print the access list that an app needs"),
    "simulate": Entry(
        "leadsman.cli.commands.simulate", "run an app for a simulated day with faults, and compare retry policies"
    ),
    "schema": Entry("leadsman.cli.commands.schema", "print the JSON Schema of every topic of an app"),
    "init": Entry(
        "leadsman.cli.commands.init", "write a small app with settings, a test, a Dockerfile and a systemd unit"
    ),
    "health": Entry("leadsman.cli.commands.health", "check the health file of an app, for containers"),
    "completion": Entry("leadsman.cli.commands.completion", "print a completion script for your shell"),
    "demo": Entry("leadsman.demo.command", "watch real readings arrive at a real broker, while things fail on purpose"),
}
"""By name, in the order of the reference."""

GROUPS = {
    "start": ("demo", "init", "check", "run", "completion"),
    "look": ("watch", "inspect", "gaps", "trace", "held", "health", "schema"),
    "explain": ("why", "doctor", "simulate"),
    "operate": ("poll", "hold", "release", "circuit", "outbox", "clean", "acl"),
    "several machines": ("cluster",),
}
"""The commands by what a person wants, for the help."""


def command(name: str) -> Command:
    """A command of the table, imported."""
    found: Command = importlib.import_module(COMMANDS[name].module).COMMAND
    return found
