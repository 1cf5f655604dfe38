"""What can be left out of the package can be: nothing that is left names it, and what is left works."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DAY = ("tests/core/system/test_alone.py", "tests/integration/test_own_part.py", "tests/integration/test_lifespan.py")
"""The tests of the core that run by day without all that can be left out. By night all do, without each."""
ARGUMENTS = {"discovery", "http", "standby", "cluster", "sessions"}
"""Arguments and settings sections of what can be left out."""
SECTION = re.compile(r'"sections": ?\[[^]]*"(ledger|recent)"')
"""A request for a section of what can be left out."""


def script():
    """`scripts/without.py`, imported."""
    spec = importlib.util.spec_from_file_location("without", ROOT / "scripts" / "without.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WITHOUT = script()


@pytest.fixture(scope="module")
def mentions():
    return [*WITHOUT.mentions(ROOT / "src" / "leadsman")]


@pytest.mark.parametrize("gone", WITHOUT.REMOVABLE)
def test_nothing_names_what_can_be_left_out(mentions, gone):
    assert [*map(str, WITHOUT.breaches_of(mentions, [gone]))] == []


@pytest.mark.slow
@pytest.mark.parametrize("gone", WITHOUT.REMOVABLE)
def test_without_it_all_that_is_left_can_be_imported(gone, tmp_path):
    python = WITHOUT.copy_without([gone], tmp_path)

    assert WITHOUT.import_faults(python, tmp_path) == []


@pytest.mark.system
def test_without_all_of_them_an_app_polls_retries_keeps_readings_on_disk_and_answers(tmp_path):
    python = WITHOUT.copy_without(WITHOUT.REMOVABLE, tmp_path)

    assert WITHOUT.import_faults(python, tmp_path) == []
    assert WITHOUT.run_tests(python, tmp_path, "-q", *DAY) == 0


def needs(text):
    """What a test needs of what can be left out, as its text shows it: imports, arguments, settings, sections."""
    tree = ast.parse(text)
    packages = [WITHOUT.package(path) for paths in WITHOUT.REMOVABLE.values() for path in paths]
    for each in WITHOUT._mentions_of("", tree):
        if each.how != "text" and WITHOUT.names_one(each.name, packages):
            yield each.line, each.name
    for line, each in enumerate(text.splitlines(), 1):
        yield from ((line, name) for name in SECTION.findall(each))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [(each.arg, each.value) for each in node.keywords]
        elif isinstance(node, ast.Dict):
            given = [(each.value, each) for each in node.keys if isinstance(each, ast.Constant)]
        else:
            continue
        for name, value in given:
            wanted = not (isinstance(value, ast.Constant) and value.value in (None, "off"))
            if str(name).partition(".")[0] in ARGUMENTS and wanted and ("." in str(name) or isinstance(node, ast.Call)):
                yield node.lineno, name


def test_no_test_of_the_core_needs_what_can_be_left_out():
    """One that does lies below the extension or the tool; by night it would fail."""
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for folder in ("core", "integration")
        for path in sorted((ROOT / "tests" / folder).rglob("*.py"))
        for line, name in needs(path.read_text())
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from leadsman.extensions.ledger.ledger import Ledger", "leadsman.extensions.ledger.ledger.Ledger"),
        ("def test():\n    from leadsman.tools import doctor", "leadsman.tools.doctor"),
        ('App("house", discovery="homeassistant")', "discovery"),
        ('Harness(app, settings={"discovery.convention": "homeassistant"})', "discovery.convention"),
        ("Harness(app, sessions=[one])", "sessions"),
        ('ask({"sections": ["app", "ledger"]})', "ledger"),
        ('ask(b\'{"sections":["recent"]}\')', "recent"),
    ],
)
def test_what_a_test_needs_is_seen_in_its_text(text, name):
    assert [each for _, each in needs(text)] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "from leadsman.extensions.trace.trace import ROWS",  # no folder that is left out
        'App("house", discovery=None)',
        'look({"discovery": 1})',
    ],
)
def test_what_a_test_does_not_need(text):
    assert [*needs(text)] == []


def test_by_night_the_tests_of_the_core_run_without_each_of_them():
    night = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()

    assert f"without: [{', '.join(WITHOUT.REMOVABLE)}, all]" in night


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from leadsman.extensions.ledger.part import join", "imports leadsman.extensions.ledger.part.join"),
        ("from leadsman.extensions import ledger", "imports leadsman.extensions.ledger"),
        ("import leadsman.extensions.ledger", "imports leadsman.extensions.ledger"),
        (
            "if TYPE_CHECKING:\n    from leadsman.extensions.ledger import part",
            "imports, for types, leadsman.extensions.ledger.part",
        ),
        (
            "def f():\n    from leadsman.extensions.ledger import part",
            "imports, in a function, leadsman.extensions.ledger.part",
        ),
        ('WHERE = "leadsman.extensions.ledger.part"', "has a text with leadsman.extensions.ledger.part"),
    ],
)
def test_a_broken_wall_is_a_sentence(tmp_path, text, said):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "app.py").write_text(text)

    (one,) = WITHOUT.breaches(tmp_path, ["ledger"])

    assert str(one).endswith(f"{said}.")
    assert str(one).startswith("core/app.py:")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("extensions/ledger/part.py", "import leadsman.extensions.ledger"),  # it goes, too
        ("extensions/__init__.py", 'LIST = ("leadsman.extensions.ledger.part",)'),  # its line goes
        ("core/app.py", "import leadsman.extensions.ledgers"),  # another word
        ("core/app.py", '"""See `leadsman.extensions.ledger.part`."""'),  # names it for readers
    ],
)
def test_what_is_no_broken_wall(tmp_path, path, text):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)

    assert WITHOUT.breaches(tmp_path, ["ledger"]) == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('A = ("x", "leadsman.extensions.ledger.part", "y")', 'A = ("x",  "y")'),
        ('A = (B("x"), B("leadsman.extensions.ledger.part", ("gaps",)))', 'A = (B("x"), )'),
        ('A = {"gaps": "leadsman.extensions.ledger.part:gaps", "run": "x"}', 'A = { "run": "x"}'),
        (
            '__all__ = ["Gap", "Run"]\nA = {"Gap": "leadsman.extensions.ledger.ledger", "Run": "x"}',
            '__all__ = [ "Run"]\nA = { "Run": "x"}',
        ),
    ],
)
def test_its_line_is_an_element_of_a_list(text, left):
    assert WITHOUT._without_lines(text, "ledger") == left


def test_a_copy_has_no_line_for_what_is_gone(tmp_path):
    WITHOUT.copy_without(["ledger"], tmp_path)
    source = tmp_path / "src" / "leadsman"

    assert not (source / "extensions" / "ledger").exists()
    assert not (tmp_path / "tests" / "extensions" / "ledger").exists()
    assert [each for each in WITHOUT.LISTS if "extensions.ledger." in (source / each).read_text()] == []
    assert (source / "extensions" / "trace").exists()
