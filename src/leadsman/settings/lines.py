"""The line of each key of a settings file, for messages about it. The parsers give values without their places."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from leadsman.settings.model import SettingPath

if TYPE_CHECKING:
    from yaml import MappingNode, SequenceNode

Lines = Mapping[SettingPath, int]
"""The lines of keys, by the path of each; from 1 on. An item of a list has its number as its key."""

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*"
_HEADER = re.compile(rf"\s*\[\[?{_KEY}\]")
_ASSIGNMENT = re.compile(rf"{_KEY}=")
_PARTS = re.compile(_PART)
_TOKENS = re.compile(r'''"""|\'\'\'|"(?:[^"\\]|\\.)*"|'[^']*'|\#.*|[\[\]{}]''')
_ENDS = {'"""': re.compile(r'(?<!\\)(?:\\\\)*"""+'), "'''": re.compile("'''+")}


def line_of(lines: Lines, path: SettingPath) -> int | None:
    """The line of the key at a path, or of the table that it is in; None if neither is known."""
    return next((lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines), None)


def toml_lines(text: str) -> dict[SettingPath, int]:
    """The lines of the keys and of the tables in a text that is TOML. Keys within braces and brackets are left out."""
    found: dict[SettingPath, int] = {}
    items: dict[SettingPath, int] = {}
    """How many ``[[tables]]`` of each name there were."""
    table: SettingPath = ()
    end: re.Pattern[str] | None = None  # of a text of several lines, which the last line has begun
    depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        rest = line
        if end is not None:
            closing = end.search(line)
            if closing is None:
                continue
            end, rest = None, line[closing.end() :]
        elif depth == 0 and (header := _HEADER.match(line)) is not None:
            parts = _path(header[1])
            table = ()
            for length, part in enumerate(parts, 1):
                table = (*table, part)
                found.setdefault(table, number)
                if length == len(parts) and header[0].lstrip().startswith("[["):
                    items[table] = items.get(table, 0) + 1
                if table in items:
                    table = (*table, str(items[table] - 1))
                    found.setdefault(table, number)
            continue
        elif depth == 0 and (key := _ASSIGNMENT.match(line)) is not None:
            parts = _path(key[1])
            for length in range(len(parts)):
                found.setdefault((*table, *parts[: length + 1]), number)
            rest = line[key.end() :]
        depth, end = _after(rest, depth)
    return found


def yaml_lines(node: object) -> dict[SettingPath, int]:
    """The lines of the keys of a document that PyYAML has composed."""
    return dict(_keys_of(node, (), frozenset()))


def _path(key: str) -> SettingPath:
    return tuple(_unquoted(part) for part in _PARTS.findall(key))


def _unquoted(part: str) -> str:
    if part[0] == '"' and "\\" in part:
        import tomllib  # knows the escapes

        return str(tomllib.loads(f"it = {part}")["it"])
    return part[1:-1] if part[0] in "\"'" else part


def _after(text: str, depth: int) -> tuple[int, re.Pattern[str] | None]:
    """How many brackets are open after a piece of a value, and the end of the text that it has begun."""
    at = 0
    while (token := _TOKENS.search(text, at)) is not None:
        at = token.end()
        if (end := _ENDS.get(token[0])) is not None:
            closing = end.search(text, at)
            if closing is None:
                return depth, end
            at = closing.end()
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth = max(0, depth - 1)
    return depth, None


def _keys_of(node: object, path: SettingPath, above: frozenset[int]) -> Iterator[tuple[SettingPath, int]]:
    if id(node) in above:
        return
    if getattr(node, "id", "") == "sequence":
        for number, item in enumerate(cast("SequenceNode", node).value):
            yield (*path, str(number)), item.start_mark.line + 1
            yield from _keys_of(item, (*path, str(number)), above | {id(node)})
    if getattr(node, "id", "") != "mapping":
        return
    for key, value in cast("MappingNode", node).value:
        if isinstance(key.value, str) and not key.tag.endswith(":merge"):
            here = (*path, key.value)
            yield here, key.start_mark.line + 1
            yield from _keys_of(value, here, above | {id(node)})
