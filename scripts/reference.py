"""Write docs/reference.md from the code: ``python scripts/reference.py``; with ``--check``, see that it is up to date.

An entry says where its name is imported from, then how it is called, then what its docstring says.
"""

import argparse
import ast
import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

LINE = 100
"""Characters of a signature that fit on one line."""
TARGET = Path(__file__).parent.parent / "docs" / "reference.md"
ADAPTERS = {
    "leadsman.adapters.adapter": ("Adapter",),
    "leadsman.threads": ("Worker",),
    "leadsman.adapters.serial.port": ("SerialPort", "Session"),
    "leadsman.adapters.serial.framing": ("LineFramer", "DelimiterFramer", "FixedFramer", "LengthPrefixedFramer"),
    "leadsman.adapters.serial.stuffing": ("SlipFramer", "CobsFramer", "HdlcFramer", "slip", "cobs", "hdlc"),
    "leadsman.adapters.serial.metering": ("P1Framer", "SmlFramer", "MBusFramer", "ModbusRtuFramer", "modbus_request"),
    "leadsman.adapters.serial.checksums": ("crc16_x25", "crc16_arc", "crc16_modbus", "sum8"),
    "leadsman.adapters.serial.optolink": ("Optolink",),
    "leadsman.adapters.serial.modbus": ("Modbus",),
    "leadsman.adapters.ble.radio": ("BleRadio", "BleDevice"),
    "leadsman.adapters.ble.advertisement": ("Advertisement", "Address", "checked_address"),
    "leadsman.adapters.ble.gatt": ("STANDARD", "Characteristic", "uuid_of", "unpack", "scaled", "sfloat", "float32"),
    "leadsman.adapters.ble.bthome": ("SERVICE", "decode"),
    "leadsman.adapters.caldav.calendar": ("CalDav",),
    "leadsman.adapters.caldav.recurrence": ("CalendarEvent",),
}
PROGRAMS = {"leadsman.cli.app_cli": ("command_line",)}
WORDS = {
    "@app.telemetry and @app.periodic": ("leadsman.registration.telemetry", "TelemetryOptions"),
    "@app.source": ("leadsman.registration.source", "SourceOptions"),
    "@app.command": ("leadsman.registration.command", "CommandOptions"),
}


def reference() -> str:
    """The whole page."""
    parts = ["## `leadsman`"]
    package = importlib.import_module("leadsman")
    for name in package.__all__:
        if not name.startswith("__"):
            value = getattr(package, name)
            where = importlib.import_module(value.__module__)
            kind = name if hasattr(value, "__name__") else type(value).__name__
            parts.append(_thing(where, kind, name, "leadsman"))
        if name == "App":
            parts.append(_thing(importlib.import_module("leadsman.registration.router"), "Registrar"))
    parts.append("## Options of registration")
    for title, (module, name) in WORDS.items():
        parts += [f"### `{title}`", _fields(_tree(importlib.import_module(module)), name)]
    parts.append("## Adapters")
    parts += _all_of(ADAPTERS)
    parts += ["## Errors", _doc(importlib.import_module("leadsman.errors")), _errors()]
    parts += ["## Topics", _doc(importlib.import_module("leadsman.mqtt.topics"))]
    parts.append("## `leadsman.testing`")
    testing = importlib.import_module("leadsman.testing")
    for name in testing.__all__:
        module = importlib.import_module(getattr(testing, name).__module__)
        parts.append(_thing(module, name, import_from="leadsman.testing"))
    parts += ["## Apps that are programs", *_all_of(PROGRAMS)]
    parts += ["## The command line", *_commands()]
    page = "\n\n".join(parts)
    head = "# Reference\n\nGenerated from the code by `python scripts/reference.py`. [All pages](README.md)"
    return f"{head}\n\n{_contents(page)}\n\n{page}\n"


def _all_of(modules: Mapping[str, Sequence[str]]) -> list[str]:
    return [_thing(importlib.import_module(module), name) for module, names in modules.items() for name in names]


