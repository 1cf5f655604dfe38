"""The workflows of CI."""

import re
from pathlib import Path

HASHED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d")


def test_an_action_is_named_by_its_hash_which_nobody_can_move():
    lines = [line for path in Path(".github/workflows").glob("*.yml") for line in path.read_text().splitlines()]
    uses = [line for line in lines if "uses:" in line]

    assert uses
    assert [line.strip() for line in uses if not HASHED.search(line)] == []
