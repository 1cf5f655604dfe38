"""Small inputs that want much time or memory, each read in a process with limits."""

import json
import subprocess
import sys

import pytest

from leadsman_rigs.bombs import KINDS

MAX_SECONDS, MAX_MEGABYTES = 2.0, 150.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused_by_a_named_error_within_two_seconds_and_150_megabytes(kind):
    done = subprocess.run(
        [sys.executable, "-m", "leadsman_rigs.bombs", kind], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr

    found = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(found) >= 10
    assert [(name, outcome) for name, outcome, _, _ in found if not outcome.startswith("refused: ")] == []
    assert [(name, seconds) for name, _, seconds, _ in found if seconds > MAX_SECONDS] == []
    assert [(name, size) for name, _, _, size in found if size > MAX_MEGABYTES] == []
