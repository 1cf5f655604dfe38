"""Reads settings files: TOML, and YAML where PyYAML is installed. A file that would take seconds or much memory to read
is refused with a reason. The parsers give values without their places, so the line of each key is found besides, for
messages about it."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from leadsman.core.settings.model import SettingPath
from leadsman.core.storage.given_file import read_given
from leadsman.core.text import clean
from leadsman.errors import SettingsError, missing

if TYPE_CHECKING:
    from yaml import MappingNode, SafeLoader, SequenceNode

MAX_FILE_BYTES = 256 * 1024
"""Bytes of a file. People write settings, so a larger file is a mistake; PyYAML takes a second for it."""
MAX_VALUES = 100_000
"""Values in a file of YAML, with each alias counted as what it stands for."""
MAX_NUMBER_CHARS = 100
"""Characters of a number."""
MAX_KEY_PARTS = 100
"""Parts of a dotted key."""
_DEEP = r"(?:[\[{]\s*){50}"
"""Fifty brackets in a row. PyYAML needs seconds for them, and how deep the other parsers read depends on the Python."""
_QUOTED = r"'[^'<]{2,}'"
"""A text that an error of PyYAML quotes from the file, which may be a part of a secret. Kinds of tokens are in
``<>``."""
_OF_YAML_1_1 = (":bool", ":int", ":float", ":timestamp")
_BOOLEAN = r"(?:true|True|TRUE|false|False|FALSE)$"
_INTEGER = r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"
_FLOAT = (
    r"[-+]?(?:(?:0|[1-9][0-9_]*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?|(?:0|[1-9][0-9_]*)\.(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
"""With _ in numbers, as TOML and YAML 1.1 have them, and with a point, as PyYAML has it."""
_PARTS = r"[=,{}\[\]\n]"

Node = Any
"""A node of PyYAML."""
Lines = Mapping[SettingPath, int]
"""The lines of keys, by the path of each; from 1 on. An item of a list has its number as its key."""

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*"
_HEADER = rf"\s*\[\[?{_KEY}\]"
_ASSIGNMENT = rf"{_KEY}="
_TOKENS = r'''"""|\'\'\'|"(?:[^"\\]|\\.)*"|'[^']*'|\#.*|[\[\]{}]'''
_ENDS = {'"""': r'(?<!\\)(?:\\\\)*"""+', "'''": "'''+"}


class SettingsFile(NamedTuple):
    """A settings file that was read."""

    values: dict[str, object]
    lines: Callable[[], Lines]
    """Finds the line of each key, at its first call: most files have no fault. It keeps only the text of the file."""


class _UnsafeError(Exception):
    """A document is not taken. The message shows no value of it."""


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark.

    Raises:
        SettingsError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        data = read_given(path, MAX_FILE_BYTES)
    except OSError as error:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        match error:
            case FileNotFoundError():
                what = f"{where}; correct the path"
            case IsADirectoryError():  # what Docker makes of a file to mount that is not there
                what = "; write the path of a file, or remove the directory"
            case PermissionError():
                what = "; allow the user of the app to read it"
            case _:
                what = ""
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}{what}") from None
    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(
            f"{path} has more than {MAX_FILE_BYTES} bytes, which is too large for a settings file; write settings only"
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SettingsError(f"{path} is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SettingsError(f"{path} is not UTF-8 (line {line}); save it as UTF-8") from None


def toml_document(path: Path, text: str) -> SettingsFile:
    """Read TOML.

    Raises:
        SettingsError: it is not TOML.
    """
    import tomllib  # only apps with a settings file import it

    if any(part.count(".") >= MAX_KEY_PARTS for part in re.split(_PARTS, text)):
        raise SettingsError(f"{path} has a key of {MAX_KEY_PARTS} parts or more; write fewer dots in a row")
    if re.search(_DEEP, text):
        raise SettingsError(f"{path} is not TOML: it has 50 brackets in a row; write fewer")
    try:
        document = tomllib.loads(text)
        _check_integers(document)
    except (ValueError, RecursionError) as error:  # also of int(), for a number of thousands of digits
        raise SettingsError(f"{path} is not TOML: {clean(str(error))}{_toml_cure(text, str(error))}") from None
    return SettingsFile(document, cache(lambda: toml_lines(text)))


def _toml_cure(text: str, fault: str) -> str:
    """What to write in place of what TOML does not take, by the line of the fault. The line is not shown: it may be a
    secret."""
    if fault.startswith("Cannot "):  # overwrite, declare, or mutate
        return "; write each key and each section once"
    place = re.search(r"\(at line (\d+),", fault)
    lines = text.split("\n")
    line = lines[int(place[1]) - 1].strip() if place else text.rstrip().rpartition("\n")[2].strip()
    _, equals, rest = line.partition("=")
    value = re.split(r"(?:^|\s)#", rest.strip(), maxsplit=1)[0].strip()
    for cure, found in (
        ("close the bracket", fault.startswith("Unclosed")),
        ("close the quotes", fault.startswith("Unterminated")),
        ("begin a comment with #", line.startswith((";", "//", "/*"))),
        ("close the bracket: [section]", line.startswith("[") and not equals and "]" not in line),
        ("write [section], and key = value below it", line.startswith("{") or line.endswith("{")),
        ("write key = value; the name of a file with 'key: value' ends in .yaml", ":" in line and not equals),
        ("write key = value", not equals),
        ("write straight quotes, \"…\" or '…'", value[:1] in tuple("“”„‘’«»`´")),
        ("write a value after =, or leave the key out", not value),
        ("write true or false, in small letters", value.lower() in ("true", "false", "yes", "no", "on", "off")),
        ("leave out a key that has no value", value.lower() in ("none", "null", "nil", "~")),
        ("write a decimal point: 1.5", re.fullmatch(r"[-+]?\d+,\d+", value) is not None),
        ("leave out the comma at its end", value.endswith(",")),
        ("leave out the zeros before the number, or write it in quotes", re.fullmatch(r"[-+]?0\d+", value) is not None),
        ("write a text with \\ in single quotes: '…'", value.startswith('"') and "\\" in value),
        ("close the quotes", value[:1] in ("'", '"')),
        ("close the bracket", value[:1] in ("[", "{")),
    ):
        if found:
            return f"; {cure}"
    return "; write text in quotes"


def _check_integers(value: object) -> None:
    """An integer of TOML has 64 bits. One of thousands of digits cannot even be shown in an error."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"a number has {value.bit_length():,} bits; 64 are allowed")
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_integers(each)


def yaml_document(path: Path, text: str) -> SettingsFile:
    """Read YAML: without tags that make objects, keys that are there twice, and aliases of aliases that unfold to more
    than `MAX_VALUES`.

    Raises:
        SettingsError: it is not YAML, is a bomb, or PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise SettingsError(f"{missing(f'settings in {path}', 'PyYAML', 'yaml')}; or write leadsman.toml") from None
    if re.search(_DEEP, text):
        raise SettingsError(f"{path} is not YAML: it has 50 brackets in a row; write fewer")
    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}) > MAX_VALUES:
            raise SettingsError(f"{path} has aliases that stand for more than {MAX_VALUES:,} values; write fewer")
        document = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" in line {mark.line + 1}"
        problem = error.problem or error.context or "it cannot be parsed"
        why = re.sub(_QUOTED, "'…'", problem)
        raise SettingsError(f"{path} is not YAML: {clean(why)}{where}{_yaml_cure(problem)}") from None
    except yaml.YAMLError:  # its message shows the character
        raise SettingsError(f"{path} is not YAML: special characters are not allowed") from None
    except _UnsafeError as error:
        raise SettingsError(f"{path} is not YAML: {clean(str(error))}") from None
    except RecursionError:
        raise SettingsError(f"{path} is not YAML: its sections are too deep (recursion)") from None
    except ValueError:  # of PyYAML, whose message shows the value
        raise SettingsError(f"{path} has a number or a date that cannot be read; write text in quotes") from None
    except (LookupError, AttributeError, TypeError):  # of PyYAML, for a scalar that does not fit its tag
        raise SettingsError(f"{path} has a value that does not fit its tag, such as !!bool; leave tags out") from None
    if document is None:
        return SettingsFile({}, dict)
    if not isinstance(document, dict):
        raise SettingsError(f"{path} does not contain a mapping; write 'key: value' lines")
    return SettingsFile(document, cache(lambda: yaml_lines(text)))


