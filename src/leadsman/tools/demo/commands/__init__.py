"""The demo on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "demo": Listed("start", "watch real readings arrive at a real broker, while things fail on purpose", before="init"),
}
