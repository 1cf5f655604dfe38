"""The trace on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "trace": Listed("look", "show each failed call of a running app, and the decision", before="held", section="trace"),
}
