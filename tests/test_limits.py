"""Limits that keep leadsman and its apps easy to read. Lines have none: a file is one noun of the domain."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("apps/*/src/**/*.py")])

PARAMETERS = 8
REGISTRATION = frozenset(
    {
        "src/leadsman/core/app.py:App.__init__",
        "src/leadsman/core/mqtt/broker.py:Broker.__init__",
        "src/leadsman/core/readings/sensor.py:Sensor.__init__",
        "src/leadsman/adapters/ble/radio.py:BleRadio.__init__",
        "src/leadsman/adapters/caldav/calendar.py:CalDav.__init__",
        "src/leadsman/adapters/http/client.py:HttpClient.__init__",
        "src/leadsman/adapters/modbus/table.py:Register.__init__",
        "src/leadsman/adapters/serial/port.py:SerialPort.__init__",
    }
)
"""What a user registers with, or writes beside a field, has a parameter for each option."""
OTHERS = 1
"""Functions with more parameters besides those."""
LINES_WITH_ANY = 286
"""Each for a library without types, for JSON, or for what a handler returns."""


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def functions(path):
    """The functions of a file, with their names as in ``Class.method``."""

    def inside(node, owner):
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{owner}{each.name}", each
            name = f"{owner}{each.name}." if isinstance(each, ast.ClassDef | ast.FunctionDef) else owner
            yield from inside(each, name)

    return inside(ast.parse(path.read_text()), "")


def parameters(function):
    """The number of its parameters, without ``self``."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_a_function_with_many_parameters_is_what_users_register_with():
    found = {
        f"{name_of(path)}:{name}" for path in SOURCES for name, node in functions(path) if parameters(node) > PARAMETERS
    }

    assert len(found - REGISTRATION) <= OTHERS, sorted(found - REGISTRATION)
    assert found >= REGISTRATION, "some of them have few parameters by now; take them out of the list"


def test_few_lines_give_up_types():
    counts = {name_of(path): len(re.findall(r"^.*\bAny\b.*$", path.read_text(), re.MULTILINE)) for path in SOURCES}

    total = sum(counts.values())

    assert total <= LINES_WITH_ANY, sorted(counts.items(), key=lambda item: -item[1])[:20]


def test_the_formatter_has_no_exceptions():
    python = [
        path for folder in ("src", "apps", "tests", "benchmarks", "scripts") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    mark = re.compile("# fmt:" + " (skip|off)")

    assert [name_of(path) for path in python if mark.search(path.read_text())] == []
