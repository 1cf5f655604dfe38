"""Write two pages of docs/reference: command-line.md from the parser, and documents.md from the types of the documents.
The other pages of the reference come from the docstrings.

Usage: ``python scripts/reference.py``; with ``--check`` it only compares the pages with the code.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from leadsman.introspection import document
from leadsman.introspection.schema import Schema, parts_of, schema_of
from leadsman.ledger.document import DeviceLedger
from leadsman.monitoring import document as reports
from leadsman.nodes.document import NodeDocument
from leadsman.tools.cli.arguments import CODES, paragraphs
from leadsman.tools.cli.main import parser

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
DOCUMENTS = {
    "Heartbeat": reports.Status,
    "Introspection": document.Introspection,
    "Answer to a request": document.Answer,
    "Request for introspection": document.Request,
    "Outage of a device": reports.OutageMessage,
    "Fault of the app": reports.FaultMessage,
    "Health of a device": reports.DeviceHealth,
    "Ledger of a device": DeviceLedger,
    "Registry": document.RegistryDocument,
    "Node": NodeDocument,
}
"""The documents by their headings, those that are read most first."""
DOCUMENTS_HEAD = """# Documents

Generated from the types of the documents by `python scripts/reference.py`. `leadsman schema house:app` prints the same
as JSON Schema. [Topics](topics.md) has the topics, and [Monitor an app](../how-to/supervision.md) says what to watch.

A time is text as in RFC 3339, in UTC, such as `2026-11-28T18:04:15.123Z`. A field that is *always* there may be null
where the table says so; when another one is there, its meaning says. Ignore fields that you do not know."""
HEAD = """# Command line

Generated from the parser by `python scripts/reference.py`. `leadsman COMMAND --help` says the same."""


def command_line() -> str:
    """The page about the command line."""
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


def documents() -> str:
    """The page about the documents."""
    return "\n\n".join([DOCUMENTS_HEAD, *document_sections()]) + "\n"


def document_sections() -> Iterator[str]:
    """For each document its description and a table of its fields, and the same for those of its parts that are new."""
    shown = {kind.__name__ for kind in DOCUMENTS.values()}
    for title, kind in DOCUMENTS.items():
        whole = schema_of(kind)
        for part in parts_of(kind):
            if part is kind or part.__name__ not in shown:
                shown.add(part.__name__)
                yield f"## {title}" if part is kind else f"### {part.__name__}"
                schema = whole if part is kind else whole["$defs"][part.__name__]
                yield "\n\n".join(" ".join(each.split()) for each in plain(schema["description"]).split("\n\n"))
                yield fields_table(schema)


def fields_table(schema: Schema) -> str:
    """The fields of one document: name, type, unit, whether it is always there, meaning."""
    rows = ["| field | type | unit | present | meaning |", "|---|---|---|---|---|"]
    for name, each in schema["properties"].items():
        present = "always" if name in schema.get("required", ()) else ""
        meaning = plain(each.get("description", "")).replace("|", "\\|")
        rows.append(f"| `{name}` | {kind_text(each)} | {unit_text(each)} | {present} | {meaning} |")
    return "\n".join(rows)


def kind_text(schema: Schema) -> str:
    """The type of a field for people: its values if they are listed, a link to the table of an object."""
    if "anyOf" in schema:
        return " or ".join(kind_text(each) for each in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        title = next((title for title, kind in DOCUMENTS.items() if kind.__name__ == name), name)
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if schema.get("format") == "date-time":
        return "time"
    if "items" in schema:
        return f"list of {kind_text(schema['items'])}"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"object of {kind_text(inner)}"
    return {"string": "text", "null": "null"}.get(schema.get("type", ""), schema.get("type", "any"))


def unit_text(schema: Schema) -> str:
    """The unit of a field, also of a number in a list or beside null."""
    inside = [*schema.get("anyOf", ()), schema.get("items", {})]
    return str(schema.get("unit") or next((each["unit"] for each in inside if "unit" in each), ""))


def plain(text: str) -> str:
    """A text of a docstring on a page: code as Markdown has it."""
    return re.sub(r"``([^`]*)``", r"`\1`", text)


if __name__ == "__main__":
    for file, text in (("command-line.md", command_line()), ("documents.md", documents())):
        target = REFERENCE / file
        if "--check" not in sys.argv:
            target.write_text(text, "utf-8")
        elif target.read_text("utf-8") != text:
            raise SystemExit(f"docs/reference/{file} is old; run: python scripts/reference.py")
