"""Write docs/reference/command-line.md from the parser. The other pages of the reference come from the docstrings.

Usage: ``python scripts/reference.py``; with ``--check`` it only compares the page with the parser.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from leadsman.tools.cli.arguments import CODES, paragraphs
from leadsman.tools.cli.main import parser

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "command-line.md"
HEAD = """# Command line

Generated from the parser by `python scripts/reference.py`. `leadsman COMMAND --help` says the same."""


def page() -> str:
    """The whole page."""
    return "\n\n".join([HEAD, *sections(), "## Exit codes", f"```text\n{paragraphs(CODES)}\n```"]) + "\n"


def sections() -> Iterator[str]:
    """For each command its description, a table of its options, and its examples."""
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield f"## `leadsman {name}`"
                yield command.description or ""
                yield table(command)
                yield f"```text\n{command.epilog}\n```"


def table(command: argparse.ArgumentParser) -> str:
    """The options of one command."""
    rows = ["| option | meaning |", "|---|---|"]
    for each in command._actions:
        shown = ", ".join(each.option_strings) or str(each.metavar or each.dest)
        value = f" {each.metavar}" if each.option_strings and each.metavar else ""
        rows.append(f"| `{shown}{value}` | {(each.help or '').replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if "--check" not in sys.argv:
        TARGET.write_text(page(), "utf-8")
    elif TARGET.read_text("utf-8") != page():
        raise SystemExit("docs/reference/command-line.md is old; run: python scripts/reference.py")