def _yaml_cure(problem: str) -> str:
    """What to write in place of what PyYAML does not take, by what it says."""
    for begins, cure in (
        (r"found character '\t'", "indent with spaces, and not with tabs"),
        ("found character", "write text with special characters in quotes"),
        ("mapping values are not allowed", "write text with ': ' in it in quotes, and keys of a section in one column"),
        ("could not determine a constructor", "leave tags out"),
        ("but found another document", "write one document, without ---"),
        ("expected <block end>", "write the keys of a section in one column"),
        ("could not find expected ':'", "write key: value"),
        ("expected ',' or", "close the bracket"),
        ("found unexpected end of stream", "close the quotes"),
    ):
        if problem.startswith(begins):
            return f"; {cure}"
    return ""


@cache
def _loader() -> "type[SafeLoader]":
    """Reads values as YAML 1.2 does (§10.3.2, the core schema). PyYAML follows YAML 1.1: ``off`` and ``no`` are false,
    ``0123`` is 83, ``1:30`` is 90, and a date is no text (home-assistant/core#19210): a word, a password or a
    time of day would not be what the file shows. They are text here, which whatever reads a switch or a date takes."""
    import yaml

    class Loader(yaml.SafeLoader): ...

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(_OF_YAML_1_1)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(_BOOLEAN), list("tTfF"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(_INTEGER), list("-+0123456789"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_FLOAT), list("-+0123456789."))
    return Loader


