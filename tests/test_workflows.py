"""The workflows of CI."""

import re
from pathlib import Path

import yaml
from hypothesis import settings

WORKFLOWS = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))


def test_each_action_is_named_by_the_hash_of_a_commit_and_its_version():
    uses = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]

    assert uses
    for line in uses:
        assert re.fullmatch(r"- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_the_examples_of_properties_are_those_of_the_day_in_ci_and_others_each_night():
    """A night that draws the examples of CI again finds nothing new; one that prints no blob cannot be repeated."""
    nightly = yaml.safe_load(next(path for path in WORKFLOWS if path.stem == "nightly").read_text())
    profiles = [
        {**job.get("env", {}), **step.get("env", {})}.get("HYPOTHESIS_PROFILE")
        for job in nightly["jobs"].values()
        for step in job["steps"]
        if re.match(r"make test(-fast)?\b", step.get("run", ""))
    ]

    assert len(profiles) == 2
    for name in profiles:
        profile = settings.get_profile(name)
        assert not profile.derandomize
        assert profile.print_blob
    assert settings.get_profile("ci").derandomize
