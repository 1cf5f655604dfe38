"""What a replay refuses, and what it lets pass."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest

from leadsman.errors import PermanentError
from leadsman.tools.cli.real_world import first_touch, refuse_real_world


@pytest.mark.parametrize(
    ("reaches", "what"),
    [
        (lambda: socket.create_connection(("203.0.113.7", 80), 1), "connects to|looks up"),
        (lambda: socket.getaddrinfo("example.invalid", 80), "looks up example.invalid"),
        (lambda: subprocess.run(["true"]), "starts the program"),
        (lambda: open("/var/lib/leadsman-was-here", "w"), "writes /var/lib/leadsman-was-here"),  # noqa: SIM115  # it is refused
        (lambda: os.open("/var/lib/leadsman-was-here", os.O_CREAT | os.O_WRONLY), "writes /var/lib/leadsman-was-here"),
        (lambda: os.replace(f"{tempfile.gettempdir()}/a", "/var/lib/b"), "calls os.rename on /var/lib/b"),
        (lambda: os.symlink("/a", "/var/lib/b"), "calls os.symlink on /var/lib/b"),
        (lambda: os.chmod("/var/lib/leadsman-was-here", 0o600), "calls os.chmod on /var/lib/leadsman-was-here"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "sends a signal to the process"),
        (lambda: sqlite3.connect("/var/lib/leadsman.db"), "opens the database /var/lib/leadsman.db"),
        (
            lambda: sqlite3.connect("file:/var/lib/lead%20sman.db?mode=rw", uri=True),
            "opens the database /var/lib/lead sman.db",
        ),
        (lambda: open("/dev/tty"), "opens /dev/tty"),  # noqa: SIM115  # it is refused
    ],
)
def test_what_reaches_for_the_world_is_refused_and_kept_with_its_line(reaches, what):
    with refuse_real_world():
        with pytest.raises(PermanentError, match=f"a replay touches nothing real, and this .*({what})"):
            reaches()
        touch = first_touch()

    assert touch.place.startswith("test_real_world.py:")


def test_the_first_touch_is_known_also_where_the_app_hides_it():
    with refuse_real_world():
        for name in ("one.invalid", "two.invalid"):
            with pytest.raises(PermanentError):
                socket.getaddrinfo(name, 80)

        assert first_touch().what == "looks up one.invalid"


def test_what_is_harmless_passes(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    with refuse_real_world():
        (tmp_path / "a").write_text("x")
        assert (tmp_path / "a").read_text() == "x"
        with open(__file__) as file:
            assert file.read(3) == '"""'
        with open("/dev/null", "w") as null:
            null.write("x")
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "inner").mkdir()
            (Path(directory) / "inner" / "a").write_text("x")
        os.kill(os.getpid(), 0)
        sqlite3.connect(":memory:").close()
        sqlite3.connect("file:shared?mode=memory&cache=shared", uri=True).close()
        sqlite3.connect(f"file:{tmp_path}/a.db?mode=rwc", uri=True).close()
        asyncio.new_event_loop().close()

        assert first_touch() is None


def test_afterwards_nothing_is_refused():
    with refuse_real_world():
        pass

    with pytest.raises(ConnectionRefusedError):  # which the block would not have tried
        socket.create_connection(("127.0.0.1", 1))