def yaml_lines(text: str) -> Lines:
    """The lines of the keys of YAML that was read before. A key that a ``<<`` brings has the line where it is
    written."""
    loader = _loader()(text)
    try:
        node = loader.get_single_node()
        loader.construct_document(node)  # puts what each << brings in its place
        return dict(_keys_of(node, (), frozenset()))
    except RecursionError:  # the fault was found deeper in the program than the file was read
        return {}


def _size(node: Node, known: dict[int, int | None]) -> int:
    """How many values a node stands for.

    Raises:
        _UnsafeError: a key is there twice, a number is too long, or a node contains itself.
    """
    if isinstance(node.value, str):
        if node.tag.endswith((":int", ":float")) and len(node.value) > MAX_NUMBER_CHARS:
            raise _UnsafeError(f"a number has {len(node.value)} characters; {MAX_NUMBER_CHARS} are allowed")
        return 1
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise _UnsafeError(f"line {node.start_mark.line + 1} contains itself")
        return size
    known[id(node)] = None
    size, keys = 1, set[Hashable]()
    for each in node.value:
        key, value = each if isinstance(each, tuple) else (None, each)
        if key is not None and isinstance(key.value, str) and not key.tag.endswith(":merge"):
            if (key.tag, key.value) in keys:
                raise _UnsafeError(f"the key {key.value!r} in line {key.start_mark.line + 1} is there twice")
            keys.add((key.tag, key.value))
        elif key is not None:
            size += _size(key, known)
        size += _size(value, known)
    known[id(node)] = size
    return size


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
        elif depth == 0 and (header := re.match(_HEADER, line)) is not None:
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
        elif depth == 0 and (key := re.match(_ASSIGNMENT, line)) is not None:
            parts = _path(key[1])
            for length in range(len(parts)):
                found.setdefault((*table, *parts[: length + 1]), number)
            rest = line[key.end() :]
        depth, end = _after(rest, depth)
    return found


def _path(key: str) -> SettingPath:
    return tuple(_unquoted(part) for part in re.findall(_PART, key))


def _unquoted(part: str) -> str:
    if part[0] == '"' and "\\" in part:
        import tomllib  # decodes the escapes

        return str(tomllib.loads(f"it = {part}")["it"])
    return part[1:-1] if part[0] in "\"'" else part


def _after(text: str, depth: int) -> tuple[int, re.Pattern[str] | None]:
    """How many brackets are open after a piece of a value, and the end of the text that it has begun."""
    at = 0
    tokens = re.compile(_TOKENS)
    while (token := tokens.search(text, at)) is not None:
        at = token.end()
        if token[0] in _ENDS:
            end = re.compile(_ENDS[token[0]])
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
