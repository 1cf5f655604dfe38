"""What a program may import of leadsman: apps, the program that `leadsman init` writes, and all pages keep to it."""

import ast
import gc
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import leadsman
from leadsman.core.resilience.failure import qualified_name

ROOT = Path(__file__).parent.parent
PUBLIC = re.compile(r"leadsman(\.(errors|extension|notices|testing|adapters)(\.\w+)*)?")
"""The packages that are public. What is below `leadsman.testing` and `leadsman.adapters` may be imported from where it
stands, too."""
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^::: (leadsman\.\w+)$", re.MULTILINE)


def imported(source):
    """The modules that a program names, with the names that it takes from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from ((node.module, each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, None) for each in node.names)


def not_public(source):
    """What a program imports of leadsman that is not public."""
    ours = [each for each in imported(source) if each[0].split(".")[0] == "leadsman"]
    return [
        each
        for each in ours
        if not PUBLIC.fullmatch(each[0]) or (each[0] == "leadsman" and each[1] not in {*leadsman.__all__, None})
    ]


@pytest.mark.parametrize("program", sorted(ROOT.glob("apps/*/src/**/*.py")), ids=lambda path: path.stem)
def test_an_app_imports_what_is_public(program):
    assert not_public(program.read_text()) == []


@pytest.mark.parametrize(
    "template", sorted((ROOT / "src/leadsman/tools/cli/templates").glob("*.py.txt")), ids=lambda path: path.stem
)
def test_the_program_that_init_writes_imports_what_is_public(template):
    imports = re.findall(r"^(?:from|import) .*$", template.read_text(), re.MULTILINE)

    assert imports
    assert not_public("\n".join(each for each in imports if "$" not in each and "{" not in each)) == []


def test_the_examples_of_all_pages_import_what_is_public():
    pages = [ROOT / "README.md", *(page for page in ROOT.glob("docs/**/*.md") if "adr" not in page.parts)]
    found = [(page.name, not_public(code)) for page in pages for code in CODE.findall(page.read_text())]

    assert len(found) > 10
    assert [each for each in found if each[1]] == []


def test_each_public_name_of_the_package_is_in_the_reference():
    pages = (ROOT / "docs/reference").glob("*.md")
    named = {name.rpartition(".")[2] for page in pages for name in NAMED.findall(page.read_text())}

    assert {*leadsman.__all__} - named == set()


@pytest.mark.parametrize("name", leadsman.__all__)
def test_each_public_name_exists(name):
    assert getattr(import_module("leadsman"), name) is not None


@pytest.mark.parametrize(
    "module", ["leadsman", "leadsman.errors", "leadsman.adapters.http", "leadsman.adapters.program"]
)
def test_a_policy_names_a_public_error_as_it_is_imported(module):
    public = import_module(module)
    names = getattr(public, "__all__", vars(public))
    errors = [each for name in names if isinstance(each := getattr(public, name), type) and issubclass(each, Exception)]

    assert errors
    assert {qualified_name(each) for each in errors} <= {
        f"{at}.{each.__name__}" for each in errors for at in (module, "leadsman.errors")
    }


def test_the_package_alone_gives_its_names_and_its_public_packages_when_they_are_asked_for():
    packages = "leadsman.adapters, leadsman.errors.DeviceError, leadsman.notices.DeviceFailed, leadsman.testing.Harness"
    code = f"import leadsman, sys; assert 'leadsman.core.app' not in sys.modules; {packages}, leadsman.App"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_program_that_retries_without_an_app_loads_nothing_that_reads_settings():
    unread = (
        "leadsman.core.app",
        "leadsman.core.settings.sources",
        "leadsman.core.settings.sections",
        "leadsman.core.settings.documents",
    )
    code = f"import leadsman, sys; leadsman.retrying; assert not {{*{unread}}} & {{*sys.modules}}"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_lists_its_names_and_its_public_packages_without_loading_them():
    code = (
        "import leadsman, sys; found = {*dir(leadsman)}; assert 'leadsman.core.app' not in sys.modules;"
        "assert found >= {*leadsman.__all__, 'adapters', 'errors', 'extension', 'notices', 'testing'}, found"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", ["App", "no_name"])
def test_an_import_leaves_the_garbage_collector_as_it_was(name, enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        getattr(leadsman, "__getattr__")(name)  # noqa: B009  # of the package
    except AttributeError:
        assert name == "no_name"
    finally:
        found = gc.isenabled()
        gc.enable()

    assert found is enabled
