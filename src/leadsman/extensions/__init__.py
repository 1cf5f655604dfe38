"""What joins an app that wants it. The core names nothing of it."""

COMMANDS = (
    "leadsman.extensions.ledger.commands",
    "leadsman.extensions.trace.commands",
    "leadsman.extensions.nodes.commands",
    "leadsman.extensions.sessions.commands",
)
"""Where commands about one of them are, each with a table of them."""
