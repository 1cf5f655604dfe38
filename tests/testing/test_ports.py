import random
import socket

from leadsman.testing import mosquitto
from leadsman.testing.mosquitto import FIRST_PORT, free_port


def test_a_free_port_is_none_that_the_system_gives_to_an_outgoing_connection(monkeypatch, tmp_path):
    outgoing = tmp_path / "ip_local_port_range"
    outgoing.write_text("32768\t60999\n")
    monkeypatch.setattr(mosquitto, "_OUTGOING_PORTS", outgoing)

    for _ in range(100):
        assert FIRST_PORT <= free_port() < 32768


def test_where_the_system_gives_all_of_them_it_chooses_the_port(monkeypatch, tmp_path):
    outgoing = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(mosquitto, "_OUTGOING_PORTS", outgoing)
    for text in ("1024\t65535\n", None):
        if text is not None:
            outgoing.write_text(text)
        else:
            outgoing.unlink()
        with socket.create_server(("127.0.0.1", free_port())):
            pass


def test_two_programs_with_the_same_seed_get_different_ports():
    ports = []
    for _ in range(20):
        random.seed(0)
        ports.append(free_port())

    assert len(set(ports)) > 1
