"""Check the types of the examples on the pages, as strictly as our own. Tests run the examples.

Usage: ``python scripts/examples.py``.
"""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "adr" not in page.parts)]


def examples() -> dict[str, str]:
    """The code of the pages, as modules."""
    return {
        f"{page.stem.replace('-', '_')}_{number}.py": code
        for page in PAGES
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL), 1)
    }


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        for name, code in examples().items():
            (Path(directory) / name).write_text(code, "utf-8")
        # Tests are examples, too, and nobody annotates those.
        loose = ["--allow-untyped-defs", "--allow-untyped-calls"]
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), *loose]
        raise SystemExit(subprocess.run([*command, directory], cwd=ROOT).returncode)
