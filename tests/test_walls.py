"""What can be left out of the package can be: nothing that is left names it, and what is left works."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DAY = ("tests/core/system/test_alone.py", "tests/integration/test_own_part.py", "tests/integration/test_lifespan.py")
"""The tests of the core that run by day without all that can be left out. By night all do, without each."""


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
