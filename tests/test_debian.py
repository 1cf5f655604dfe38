"""`scripts/debian`: what it refuses, each with what to do. The night runs all tests in it, and what newcomers type."""

import os
import re
import subprocess
from pathlib import Path

import pytest

UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits(3)."""


@pytest.fixture
def debian(tmp_path):
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
        done = subprocess.run(["scripts/debian", *arguments], env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr

    return run


def test_a_user_who_is_not_root_is_told_what_to_type(debian):
    code, said = debian("testing", "/nowhere/debian", "make", "test", user=1000)

    assert code == UNAVAILABLE
    assert "it needs root; type: sudo scripts/debian testing /nowhere/debian make test" in said


def test_a_folder_in_the_checkout_would_be_copied_into_itself(debian):
    code, said = debian("testing", "build/debian", "true")

    assert code == UNAVAILABLE
    assert "is in the checkout, which is copied into it; name another folder" in said
    assert not os.path.exists("build/debian")


def test_a_folder_with_something_else_is_left_alone(debian, tmp_path):
    (tmp_path / "mine").write_text("precious")

    code, said = debian("testing", str(tmp_path), "true")

    assert code == UNAVAILABLE
    assert "has something else in it; name another folder" in said
    assert (tmp_path / "mine").read_text() == "precious"


def test_two_commands_do_not_share_a_folder(debian, tmp_path):
    stamp = tmp_path / "debian" / "etc" / "leadsman-debian"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("testing\n")

    with subprocess.Popen(
        ["flock", stamp, "sh", "-c", "echo locked; read end"], stdin=-1, stdout=-1, text=True
    ) as other:
        assert other.stdout.readline() == "locked\n"
        code, said = debian("testing", str(tmp_path / "debian"), "true")
        other.communicate("end\n")

    assert code == UNAVAILABLE
    assert "another command runs in" in said


def test_without_a_command_its_usage_is_shown(debian):
    usage = "usage: scripts/debian SUITE[/ARCHITECTURE] FOLDER COMMAND…\n"

    assert debian("testing", "/nowhere/debian") == (64, usage)


def test_a_folder_with_another_debian_is_left_alone(debian, tmp_path):
    stamp = tmp_path / "etc" / "leadsman-debian"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("trixie/armhf\n")

    code, said = debian("testing", str(tmp_path), "true")

    assert code == UNAVAILABLE
    assert f"{tmp_path} has another Debian, trixie/armhf; name another folder" in said


def test_a_container_that_may_mount_nothing_cannot_have_it(debian, tmp_path):
    stamp = tmp_path / "debian" / "etc" / "leadsman-debian"
    code, said = debian("testing", str(tmp_path / "debian"), "true", programs=["unshare"])
    assert (code, "this machine may mount nothing" in said) == (UNAVAILABLE, True)

    stamp.parent.mkdir(parents=True)
    stamp.write_text("testing\n")
    code, said = debian("testing", str(tmp_path / "debian"), "true", programs=["unshare"])
    assert (code, "this machine may mount nothing" in said) == (UNAVAILABLE, True)


def test_the_commands_that_a_newcomer_types_are_on_the_pages():
    script = Path("scripts/fresh-machine").read_text()
    typed = re.findall(r'\(commands (\S+) "?(.*?)"?(?: \||\))', script)

    assert len(typed) == script.count("(commands ") > 4
    for page, heading in typed:
        below = Path(f"docs/{page}.md").read_text().partition(f"# {heading}\n")[2].partition("\n#")[0]
        assert re.search(r"^    \S", below, re.MULTILINE), (page, heading)
