"""Build the documentation site in build/site. Any complaint of the builder is an error.

Usage: ``python scripts/site.py``.

The pages are files of the whole repository. They are copied to build/pages under the same paths, so that a link
between two of them is right in the repository and on the site.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "pages"
PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "docs/**/*.svg",
    "docs/**/*.webp",
    "docs/grafana/*.json",
    "benchmarks/*.md",
    "apps/*/README.md",
    "src/leadsman/cli/templates/*",
)
FINE = ("Build started", "Build finished", "No issues found")
"""How the lines begin that a build without a complaint writes."""


def gather() -> None:
    """Copy the pages, and what they link to, to build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in PATTERNS:
        for path in ROOT.glob(pattern):
            target = PAGES / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def complaints(written: str) -> list[str]:
    """The lines that a build without a complaint would not have written."""
    return [line for line in written.splitlines() if line.strip() and not line.startswith(FINE)]


if __name__ == "__main__":
    gather()
    builder = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(builder, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode or complaints(built.stdout):
        raise SystemExit(f"{built.stdout}\nthe documentation site has faults")
