"""Simulated days on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "simulate": Listed("explain", "run an app for a simulated day with faults, and compare retry policies"),
}
