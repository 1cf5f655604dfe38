"""Write two pages of docs/reference: command-line.md from the parser, and documents.md from the types of the documents.
The other pages of the reference come from the docstrings.

Usage: ``python scripts/reference.py``; with ``--check`` it only compares the pages with the code.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.document_texts import parts_of
from leadsman.core.introspection.schema import Schema, schema_of
from leadsman.core.monitoring import document as reports
from leadsman.extensions.ledger.document import DeviceLedger
from leadsman.extensions.nodes.document import NodeDocument
from leadsman.extensions.sessions.document import SessionHead, SessionLine
from leadsman.tools.cli.arguments import CODES, paragraphs
from leadsman.tools.cli.main import parser
from leadsman.tools.difference.picture import Picture

ALL = documents_of()
REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
DOCUMENTS = {
    "Heartbeat": ALL.status,
    "Introspection": ALL.introspection,
    "Answer to a request": document.Answer,
    "Request for introspection": ALL.request,
    "Outage of a device": reports.OutageMessage,
    "Fault of the app": reports.FaultMessage,
    "Health of a device": reports.DeviceHealth,
    "Ledger of a device": DeviceLedger,
    "Registry": document.RegistryDocument,
    "Node": NodeDocument,
    "Health file": reports.HealthFile,
    "Head of a session": SessionHead,
    "Line of a session": SessionLine,
    "Picture of an app": Picture,
}
"""The documents by their headings, those that are read most first."""
DOCUMENTS_HEAD = """# Documents

Generated from the types of the documents by `python scripts/reference.py`. `leadsman schema house:app` prints the same
as JSON Schema. [Topics](topics.md) has the topics, and [Monitor an app](../how-to/supervision.md) says what to watch.

A time is text as in RFC 3339, in UTC, such as `2026-11-28T18:04:15.123Z`. A field is always there, though it
may be null where the table says so, unless it is *optional*: then its meaning says when it is there. Ignore fields that
you do not know."""
HEAD = """# Command line

Generated from the parser by `python scripts/reference.py`. `leadsman COMMAND --help` says the same. These options
belong to several commands, each of which lists those that it takes:"""
Row = tuple[str, str]
"""An option, and its meaning."""
_SEVERAL = 3


def command_line() -> str:
    """The page about the command line."""
    common = common_options()
    rest = [*sections(common), "## Exit codes", f"```text\n{paragraphs(CODES)}\n```"]
    return "\n\n".join([HEAD, table(common), *rest]) + "\n"


def common_options() -> list[Row]:
    """The options that several commands have with one meaning; of one with two, the usual meaning."""
    counted = Counter(row for _, each in commands() for row in options(each))
    usual = {shown: meaning for (shown, meaning), _ in reversed(counted.most_common())}
    return [row for row, number in counted.items() if number >= _SEVERAL and usual[row[0]] == row[1]]


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands by their names."""
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def sections(common: list[Row]) -> Iterator[str]:
    """For each command its description, a table of its own options, the names of the common ones, and its examples."""
    for name, command in commands():
        yield f"## `leadsman {name}`"
        yield command.description or ""
        rows = options(command)
        if own := [row for row in rows if row not in common]:
            yield table(own)
        if also := [shown for shown, meaning in rows if (shown, meaning) in common]:
            yield f"{'Also' if own else 'It takes'} {', '.join(f'`{shown}`' for shown in also)}."
        examples = (command.epilog or "").partition("\n\nexit codes:\n")[0]
        yield f"```text\n{examples}\n```"


def options(command: argparse.ArgumentParser) -> list[Row]:
    """The options of one command, with their meanings."""
    rows = []
    for each in command._actions:
        if "--help" not in each.option_strings:
            shown = ", ".join(each.option_strings) or str(each.metavar or each.dest)
            value = f" {each.metavar}" if each.option_strings and each.metavar else ""
            rows.append((shown + value, (each.help or "").replace("|", "\\|")))
    return rows


def table(rows: list[Row]) -> str:
    """A table of options."""
    return "\n".join(["| option | meaning |", "|---|---|", *(f"| `{shown}` | {meaning} |" for shown, meaning in rows)])


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
    """The fields of one document: name, type with unit, whether it may be left out, meaning."""
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, each in schema["properties"].items():
        kind = " ".join(filter(None, (kind_text(each), f"({unit})" if (unit := unit_text(each)) else "")))
        optional = "" if name in schema.get("required", ()) else ", optional"
        meaning = plain(each.get("description", "")).replace("|", "\\|")
        rows.append(f"| `{name}` | {kind}{optional} | {meaning} |")
    return "\n".join(rows)


def kind_text(schema: Schema) -> str:
    """The type of a field for people: its values if they are listed, a link to the table of an object."""
    if "anyOf" in schema:
        return " or ".join(kind_text(each) for each in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        title = next((title for title, kind in DOCUMENTS.items() if kind.__name__ == name), name)
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
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
