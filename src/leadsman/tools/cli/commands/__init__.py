"""The commands. Each has a file of its own, which is imported when the command is typed: the help of all commands and
the start of one do not wait for what the others need. Those about an extension or a tool lie in its folder, with a
table like this one: a folder that is not there has no commands."""

import functools
import importlib
from collections.abc import Collection, Mapping
from types import ModuleType

from leadsman import tools
from leadsman.extensions import SHIPPED
from leadsman.tools.cli.arguments import Listed, Subcommand

COMMANDS = {
    "init": Listed("start", "write a small app with settings, a test, a Dockerfile and a systemd unit"),
    "check": Listed("start", "check an app and its settings without running it"),
    "run": Listed("start", "run an app until Ctrl-C or SIGTERM"),
    "completion": Listed("start", "print a completion script for your shell"),
    "watch": Listed("look", "watch the devices of one app or of many"),
    "inspect": Listed("look", "show what an app registers, or the state of a running app"),
    "held": Listed("look", "list the devices that are held"),
    "health": Listed("look", "check the health file of an app, for containers"),
    "schema": Listed("look", "print the JSON Schema of every topic of an app"),
    "ble": Listed("look", "show the Bluetooth devices in range, with the settings of each"),
    "why": Listed("explain", "say why a device is silent"),
    "poll": Listed("operate", "poll a device now, and print the reading"),
    "hold": Listed("operate", "stop polling a device until somebody releases it"),
    "release": Listed("operate", "poll a held device again"),
    "circuit": Listed("operate", "isolate, close or disable the circuit of a device"),
    "outbox": Listed("operate", "show the readings that wait for the broker, and those that it refused"),
    "clean": Listed("operate", "remove the retained topics that an app left at the broker"),
    "acl": Listed("operate", "print the access list that an app needs"),
}
"""What lies beside this file, by name, in the order of the help."""


def command(name: str) -> Subcommand:
    """A command, imported."""
    found: Subcommand = _module(name).COMMAND
    return found


def printers(sections: Collection[str]) -> Mapping[str, ModuleType]:
    """The modules of the commands that print these sections of a running app, in the order of the help."""
    found = {each.section: name for name, each in commands().items()}
    return {section: _module(name) for section, name in found.items() if section is not None and section in sections}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__ if name in COMMANDS else _others()[name]}.{name}")


@functools.cache
def commands() -> Mapping[str, Listed]:
    """All commands, by name, in the order of the help."""
    names, listed = list(COMMANDS), dict(COMMANDS)
    for name, module in _others().items():
        each: Listed = importlib.import_module(module).COMMANDS[name]
        listed[name] = each
        names.insert(len(names) if each.before is None else names.index(each.before), name)
    groups = [*dict.fromkeys(listed[name].group for name in [*COMMANDS, *names])]
    return {name: listed[name] for name in sorted(names, key=lambda name: groups.index(listed[name].group))}


@functools.cache
def _others() -> Mapping[str, str]:
    """The commands of the tools and extensions, each with the package that it lies in."""
    folders = (*tools.COMMANDS, *(f"{each.package}.{each.commands}" for each in SHIPPED if each.commands))
    return {name: module for module in folders for name in importlib.import_module(module).COMMANDS}
