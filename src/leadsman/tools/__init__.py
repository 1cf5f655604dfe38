"""Programs around the framework: the command line, the doctor, simulated days,
comparisons, the demo. Nothing else needs them."""

COMMANDS = (
    "leadsman.tools.demo.commands",
    "leadsman.tools.difference.commands",
    "leadsman.tools.doctor.commands",
    "leadsman.tools.simulation.commands",
)
"""Where commands about one of them are, each with a table of them."""
