"""What an app gives to Prometheus, and the alerts made for it, as Prometheus' own tool judges them."""

import asyncio
import subprocess
from pathlib import Path

from tests.extensions.http.conftest import serving

ROOT = Path(__file__).parents[4]
ALERTS = ROOT / "docs" / "grafana" / "alerts.yml"


def promtool(*arguments, text=None):
    done = subprocess.run(["promtool", *arguments], cwd=ROOT, input=text, capture_output=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_the_rules_of_the_alerts_are_sound():
    code, said = promtool("check", "rules", str(ALERTS))

    assert code == 0, said
    assert "7 rules found" in said


def test_the_alerts_fire_when_they_should_and_not_otherwise():
    code, said = promtool("test", "rules", "tests/extensions/http/alerts_test.yml")

    assert code == 0, said


def test_prometheus_has_nothing_to_say_against_the_metrics():
    async def scrape():
        async with serving() as house:
            await house.polled()
            return (await house.get("/metrics")).content

    code, said = promtool("check", "metrics", text=asyncio.run(scrape()))

    assert (code, said) == (0, "")
