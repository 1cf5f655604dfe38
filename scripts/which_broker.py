"""Writes the table in docs/how-to/which-broker.md: what each broker does, from a run of tests/system/test_brokers.py.

A cell is ✓ if its test passed, and else what the broker cannot do, from `leadsman_rigs.brokers`; ✗ if the test failed.
A broker that is not installed keeps no column: `scripts/brokers .venv-brokers all` installs those that can be had.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from leadsman_rigs.brokers import BROKERS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "which-broker.md"
BEGIN, END = "<!-- brokers: made by scripts/which_broker.py -->", "<!-- end of brokers -->"
CHECKS = {
    "connect": "connects, without a warning",
    "order": "readings in order",
    "restart": "goes on after a restart",
    "refusal": "a refused topic is named",
    "size": "a message that is too large stops no other",
    "will": "the will comes",
    "password": "a wrong password is named",
    "discovery": "discovery",
    "doctor": "`doctor` is right",
    "why": "`why` is right",
    "clean": "`clean` leaves nothing",
}


def outcomes() -> dict[tuple[str, str], str]:
    """The outcome of each test, by check and broker: ``passed``, ``skipped`` or ``failed``. All brokers are examined at
    once, since their tests mostly wait."""
    found: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as directory:
        running = {}
        for broker in BROKERS:
            report = Path(directory) / f"{broker.name}.xml"
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "tests/system/test_brokers.py", "-k", broker.name]
            running[report] = subprocess.Popen([*command, f"--junit-xml={report}"], cwd=ROOT)
        for report, process in running.items():
            process.wait()
            for case in ET.parse(report).iter("testcase"):
                check, _, broker = case.get("name", "").removeprefix("test_").rstrip("]").partition("[")
                kinds = {each.tag for each in case}
                failed = bool(kinds & {"failure", "error"})
                found[check, broker] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return found


def table() -> str:
    """The table in Markdown."""
    found = outcomes()
    there = [broker for broker in BROKERS if broker.missing() is None]
    lines = ["| | " + " | ".join(f"{broker.name} {broker.version()}" for broker in there) + " |"]
    lines.append("|---" * (len(there) + 1) + "|")
    for check, words in CHECKS.items():
        cells = []
        for broker in there:
            outcome, fault = found.get((check, broker.name), "failed"), broker.cannot.get(check)
            cells.append(
                "✗" if outcome == "failed" else f"✓, {fault}" if outcome == "passed" and fault else fault or "✓"
            )
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Replace the table on the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
