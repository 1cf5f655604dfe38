"""Prints documents for a person. A document is declared once, as a type: the names of its fields, and which of them are
times, durations or sizes, are read from there."""

from collections.abc import Callable, Container, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from leadsman.core.document import Written
from leadsman.core.introspection.situation import span
from leadsman.core.loop.clock import rfc3339
from leadsman.core.text import clean
from leadsman.tools.cli.tables import print_record, table
from leadsman.tools.cli.times import local, zone

Document = Mapping[str, object]
"""As an app sends it: a field that its type declares may be missing, or be something else."""
Cells = Mapping[str, Callable[[Any], str]]
"""The columns of a table by their heads: what each shows of a document."""


def print_document(title: str, document: Document, kind: object) -> None:
    """Print a document: a line for each field that is neither null nor empty, and then a table for each list or mapping
    of documents in it. What its type does not declare is left out.

    Args:
        title: stands before the first field.
        document: the document.
        kind: its type.
    """
    parts = {name: part for name, field in _fields(kind).items() if is_typeddict(part := _part(field))}
    print_record([(title, ""), *((head, cell(document)) for head, cell in cells_of(kind, without=parts).items())])
    for name, part in parts.items():
        match document.get(name):
            case list(found):
                print_table((), [(each,) for each in found], cells_of(part))
            case dict(found):
                print_table((_words(name.removesuffix("s")),), [*found.items()], cells_of(part))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]], cells: Cells) -> None:
    """Print equal documents, a row for each. A column that is empty in every row is left out, and so is a table without
    rows.

    Args:
        heads: of what names a document.
        rows: what names a document, and the document.
        cells: the columns about the document.
    """
    columns = {head: [str(row[place]) for row in rows] for place, head in enumerate(heads)}
    columns |= {head: [cell(row[-1]) for row in rows] for head, cell in cells.items()}
    shown = {head: column for head, column in columns.items() if any(column)}
    if shown:
        print("\n" + table(tuple(shown), list(zip(*shown.values(), strict=True))))


def cells_of(kind: object, without: Container[str] = ()) -> Cells:
    """A column for each field of a document."""
    fields = {name: field for name, field in _fields(kind).items() if name not in without}
    return {_head(name, field): _cell(name, field) for name, field in fields.items()}


def text_of(value: object, kind: object = object) -> str:
    """A value for a person, in the unit and the form that its type declares; empty for null."""
    bare, written = _meaning(kind)
    match value, written:
        case None, _:
            return ""
        case bool(), _:
            return "yes" if value else "no"
        case int() | float(), {"unit": "s"}:
            return span(value)
        case int() | float(), {"unit": "s since 1970"}:
            return local(rfc3339(value))
        case int() | float(), {"unit": unit}:
            return f"{value:,} {unit}"
        case str(), {"format": "date-time"}:
            return local(value)
        case list(), _:
            return ", ".join(map(text_of, value))
        case dict(), _:
            fields = _fields(bare)
            known = {_head(name, field): text_of(value.get(name), field) for name, field in fields.items()}
            others = {clean(name): text_of(each) for name, each in value.items() if name not in fields}
            return ", ".join(f"{head}: {text}" for head, text in (known | others).items() if text)
    return clean(str(value))


def _fields(kind: object) -> Mapping[str, object]:
    """The fields of a document with their types; none of what is not declared."""
    return get_type_hints(kind, include_extras=True) if is_typeddict(kind) else {}


def _part(kind: object) -> object:
    """The type of the members of a list or a mapping; None of what is neither."""
    bare, _ = _meaning(kind)
    return get_args(bare)[-1] if get_origin(bare) in (list, dict) else None


def _meaning(kind: object) -> tuple[object, Mapping[str, str]]:
    """A type without what says that it may be left out or be null, and how its values are written."""
    if get_origin(kind) in (NotRequired, Union, UnionType):
        return _meaning(next(each for each in get_args(kind) if each is not NoneType))
    beside = getattr(kind, "__metadata__", ())
    written = next((each.words for each in beside if isinstance(each, Written)), {})
    return (_meaning(get_args(kind)[0])[0] if beside else kind), written


def _cell(name: str, field: object) -> Callable[[Document], str]:
    return lambda document: text_of(document.get(name), field)


def _head(name: str, field: object) -> str:
    is_time = _meaning(field)[1] in ({"format": "date-time"}, {"unit": "s since 1970"})
    return _words(name) + (f" ({zone()})" if is_time else "")


def _words(name: str) -> str:
    return name.replace("_", " ")
