"""Check the types and the width of the examples on the pages. Tests run the examples.

The types are checked as strictly as our own. What a reader types must fit on the site and on a telephone; what a
program prints, in blocks of ``text`` and after a line with ``$``, is as wide as it is.

Usage: ``python scripts/examples.py``.
"""

import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "adr" not in page.parts)]

GUIDES = [
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "how-to").glob("*.md"),
    *ROOT.glob("apps/*/README.md"),
]
WIDEST = 85
"""Columns that the site shows without a scroll bar."""


def examples() -> dict[str, str]:
    """The code of the pages, as modules."""
    return {
        f"{page.stem.replace('-', '_')}_{number}.py": code
        for page in PAGES
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL), 1)
    }


def too_wide(markdown: str) -> list[str]:
    """The lines of code that are wider than the site, without their indentation by the page."""
    found = []
    for token in MarkdownIt("commonmark").parse(markdown):
        if token.type in ("fence", "code_block") and token.info.strip() != "text":
            typed = takewhile(lambda line: not line.startswith("$ "), token.content.splitlines())
            found += [line for line in typed if len(line) > WIDEST]
    return found


if __name__ == "__main__":
    wide = [
        f"{page.relative_to(ROOT)}: {line}" for page in sorted(GUIDES) for line in too_wide(page.read_text("utf-8"))
    ]
    if wide:
        raise SystemExit("\n".join([*wide, f"examples have at most {WIDEST} columns"]))
    with TemporaryDirectory() as directory:
        for name, code in examples().items():
            (Path(directory) / name).write_text(code, "utf-8")
        # Tests are examples, too, and nobody annotates those.
        loose = ["--allow-untyped-defs", "--allow-untyped-calls"]
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), *loose]
        raise SystemExit(subprocess.run([*command, directory], cwd=ROOT).returncode)
