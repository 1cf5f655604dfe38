"""Nodes on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "cluster": Listed("several machines", "show the nodes that share an app, and drain one"),
}
