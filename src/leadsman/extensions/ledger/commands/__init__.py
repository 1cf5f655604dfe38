"""The ledger on the command line."""

from leadsman.tools.cli.arguments import Listed

COMMANDS = {
    "gaps": Listed("look", "show which readings of each device are missing, and why", before="held", section="ledger"),
}
