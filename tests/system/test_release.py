"""What a release consists of: see docs/how-to/release.md."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


@pytest.mark.parametrize("kind", ["--wheel", "--sdist"])
def test_a_build_has_the_same_bytes_each_time(tmp_path, kind):
    """So anybody may build the tag again, and compare."""
    for name, zone, umask in (("one", "UTC", 0o022), ("two", "Asia/Kathmandu", 0o027)):
        subprocess.run(
            [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(tmp_path / name), str(ROOT)],
            env={**os.environ, "TZ": zone, "PYTHONHASHSEED": str(umask)},
            umask=umask,
            check=True,
            capture_output=True,
        )

    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(digests(tmp_path / "one")) == 1
