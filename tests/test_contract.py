"""The contract of a release: nothing that users rely on changes without a line in the changes that names it."""

import ast
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPTS = Path("scripts").absolute()


@pytest.fixture(scope="module")
def contract():
    """The script, which imports another one beside it."""
    spec = spec_from_file_location("contract", SCRIPTS / "contract.py")
    module = module_from_spec(spec)
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


@pytest.fixture(scope="module")
def released(contract):
    return contract.released()


def changes(*lines, heading="Added"):
    return "\n".join(["# Changes", "", "## Unreleased", "", f"### {heading}", "", *lines, "", "## 0.1.0", "", "`gone`"])


def test_each_change_since_the_release_is_named_in_the_changes():
    done = subprocess.run([sys.executable, "scripts/contract.py", "--check"], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


FACTS = [
    ("airthings2mqtt", ("topic", "airthings2mqtt/cellar", "state")),
    ("airthings2mqtt", ("topic", "airthings2mqtt/cellar", "state", "radon_long_term_avg")),
    ("airthings2mqtt", ("setting", "waves.*.address")),
    ("airthings2mqtt", ("entity", "airthings2mqtt/cellar", "radon_long_term_avg", "unit_of_meas")),
    ("command-line", ("exit", "78")),
    ("command-line", ("leadsman", "diff", "--before")),
    ("documents", ("heartbeat", "health")),
    ("http", ("/devices/{device}/poll", "post")),
    ("metrics", ("leadsman_runs_total",)),
    ("python", ("leadsman.Delivery", "(expiry)")),
    ("settings", ("outbox", "max_age")),
]
"""Of each kind one."""


@pytest.mark.parametrize(("file", "name"), FACTS, ids=[" ".join(name) for _, name in FACTS])
@pytest.mark.parametrize("how", ["gone", "new", "other"])
def test_a_fact_of_any_kind_that_changes_needs_a_line(contract, released, file, name, how):
    without = {each: fact for each, fact in released[file].items() if each[: len(name)] != name}
    other = {**released[file], name: "something else"}
    before = without if how == "new" else released[file]
    after = {"gone": without, "new": released[file], "other": other}[how]
    breaks = how == "gone" or (how == "new" and released[file][name].endswith("required"))

    def unnamed(text):
        return list(contract.unnamed({file: before}, {file: after}, text))

    assert len(unnamed(changes())) == 1
    assert unnamed(changes(f"* `{name[-1]}` is another one.", heading="What breaks")) == []
    assert (unnamed(changes(f"* `{name[-1]}` is another one.")) == []) is not breaks
    assert unnamed(changes(f"* {name[-1]} is another one.", heading="What breaks")) != []


def test_the_line_says_what_changes_and_what_to_write(contract):
    before = {("exit", "78"): "the configuration is wrong"}

    assert list(contract.unnamed({"command-line": before}, {"command-line": {}}, changes("`78`"))) == [
        "command-line: - exit 78 = the configuration is wrong\n"
        "    write a line below What breaks of CHANGELOG.md with `78`, or take the change back"
    ]


def test_what_must_be_given_from_now_on_breaks(contract):
    before, after = {("port",): "string, default 1"}, {("port",): "string, required"}

    assert [*contract.unnamed({"a": before}, {"a": after}, changes("`port`"))] != []
    assert [*contract.unnamed({"a": before}, {"a": after}, changes("`port`", heading="What breaks"))] == []
    assert [*contract.unnamed({"a": after}, {"a": before}, changes("`port`"))] == []


def test_of_what_appears_or_disappears_whole_only_the_whole_is_named(contract):
    whole = {("App",): "class", ("App", "run"): "function", ("App", "run", "(where)"): "required"}

    assert [each.name for each in contract.differences(whole, {})] == [("App",)]
    assert [each.name for each in contract.differences({}, whole)] == [("App",)]
    assert [each.name for each in contract.differences({("App",): "class"}, whole)] == [("App", "run")]


WORDS = st.text("abc/_.*-", min_size=1, max_size=4)
FACT = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)
CONTRACTS = st.dictionaries(st.lists(WORDS, min_size=1, max_size=3).map(tuple), FACT, max_size=6)


@given(CONTRACTS)
def test_a_contract_is_read_as_it_was_written(contract, facts):
    assert contract.read(contract.written(facts)) == facts


@given(CONTRACTS, CONTRACTS)
def test_two_contracts_differ_where_a_fact_does(contract, before, after):
    found = list(contract.differences(before, after))

    assert (found == []) == (before == after)
    assert all(before.get(each.name) == each.before != each.after == after.get(each.name) for each in found)


PATTERN = re.compile(r"write .+ instead; it goes with \d+\.\d+, and not before \d{4}-\d{2}-\d{2}")
"""What a warning says about what will break."""


def wrong_warnings(source):
    """The warnings in a program that do not say what they should: once, with what to write and until when.

    Python shows a `FutureWarning` once for each place, and a `DeprecationWarning` to nobody who runs an app.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "deprecated",
            "typing_extensions.deprecated",
            "warnings.deprecated",
            "warnings.warn",
        ):
            text = "".join(each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant))
            if "FutureWarning" not in ast.unparse(node) or not PATTERN.search(text):
                yield text


@pytest.mark.parametrize("path", sorted(Path("src").rglob("*.py")), ids=lambda path: path.stem)
def test_what_will_break_says_once_what_to_write_and_until_when(path):
    assert [*wrong_warnings(path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "category", "wrong"),
    [
        ("write interval= instead; it goes with 0.3, and not before 2027-09-01", "FutureWarning", 0),
        ("write interval= instead; it goes with 0.3, and not before 2027-09-01", "DeprecationWarning", 1),
        ("it is deprecated", "FutureWarning", 1),
        ("write interval= instead", "FutureWarning", 1),
    ],
)
@pytest.mark.parametrize("call", ["@deprecated({!r}, category={})\ndef f(): ...", "warnings.warn({!r}, {})"])
def test_a_warning_without_a_replacement_or_a_date_is_found(call, text, category, wrong):
    assert len([*wrong_warnings(call.format(text, category))]) == wrong


def wrong_numbers(text):
    """The releases in the changes that break something, though their numbers say that they do not."""
    for number, lines in re.findall(r"^## (\d+\.\d+\.\d+)[^\n]*$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        major, minor, patch = map(int, number.split("."))
        if "### What breaks" in lines and (patch or (major and minor)):
            yield number


def test_what_breaks_has_a_number_that_says_so():
    assert [*wrong_numbers(Path("CHANGELOG.md").read_text())] == []


@pytest.mark.parametrize(
    ("number", "wrong"), [("0.1.1", 1), ("0.2.0", 0), ("1.0.0", 0), ("1.1.0", 1), ("2.0.1", 1), ("2.0.0", 0)]
)
def test_a_release_with_a_number_that_hides_what_breaks_is_found(number, wrong):
    lines = f"## Unreleased\n\n### What breaks\n\n## {number}, 2027-01-01\n\n### What breaks\n\n* `x`\n\n## 0.0.1\n"

    assert len([*wrong_numbers(lines)]) == wrong
