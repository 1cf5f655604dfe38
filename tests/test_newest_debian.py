"""`scripts/newest-debian`: what it refuses, each with what to do. The night runs all tests in what it makes."""

import os
import subprocess

import pytest

UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits(3)."""


@pytest.fixture
def newest_debian(tmp_path):
    """Run the script as a user with this number; its exit code, and what it says."""

    def run(*arguments, user=0, programs=()):
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        for name in programs:
            (tools / name).write_text("#!/bin/sh\nexit 1\n")
            (tools / name).chmod(0o755)
        (tools / "id").write_text(f"#!/bin/sh\necho {user}\n")
        (tools / "id").chmod(0o755)
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        done = subprocess.run(["scripts/newest-debian", *arguments], env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr

    return run


def test_a_user_who_is_not_root_is_told_what_to_type(newest_debian):
    code, said = newest_debian("/nowhere/debian", "make", "test", user=1000)

    assert code == UNAVAILABLE
    assert "it needs root; type: sudo scripts/newest-debian /nowhere/debian make test" in said


def test_a_folder_in_the_checkout_would_be_copied_into_itself(newest_debian):
    code, said = newest_debian("build/debian", "true")

    assert code == UNAVAILABLE
    assert "is in the checkout, which is copied into it; name another folder" in said
    assert not os.path.exists("build/debian")


def test_a_folder_with_something_else_is_left_alone(newest_debian, tmp_path):
    (tmp_path / "mine").write_text("precious")

    code, said = newest_debian(str(tmp_path), "true")

    assert code == UNAVAILABLE
    assert "has something else in it; name another folder" in said
    assert (tmp_path / "mine").read_text() == "precious"


def test_two_commands_do_not_share_a_folder(newest_debian, tmp_path):
    stamp = tmp_path / "debian" / "etc" / "leadsman-newest-debian"
    stamp.parent.mkdir(parents=True)
    stamp.touch()

    with subprocess.Popen(
        ["flock", stamp, "sh", "-c", "echo locked; read end"], stdin=-1, stdout=-1, text=True
    ) as other:
        assert other.stdout.readline() == "locked\n"
        code, said = newest_debian(str(tmp_path / "debian"), "true")
        other.communicate("end\n")

    assert code == UNAVAILABLE
    assert "another command runs in" in said


def test_without_a_command_its_usage_is_shown(newest_debian):
    assert newest_debian("/nowhere/debian") == (64, "usage: scripts/newest-debian FOLDER COMMAND…\n")


def test_a_container_that_may_mount_nothing_cannot_have_it(newest_debian, tmp_path):
    stamp = tmp_path / "debian" / "etc" / "leadsman-newest-debian"
    code, said = newest_debian(str(tmp_path / "debian"), "true", programs=["unshare"])
    assert (code, "this machine may mount nothing" in said) == (UNAVAILABLE, True)

    stamp.parent.mkdir(parents=True)
    stamp.touch()
    code, said = newest_debian(str(tmp_path / "debian"), "true", programs=["unshare"])
    assert (code, "this machine may mount nothing" in said) == (UNAVAILABLE, True)
