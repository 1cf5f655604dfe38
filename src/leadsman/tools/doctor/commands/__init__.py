"""The doctor on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "doctor": Listed("explain", "examine the broker and the machine of an app, and say what to fix"),
}
