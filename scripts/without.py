"""Remove folders of the package from a copy of the checkout, and see that what is left stands alone: no module that is
left names what is gone, each can be imported, and the tests that are left pass.

Usage: ``python scripts/without.py NAME…``; ``all`` removes everything that can be removed. ``--tests PATH…`` runs these
tests in the copy, and not those of the core. ``--copy FOLDER`` makes the copy there and keeps it.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
REMOVABLE: dict[str, tuple[str, ...]] = {
    "discovery": ("extensions/discovery",),
    "http": ("extensions/http",),
    "nodes": ("extensions/nodes",),
    "sessions": ("extensions/sessions",),
    "ledger": ("extensions/ledger",),
    "doctor": ("tools/doctor",),
    "simulation": ("tools/simulation",),
    "difference": ("tools/difference",),
    "demo": ("tools/demo",),
}
"""What can be removed: its folder below `src/leadsman`. Its tests lie below the same name in `tests`."""
LISTS = ("__init__.py", "extensions/__init__.py", "tools/__init__.py")
"""The files that have a line for each thing that joins, or for its public names."""
CORE_TESTS = ("-n", "logical", "tests/core", "tests/integration")
IMPORT_ALL = """
import importlib, pkgutil, sys

def modules(path, prefix):
    for each in pkgutil.iter_modules(path, prefix):
        yield each.name
        if each.ispkg:
            yield from modules([f"{path[0]}/{each.name.rpartition('.')[2]}"], f"{each.name}.")

