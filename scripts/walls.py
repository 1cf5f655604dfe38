"""Print what the walls of the package are measured by: code lines of the core and of what is left without all that can
be left out, fields of `Core` that a part or an extension types, and imports from the core into the extensions.

Usage: ``python scripts/walls.py``. A code line is one that is not blank, and no comment or docstring.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from without import REMOVABLE, ROOT, mentions, names_one, package

SOURCE = ROOT / "src" / "leadsman"
BESIDE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
LIST = "leadsman.extensions"
"""The list of what is shipped: the only module of the extensions that the core imports."""
PARTS = ("leadsman.core.parts", "leadsman.extensions")


def code_lines(path: Path) -> int:
    """The code lines of a file."""
    source, lines = path.read_bytes(), set[int]()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in BESIDE and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            match each:
                case ast.Expr(value=ast.Constant(value=str())):
                    lines.difference_update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return len(lines)


def lines_of(paths: Iterable[Path]) -> int:
    """The code lines of files."""
    return sum(map(code_lines, paths))


def left() -> list[Path]:
    """The files that are left without all that can be left out."""
    packages = [package(path) for paths in REMOVABLE.values() for path in paths]
    files = sorted(SOURCE.rglob("*.py"))
    return [each for each in files if not names_one(package(each.relative_to(SOURCE).as_posix()), packages)]


def fields_typed_by_parts() -> list[str]:
    """The attributes of `Core` whose annotations name what a part or an extension defines."""
    tree = ast.parse((SOURCE / "core" / "wiring" / "core.py").read_text())
    foreign = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and names_one(node.module or "", PARTS)
        for alias in node.names
    }
    (core,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Core")
    typed = [
        (ast.unparse(node.target), node.annotation)
        if isinstance(node, ast.AnnAssign)
        else (node.name, node.returns or ast.Constant(None))
        for node in ast.walk(core)
        if isinstance(node, ast.AnnAssign | ast.FunctionDef)
    ]
    return [name for name, annotation in typed if any(word in ast.unparse(annotation) for word in foreign)]


def main() -> None:
    core = sorted((SOURCE / "core").rglob("*.py"))
    imports = [each for each in mentions(SOURCE) if each.path.startswith("core/") and names_one(each.name, [LIST])]
    of_list = [each for each in imports if each.name == LIST or each.name.removeprefix(f"{LIST}.") in LISTED]
    counted = Counter(each.how for each in imports if each not in of_list)
    typed = fields_typed_by_parts()
    rows = (
        ("code lines of src", lines_of(SOURCE.rglob("*.py"))),
        ("code lines of the core", lines_of(core)),
        ("code lines of what is left without all that can be left out", lines_of(left())),
        ("fields of Core typed by a part", len(typed)),
        ("imports from the core into the extensions, at the top", counted["top"]),
        ("for types only", counted["typing"]),
        ("in functions", counted["local"]),
        ("in texts", counted["text"]),
        ("imports of the list of what is shipped", len(of_list)),
    )
    sys.stdout.writelines(f"{number:>7,}  {what}\n" for what, number in rows)
    sys.stdout.writelines(f"{each}\n" for each in (*imports, *typed))


def _names_of_list() -> frozenset[str]:
    tree = ast.parse((SOURCE / "extensions" / "__init__.py").read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return frozenset(names)


LISTED = _names_of_list()
"""The functions, classes and tables of the list."""

if __name__ == "__main__":
    main()
