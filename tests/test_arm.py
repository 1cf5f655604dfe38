"""`scripts/arm`: what it refuses, each with what to do. The night runs an app in what it makes."""

import subprocess

import pytest

USAGE = "usage: scripts/arm armhf|armel FOLDER\n"


@pytest.mark.parametrize("arguments", [[], ["armhf"], ["arm64", "/nowhere/arm"], ["armel", "/nowhere/arm", "more"]])
def test_what_it_does_not_know_is_answered_with_its_usage(arguments):
    done = subprocess.run(["scripts/arm", *arguments], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (64, USAGE)


def test_a_user_who_is_not_root_is_told_what_to_type(tmp_path):
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    command = ["scripts/arm", "armel", "/nowhere/arm"]
    done = subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (69, "it needs root; type: sudo scripts/arm armel /nowhere/arm\n")
