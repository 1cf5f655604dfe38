"""The examples that properties draw."""

import re
from pathlib import Path

import yaml
from hypothesis import settings

NIGHTLY = Path(__file__).parents[1] / ".github" / "workflows" / "nightly.yml"


def test_the_examples_of_properties_are_those_of_the_day_in_ci_and_others_each_night():
    """A night that draws the examples of CI again finds nothing new; one that prints no blob cannot be repeated."""
    nightly = yaml.safe_load(NIGHTLY.read_text())
    profiles = [
        {**job.get("env", {}), **step.get("env", {})}.get("HYPOTHESIS_PROFILE")
        for job in nightly["jobs"].values()
        for step in job["steps"]
        if re.match(r"make test(-fast)?\b", step.get("run", ""))
    ]

    assert len(profiles) == 3
    for name in profiles:
        profile = settings.get_profile(name)
        assert not profile.derandomize
        assert profile.print_blob
    assert settings.get_profile("ci").derandomize
