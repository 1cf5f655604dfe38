"""Comparisons on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "diff": Listed("explain", "show what an upgrade of an app would change, before it happens"),
}
