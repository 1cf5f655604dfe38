"""The workflows of CI."""

import re
from pathlib import Path

WORKFLOWS = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))


def test_each_action_is_named_by_the_hash_of_a_commit_and_its_version():
    uses = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]

    assert uses
    for line in uses:
        assert re.fullmatch(r"- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
