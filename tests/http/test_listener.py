"""Binding an address, and what is said where that is impossible."""

import os
import socket
import stat

import pytest
from tests.http.conftest import endpoint

from leadsman.errors import EndpointError
from leadsman.http.door import bind


def test_a_port_that_the_system_chooses_is_bound():
    with bind(endpoint("127.0.0.1:0")) as listener:
        assert listener.getsockname()[1] > 0


def test_a_port_in_use_is_named_with_what_to_do():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EndpointError, match=rf"http://127.0.0.1:{port} cannot .* another program uses it; stop"):
            bind(endpoint(f"127.0.0.1:{port}"))


def test_an_address_of_another_machine_is_named_with_what_to_do():
    with pytest.raises(EndpointError, match="this machine has no such address"):
        bind(endpoint("192.0.2.7:8080", "0123456789abcdef"))


def test_a_unix_socket_is_for_its_owner_and_group_and_replaces_one_that_was_left_behind(tmp_path):
    path = tmp_path / "http.sock"
    bind(endpoint(f"unix:{path}")).close()
    with bind(endpoint(f"unix:{path}")):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660


def test_a_unix_socket_that_is_served_is_not_replaced(tmp_path):
    path = tmp_path / "http.sock"
    with bind(endpoint(f"unix:{path}")) as listener:
        listener.listen()
        with pytest.raises(EndpointError, match="another program uses it"):
            bind(endpoint(f"unix:{path}"))


def test_a_file_is_not_replaced_and_a_directory_must_exist(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(EndpointError, match="cannot be opened"):
        bind(endpoint(f"unix:{path}"))
    with pytest.raises(EndpointError, match="its directory does not exist"):
        bind(endpoint(f"unix:{tmp_path / 'nowhere' / 'http.sock'}"))

    assert path.read_text() == "precious"
