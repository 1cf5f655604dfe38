"""The workflows of CI."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_each_action_is_named_by_the_hash_of_a_commit_and_its_version():
    uses = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]

    assert uses
    for line in uses:
        assert re.fullmatch(r"- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_by_night_all_properties_have_more_examples_those_of_slow_tests_too():
    night = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    job = night.partition("  properties:\n")[2].partition("  faults:\n")[0]

    assert "HYPOTHESIS_PROFILE: night" in job
    assert "-m 'not system'" in job, "make test-fast alone leaves out slow tests"


def numbers_of_examples():
    """The places at which a test says how many examples it tries, and what it says."""
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("apps/*/tests/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "max_examples":
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", ast.unparse(node.value)


def test_each_number_of_examples_is_greater_by_night():
    numbers = dict(numbers_of_examples())

    assert len(numbers) > 20
    assert {place: number for place, number in numbers.items() if not number.startswith("examples(")} == {}
