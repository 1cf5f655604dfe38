"""The workflows: those of CI, and those that publish."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from leadsman_rigs.published_schema import complaints

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PARSED = {path.name: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
JOBS = {f"{name} {key}": job for name, workflow in PARSED.items() for key, job in workflow["jobs"].items()}
APPS = sorted(each.parent.name for each in ROOT.glob("apps/*/pyproject.toml"))


def triggers(name):
    """When a workflow runs. YAML 1.1 has `on` as a truth."""
    return PARSED[name][True]


def commands(job):
    """The lines that a job gives to a shell."""
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


def used(job):
    """The actions of a job, each with what it is given."""
    return {step["uses"].partition("@")[0]: step.get("with", {}) for step in job["steps"] if "uses" in step}


def test_each_workflow_has_the_form_that_its_reader_knows():
    assert complaints("github-workflows", *WORKFLOWS) == ""


def test_each_action_is_named_by_the_hash_of_a_commit_and_its_version():
    uses = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]

    assert uses
    for line in uses:
        assert re.fullmatch(r"- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version_everywhere():
    named = set(re.findall(r"uses: (\S+@\S+)", "".join(path.read_text() for path in WORKFLOWS)))

    assert len({each.partition("@")[0] for each in named}) == len(named)


def test_a_workflow_may_read_and_a_job_that_may_do_more_says_so():
    assert [name for name, workflow in PARSED.items() if workflow["permissions"] != {"contents": "read"}] == []
    assert {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job} == {
        "images.yml images": {"contents": "read", "packages": "write"},
        "release.yml publish": {"id-token": "write", "attestations": "write"},
        "release.yml release": {"contents": "write"},
    }


@pytest.mark.parametrize("name", JOBS)
def test_no_job_that_runs_code_of_the_repository_may_sign_or_write_here(name):
    job = JOBS[name]
    may = {key for key, value in job.get("permissions", {}).items() if value == "write"}

    if may & {"id-token", "attestations", "contents"}:
        assert "actions/checkout" not in used(job)
        assert re.findall(r"^\S+", commands(job), re.MULTILINE) in ([], ["gh"])


@pytest.mark.parametrize("name", JOBS)
def test_each_job_ends_and_each_command_of_it_exists(name):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = commands(JOBS[name])

    assert JOBS[name]["timeout-minutes"] <= 240
    for made in re.findall(r"^.*\bmake ((?:[a-z-]+ ?)+)", lines, re.MULTILINE):
        assert set(made.split()) <= set(targets)
    for path in re.findall(r"(?<![\w/])scripts/[\w.-]+", lines):
        assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", JOBS)
def test_no_command_contains_a_text_that_others_choose(name):
    """The name of a branch or a tag may contain shell; a variable of the environment is safe."""
    assert set(re.findall(r"\$\{\{ *([\w.]+)", commands(JOBS[name]))) <= {
        "matrix.python",
        "matrix.debian",
        "matrix.without",
    }


@pytest.mark.parametrize("name", PARSED)
def test_a_job_takes_what_a_job_before_it_has_left(name):
    jobs = PARSED[name]["jobs"]
    left = {
        each["with"]["name"]: key
        for key, job in jobs.items()
        for each in job["steps"]
        if "upload-artifact" in str(each)
    }

    for key, job in jobs.items():
        before, at = set(), key
        while needed := jobs[at].get("needs"):
            before.add(at := needed)
        for step in job["steps"]:
            if "download-artifact" in step.get("uses", "") and "name" in step["with"]:
                assert left[step["with"]["name"]] in before, key


def test_only_a_tag_of_a_version_publishes_and_a_person_approves_it():
    assert triggers("release.yml") == {"push": {"tags": ["v*"]}}
    assert JOBS["release.yml publish"]["environment"] == "release"
    assert JOBS["release.yml release"]["needs"] == "publish"
    assert triggers("images.yml") == {"push": {"tags": ["v*"]}, "workflow_dispatch": None}
    assert used(JOBS["images.yml images"])["docker/build-push-action"]["push"] == "${{ github.ref_type == 'tag' }}"
    assert {name for name in PARSED if "publish" in name or "v*" in str(triggers(name))} == {
        "images.yml",
        "release.yml",
    }


def test_a_release_attests_and_publishes_what_was_built():
    job = used(JOBS["release.yml publish"])

    assert "dist/*" in job["actions/attest-build-provenance"]["subject-path"].split()
    assert job["pypa/gh-action-pypi-publish"] == {"packages-dir": "dist"}
    assert job["actions/attest-sbom"]["sbom-path"] == "beside/sbom.cdx.json"
    assert "build/sbom.cdx.json" in (ROOT / "Makefile").read_text()
    assert "make dist sbom addons" in commands(JOBS["release.yml build"])


def test_each_app_has_an_image_of_the_one_recipe():
    job = JOBS["images.yml images"]
    build = used(job)["docker/build-push-action"]

    assert job["strategy"]["matrix"]["app"] == APPS
    assert (ROOT / build["file"]).is_file()
    assert build["build-args"] == "APP=${{ matrix.app }}"
    assert (build["provenance"], build["sbom"]) == ("mode=max", True)
    for each in job["strategy"]["matrix"]["include"]:
        assert set(each["platforms"].split(",")) >= {"linux/amd64", "linux/arm64"}


def test_by_night_all_properties_have_more_examples_those_of_slow_tests_too():
    night = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    job = night.partition("  properties:\n")[2].partition("  faults:\n")[0]

    assert "HYPOTHESIS_PROFILE: night" in job
    assert "-m 'not system'" in job, "make test-fast alone leaves out slow tests"


def numbers_of_examples():
    """The places at which a test says how many examples it tries, and what it says."""
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("apps/*/tests/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "max_examples":
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", ast.unparse(node.value)


def test_each_number_of_examples_is_greater_by_night():
    numbers = dict(numbers_of_examples())

    assert len(numbers) > 20
    assert {place: number for place, number in numbers.items() if not number.startswith("examples(")} == {}
