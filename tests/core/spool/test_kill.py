"""A writer that is killed at any moment loses nothing that was accepted."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from leadsman_rigs import kill_loop


def test_kill_9_loses_no_accepted_row():
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a kill loses nothing that the kernel has
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        command = [sys.executable, kill_loop.__file__, directory, "40", "1"]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=110)

    figures = json.loads(done.stdout)
    assert figures["rows_lost"] == figures["rows_invented"] == figures["files_damaged"] == 0
    assert figures["kills"] == 40
    assert figures["commits"] > 40
