"""What a release consists of: see docs/how-to/release.md."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
APPS = sorted(each.parent.name for each in ROOT.glob("apps/*/pyproject.toml"))


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_a_build_has_the_same_bytes_each_time(tmp_path):
    """So anybody may build the tag again, and compare. What is built has passed the checks."""
    for name, zone, umask in (("one", "UTC", 0o022), ("two", "Asia/Kathmandu", 0o027)):
        done = subprocess.run(
            [sys.executable, ROOT / "scripts" / "dist.py", tmp_path / name],
            env={**os.environ, "TZ": zone, "PYTHONHASHSEED": str(umask)},
            umask=umask,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert sorted(digests(tmp_path / "one")) == sorted(
        f"{name}-0.1.0{end}" for name in ("leadsman", *APPS) for end in ("-py3-none-any.whl", ".tar.gz")
    )


def test_without_git_a_build_takes_a_time_that_is_always_the_same(monkeypatch):
    spec = importlib.util.spec_from_file_location("dist", ROOT / "scripts" / "dist.py")
    dist = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dist)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("PATH", "")

    assert dist.time_of_commit() == {}
