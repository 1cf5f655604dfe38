"""Write docs/reference.md from the code: ``python scripts/reference.py``; with ``--check``, see that it is up to date."""

import argparse
import ast
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

TARGET = Path(__file__).parent.parent / "docs" / "reference.md"
ADAPTERS = {
    "leadsman.adapters.adapter": ("Adapter",),
    "leadsman.adapters.serial": ("SerialPort", "Session"),
    "leadsman.adapters.framing": ("LineFramer", "DelimiterFramer", "FixedFramer", "LengthPrefixedFramer"),
    "leadsman.adapters.stuffing": ("SlipFramer", "CobsFramer", "HdlcFramer", "slip", "cobs", "hdlc"),
    "leadsman.adapters.metering": ("P1Framer", "SmlFramer", "MBusFramer", "ModbusRtuFramer", "modbus_request"),
    "leadsman.adapters.checksums": ("crc16_x25", "crc16_arc", "crc16_modbus", "sum8"),
    "leadsman.adapters.optolink": ("Optolink",),
    "leadsman.adapters.ble": ("BleRadio", "BleDevice"),
    "leadsman.adapters.adverts": ("Advertisement", "checked_address"),
    "leadsman.adapters.gatt": ("uuid_of", "unpack", "scaled", "sfloat", "float32"),
    "leadsman.adapters.bthome": ("decode",),
    "leadsman.adapters.caldav": ("CalDav",),
    "leadsman.adapters.occurrences": ("Event",),
}
WORDS = {
    "@app.telemetry and @app.periodic": ("leadsman.telemetry", "Words"),
    "@app.source": ("leadsman.source", "SourceWords"),
    "@app.command": ("leadsman.command", "CommandWords"),
}


def reference() -> str:
    """The whole page."""
    parts = ["# Reference", "Generated from the code by `python scripts/reference.py`.", "## `leadsman`"]
    package = importlib.import_module("leadsman")
    for name in package.__all__:
        if not name.startswith("__"):
            value = getattr(package, name)
            where = importlib.import_module(value.__module__)
            kind = name if hasattr(value, "__name__") else type(value).__name__
            parts.append(_thing(where, kind).replace(f"`{kind}`", f"`{name}`", 1))
        if name == "App":
            parts.append(_thing(importlib.import_module("leadsman.registrar"), "Registrar", where="leadsman.registrar"))
    parts.append("## Words of registration")
    for title, (module, name) in WORDS.items():
        parts += [f"### `{title}`", _fields(_tree(importlib.import_module(module)), name)]
    parts.append("## Adapters")
    for module, names in ADAPTERS.items():
        parts += [_thing(importlib.import_module(module), name, where=module) for name in names]
    parts += ["## Errors", _doc(importlib.import_module("leadsman.errors"))]
    parts += ["## Topics", _doc(importlib.import_module("leadsman.mqtt.topics"))]
    parts.append("## `leadsman.testing`")
    testing = importlib.import_module("leadsman.testing")
    for name in testing.__all__:
        parts.append(_thing(importlib.import_module(getattr(testing, name).__module__), name))
    parts += ["## The command line", *_commands()]
    return "\n\n".join(parts) + "\n"


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _doc(module: ModuleType) -> str:
    return _block(inspect.cleandoc(module.__doc__ or ""))


def _thing(module: ModuleType, name: str, where: str | None = None) -> str:
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _class(node, where)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return f"### `{name}{_arguments(node)}`\n\n{_block(ast.get_docstring(node) or '')}"
    raise SystemExit(f"{module.__name__} does not define {name}")


def _class(node: ast.ClassDef, where: str | None) -> str:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    made = next((each for each in methods if each.name == "__init__"), None)
    parts = [f"### `{node.name}{_arguments(made) if made else ''}`", _block(ast.get_docstring(node) or "")]
    if where:
        parts[1] = f"From `{where}`.\n\n{parts[1]}"
    for method in methods:
        words = ast.get_docstring(method)
        if not method.name.startswith("_") and words:
            kind = "async " if isinstance(method, ast.AsyncFunctionDef) else ""
            is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list)
            parts.append(f"* `{kind}{method.name}{'' if is_property else _arguments(method)}`: {_first(words)}")
    return "\n\n".join(parts[:2]) + ("\n\n" + "\n".join(parts[2:]) if parts[2:] else "")


def _first(words: str) -> str:
    """The first paragraph, in one line."""
    return " ".join(words.split("\n\n")[0].split()).replace("``", "`")


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
    rows = ["| word | type | |", "|---|---|---|"]
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
                rows = ["| | |", "|---|---|"]
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