def fault(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # what leadsman does not bring may be missing
        return str(error) if (error.name or "").startswith("leadsman") else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None

import leadsman

names = [*modules(leadsman.__path__, "leadsman.")]
assert leadsman.__file__.startswith(sys.argv[1]) and len(names) > 100, leadsman.__file__
for name in names:
    if (why := fault(name)) is not None:
        print(f"{name} cannot be imported: {why}.")
"""
"""Prints a sentence for each module that cannot be imported."""


class Mention(NamedTuple):
    """A place at which a module names another one."""

    path: str
    """Below `src/leadsman`."""
    line: int
    name: str
    """The module that is named."""
    how: str
    """`top`, `typing` (only for type checkers), `local` (in a function), or `text`: a string to import it by."""

    def __str__(self) -> str:
        what = {"typing": "imports, for types,", "local": "imports, in a function,", "text": "has a text with"}
        return f"{self.path}:{self.line} {what.get(self.how, 'imports')} {self.name}."


def mentions(source: Path) -> Iterator[Mention]:
    """Each mention of a module of leadsman in the modules below a folder, `src/leadsman` of a checkout."""
    for path in sorted(source.rglob("*.py")):
        yield from _mentions_of(path.relative_to(source).as_posix(), ast.parse(path.read_text()))


def _mentions_of(path: str, node: ast.AST, how: str = "top") -> Iterator[Mention]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Mention(path, child.lineno, each.name, how) for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (Mention(path, child.lineno, f"{module}.{each.name}", how) for each in names)
            case ast.Constant(value=str(text)) if re.fullmatch(r"leadsman(\.\w+)+(:\w+)?", text):
                yield Mention(path, child.lineno, text.replace(":", "."), "text")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _mentions_of(path, child, "local")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _mentions_of(path, child, "typing")
            case _:
                yield from _mentions_of(path, child, how)


def package(path: str) -> str:
    """The dotted name of a folder or file below `src/leadsman`."""
    return ".".join(("leadsman", *Path(path).with_suffix("").parts))


def names_one(text: str, packages: Iterable[str]) -> bool:
    """Whether a dotted name is one of the packages, or in one."""
    return any(f"{text}.".startswith(f"{each}.") for each in packages)


def breaches(source: Path, gone: Iterable[str]) -> list[Mention]:
    """The places below `source`, outside what is gone, that name what is gone. Each is a broken wall.

    Args:
        source: `src/leadsman` of a checkout.
        gone: what is removed, of `REMOVABLE`.
    """
    return breaches_of([*mentions(source)], gone)


def breaches_of(found: Iterable[Mention], gone: Iterable[str]) -> list[Mention]:
    """As `breaches`, of mentions that were found before."""
    packages = [package(path) for each in gone for path in REMOVABLE[each]]
    return [
        each
        for each in found
        if names_one(each.name, packages)
        and not names_one(package(each.path), packages)
        and not (each.how in ("text", "typing") and each.path in LISTS)  # its line there goes with it
    ]


def copy_without(gone: Iterable[str], target: Path) -> Path:
    """Copy the checkout without what is gone: folders, tests, and lines in the lists. The copy gets an environment of
    its own, which finds the libraries of this one. What no test changes is linked.

    Returns:
        The Python of the copy.
    """
    target.mkdir(parents=True, exist_ok=True)
    for each in ROOT.iterdir():
        if each.name in ("src", "tests"):
            shutil.copytree(each, target / each.name)
        elif each.name not in (".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "build"):
            (target / each.name).symlink_to(each.resolve())
    source = target / "src" / "leadsman"
    for name in gone:
        for path in REMOVABLE[name]:
            for place in (source / path, target / "tests" / path):
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink(missing_ok=True)
    for file in LISTS:
        if (path := source / file).exists():
            path.write_text(_without_lines(path.read_text(), *gone))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target / ".venv"], check=True)
    libraries = Path(sysconfig.get_path("purelib", vars={"base": str(target / ".venv")}))
    (libraries / "copy.pth").write_text(f"{target / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return target / ".venv" / "bin" / "python"


def _without_lines(text: str, *gone: str) -> str:
    """A file with lists, without the elements that name what is gone."""
    packages = [package(path) for each in gone for path in REMOVABLE[each]]
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line.encode()))

    def is_gone(node: ast.AST) -> bool:
        texts = [
            each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        return any(names_one(each, packages) for each in texts)

    spans, public = [], set()
    for node in ast.walk(tree := ast.parse(text)):
        if isinstance(node, ast.Dict):
            public |= {
                key.value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and is_gone(value)
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            items = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None]
            pairs = [each for each in items if any(map(is_gone, each))]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):  # `__all__` has the keys of the table of public names
            pairs = [
                (each, each)
                for each in node.elts
                if is_gone(each) or (isinstance(each, ast.Constant) and each.value in public)
            ]
        else:
            continue
        for first, last in pairs:
            begin = offsets[first.lineno - 1] + first.col_offset
            spans.append((begin, offsets[last.end_lineno - 1] + last.end_col_offset))
    raw, next_begin = text.encode(), len(text.encode())
    for begin, end in sorted(spans, key=lambda span: (-span[1], span[0])):  # those inside another one come after it
        if end <= next_begin:
            raw, next_begin = raw[:begin] + re.sub(rb"^\s*,", b"", raw[end:], count=1), begin
    return raw.decode()


def import_faults(python: Path, target: Path) -> list[str]:
    """A sentence for each module of a copy that cannot be imported."""
    ran = subprocess.run(
        [python, "-c", IMPORT_ALL, target], cwd=target, capture_output=True, text=True, env=_environment(), check=False
    )
    return [*ran.stdout.splitlines(), *([ran.stderr] if ran.returncode else [])]


def run_tests(python: Path, target: Path, *options: str) -> int:
    """Run tests of a copy.

    Returns:
        The exit code of pytest.
    """
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=target, env=_environment(), check=False).returncode


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*REMOVABLE, "all"], metavar="NAME", help="what to remove")
    parser.add_argument(
        "--tests", nargs=argparse.REMAINDER, default=CORE_TESTS, help="the tests to run, with options of pytest"
    )
    parser.add_argument("--copy", type=Path, help="where the copy is made, and kept")
    given = parser.parse_args()
    gone = [*REMOVABLE] if "all" in given.names else given.names
    with tempfile.TemporaryDirectory(prefix="leadsman-without-") as directory:
        target = (given.copy or Path(directory)).resolve()
        python = copy_without(gone, target)
        faults = [*map(str, breaches(target / "src" / "leadsman", gone)), *import_faults(python, target)]
        for each in faults:
            sys.stdout.write(f"{each}\n")
        sys.stdout.flush()
        passed = not given.tests or run_tests(python, target, "-q", *given.tests) == 0
    return 0 if passed and not faults else 1


if __name__ == "__main__":
    raise SystemExit(main())
