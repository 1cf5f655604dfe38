"""Sessions on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "record": Listed("explain", "run an app, and write down what goes over the wires of its adapters"),
    "replay": Listed("explain", "run an app without its hardware, on a recorded session"),
}
