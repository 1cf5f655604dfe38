"""What the demo says to type in another terminal."""

import sys

import pytest

from leadsman.tools.demo.demo import program


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a ``leadsman`` into directories below the working directory; the first one is that of this process."""
    monkeypatch.chdir(tmp_path)

    def install(*directories, on_path=None):
        for each in directories:
            (tmp_path / each).mkdir(parents=True)
            (tmp_path / each / "leadsman").touch(mode=0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / directories[0] / "python"))
        monkeypatch.setenv("PATH", str(tmp_path / (on_path or "nothing-here")))

    return install


def test_a_virtual_environment_that_is_not_active_is_named(installed):
    installed(".venv/bin")

    assert program() == ".venv/bin/leadsman"


def test_the_command_alone_will_do_where_the_path_has_it(installed):
    installed(".venv/bin", on_path=".venv/bin")

    assert program() == "leadsman"


def test_another_leadsman_on_the_path_is_not_meant(installed):
    installed(".venv/bin", "usr/bin", on_path="usr/bin")

    assert program() == ".venv/bin/leadsman"


def test_from_another_directory_the_whole_path_is_given_as_a_shell_reads_it(installed, tmp_path, monkeypatch):
    installed("my house/bin")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert program() == f"'{tmp_path}/my house/bin/leadsman'"


def test_without_a_command_beside_the_interpreter_its_usual_name_is_said(installed, tmp_path):
    installed(".venv/bin")
    (tmp_path / ".venv/bin/leadsman").unlink()

    assert program() == "leadsman"