def _contents(page: str) -> str:
    """A line for each section, with links to its entries."""
    rows, seen = list[str](), Counter[str]()
    for marks, title in re.findall(r"^(##|###) (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        link = f"[{title}](#{anchor}{f'-{seen[anchor]}' if seen[anchor] else ''})"
        seen[anchor] += 1
        if marks == "##":
            rows.append(f"* **{link}**")
        else:
            rows[-1] += f"{' ·' if rows[-1].count('](') > 1 else ':'} {link}"
    return "\n".join(rows)


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _doc(module: ModuleType) -> str:
    return _block(inspect.cleandoc(module.__doc__ or ""))


def _thing(module: ModuleType, name: str, shown: str | None = None, import_from: str | None = None) -> str:
    """The entry of what `module` calls `name`; `shown` and `import_from` where users know it by others."""
    body = _tree(module).body
    shown = shown or name
    head = f"### `{shown}`\n\n"
    imported = f"from {import_from or _public(module, name)} import {shown}"
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        match node:
            case ast.ClassDef(name=found) if found == name:
                return head + _class(node, shown if shown == name else None, imported)
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) if found == name:
                return head + _code(imported, _called(node)) + "\n\n" + _block(ast.get_docstring(node) or "")
            case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                return head + _code(imported) + "\n\n" + _words_of(after)
    raise SystemExit(f"{module.__name__} does not define {name}")


def _public(module: ModuleType, name: str) -> str:
    """The module that users import `name` from: the package of `module` where that has the name, too."""
    package = module.__name__.rpartition(".")[0]
    return package if name in getattr(importlib.import_module(package), "__all__", ()) else module.__name__


def _words_of(node: ast.stmt) -> str:
    """The docstring that stands below a constant or a field; nothing where there is none."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(words))):
            return " ".join(words.split()).replace("``", "`")
    return ""


def _class(node: ast.ClassDef, shown: str | None, imported: str) -> str:
    """A class; `shown` is None where its users never make one themselves."""
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    made = next((each for each in methods if each.name == "__init__"), None)
    parts = [_code(imported, _called(made, node.name) if made and shown else ""), _block(ast.get_docstring(node) or "")]
    rows = _attributes(node) if made is None else []
    for method in methods:
        words = ast.get_docstring(method)
        if not method.name.startswith("_") and words:
            kind = "async " if isinstance(method, ast.AsyncFunctionDef) else ""
            is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list)
            rows.append(f"* `{kind}{method.name}{'' if is_property else _arguments(method)}`: {_first(words)}")
    return "\n\n".join(parts) + ("\n\n" + "\n".join(rows) if rows else "")


def _attributes(node: ast.ClassDef) -> list[str]:
    """The fields of a record, with what is said below each."""
    rows = []
    for field, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_":
            words = _words_of(after)
            rows.append(f"* `{field.target.id}: {ast.unparse(field.annotation)}`{': ' if words else ''}{words}")
    return rows


def _errors() -> str:
    """All errors, below what they derive from."""
    tree = _tree(importlib.import_module("leadsman.errors"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]

    def below(parent: str, indent: str) -> list[str]:
        rows = []
        for node in classes:
            first, *others = [ast.unparse(base) for base in node.bases]
            if first == parent:
                also = f" (also a `{others[0]}`)" if others else ""
                rows.append(f"{indent}* `{node.name}`{also}: {_first(ast.get_docstring(node) or '')}")
                rows += below(node.name, indent + "  ")
        return rows

    rows = below("Exception", "")
    return "\n".join(
        ["All from `leadsman.errors`. One that is also a built-in error may be caught as that.", "", *rows]
    )


def _first(words: str) -> str:
    """The first paragraph, in one line."""
    return " ".join(words.split("\n\n")[0].split()).replace("``", "`")


def _code(*parts: str) -> str:
    return "```python\n" + "\n\n".join(part for part in parts if part) + "\n```"


def _called(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str | None = None) -> str:
    """How it is called; in several lines where one would be too long."""
    line = (name or node.name) + _arguments(node)
    if len(line) <= LINE:
        return line
    returns = line[line.rindex(")") + 1 :]
    return (name or node.name) + "(\n" + "".join(f"    {each},\n" for each in _parameters(node)) + ")" + returns


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Each parameter as it is written."""
    alone = ast.parse(f"def f{_arguments(node)}: ...").body[0]
    assert isinstance(alone, ast.FunctionDef)
    given = alone.args
    shown = []
    for kind, parameters, defaults in (
        ("", given.args, [*[None] * (len(given.args) - len(given.defaults)), *given.defaults]),
        ("*", [given.vararg] if given.vararg else [], [None]),
        ("", given.kwonlyargs, given.kw_defaults),
        ("**", [given.kwarg] if given.kwarg else [], [None]),
    ):
        if parameters is given.kwonlyargs and parameters and not given.vararg:
            shown.append("*")
        for parameter, default in zip(parameters, defaults, strict=False):
            shown.append(f"{kind}{ast.unparse(parameter)}{f' = {ast.unparse(default)}' if default else ''}")
    return shown


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    for each in [*node.args.args, *node.args.kwonlyargs, node.args.kwarg, node.args.vararg]:
        if each is not None:
            each.annotation = _unquoted(each.annotation)
    node.returns = _unquoted(node.returns)
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix("cls").removeprefix(", ")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return f"({arguments}){returns}"


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _fields(tree: ast.Module, name: str) -> str:
    rows = ["| word | type | meaning |", "|---|---|---|"]
    node = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    for field, words in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
            text = " ".join(str(words.value.value).split()).replace("``", "`").replace("|", "\\|")
            kind = ast.unparse(field.annotation).replace("|", "\\|")
            rows.append(f"| `{ast.unparse(field.target)}` | `{kind}` | {text} |")
    return "\n".join(rows)


def _block(text: str) -> str:
    """A docstring as it is written; only what begins its sections and literals is Markdown's."""
    return "```text\n" + text + "\n```" if "\n" in text else text.replace("``", "`")


def _commands() -> list[str]:
    from leadsman.cli.main import CODES, parser

    parts = []
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                rows = ["| option | meaning |", "|---|---|"]
                for each in command._actions:
                    shown = ", ".join(each.option_strings) or str(each.metavar or each.dest)
                    value = f" {each.metavar}" if each.option_strings and each.metavar else ""
                    rows.append(f"| `{shown}{value}` | {(each.help or '').replace('|', chr(92) + '|')} |")
                parts += [
                    f"### `leadsman {name}`",
                    command.description or "",
                    "\n".join(rows),
                    f"```text\n{command.epilog}\n```",
                ]
    return [*parts, f"```text\n{CODES}```"]


if __name__ == "__main__":
    if "--check" in sys.argv:
        raise SystemExit(
            TARGET.read_text("utf-8") != reference() and "docs/reference.md is old; run: python scripts/reference.py"
        )
    TARGET.write_text(reference(), "utf-8")
    sys.stderr.write(f"wrote {TARGET}\n")
