"""Opening the endpoint of an app at an address, and what its log says where that is impossible."""

import asyncio
import os
import socket
import stat

import pytest
from tests.extensions.http.conftest import house_app

from leadsman.core.settings.sources import Where
from leadsman.testing import MemoryBroker


@pytest.fixture
def opened(caplog):
    """Runs an app until its endpoint is open, or cannot be opened: what the log says of that. `while_open` is called
    before the app ends."""
    caplog.set_level("INFO", "leadsman")

    def opened(bind, while_open=lambda said: None, **settings):
        app = house_app()
        app.load(Where.nowhere({"http.bind": bind, **settings}))

        async def run():
            caplog.clear()
            running = asyncio.create_task(
                app.serve(MemoryBroker().connect, environment={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})
            )
            async with asyncio.timeout(60):
                while not (said := [each for each in caplog.messages if "is at" in each or "cannot be opened" in each]):
                    assert not running.done(), running.result()
                    await asyncio.sleep(0.01)
            while_open(said[0])
            app.stop()
            await running
            return said[0]

        return asyncio.run(run())

    return opened


def test_a_port_that_the_system_chooses_is_bound_and_named(opened):
    def connect(said):
        socket.create_connection(("127.0.0.1", int(said.rpartition(":")[2]))).close()

    assert opened("127.0.0.1:0", connect).startswith("The page of the app is at http://127.0.0.1:")


def test_a_port_in_use_is_named_with_what_to_do(opened):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = opened(f"127.0.0.1:{port}")

    assert f"http://127.0.0.1:{port} cannot be opened: another program uses it; stop" in said


def test_an_address_of_another_machine_is_named_with_what_to_do(opened, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef")
    said = opened("192.0.2.7:8080", **{"http.token_file": str(tmp_path / "token")})

    assert "cannot be opened: this machine has no such address" in said


def test_a_unix_socket_is_for_its_owner_and_group_and_replaces_one_that_was_left_behind(opened, tmp_path):
    path, modes = tmp_path / "http.sock", []
    with socket.socket(socket.AF_UNIX) as former:
        former.bind(str(path))
    said = opened(f"unix:{path}", lambda said: modes.append(stat.S_IMODE(os.stat(path).st_mode)))

    assert "is at" in said
    assert modes == [0o660]


def test_a_unix_socket_that_is_served_is_not_replaced(opened, tmp_path):
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        said = opened(f"unix:{path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))

    assert "another program uses it" in said


def test_a_file_is_not_replaced_and_a_directory_must_exist(opened, tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")

    assert "cannot be opened" in opened(f"unix:{path}")
    assert path.read_text() == "precious"
    assert "its directory does not exist" in opened(f"unix:{tmp_path / 'nowhere' / 'http.sock'}")
