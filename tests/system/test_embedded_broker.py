"""The broker that stands in for mosquitto: a process that lives as long as the one that started it."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from leadsman.errors import LeadsmanError
from leadsman.testing.embedded import embedded_broker

HOLDING = """\
import time
from leadsman.testing.embedded import embedded_broker
with embedded_broker() as port:
    print(port, flush=True)
    time.sleep(60)
"""


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_listens_on_its_port_until_the_end_of_the_block():
    with embedded_broker() as port:
        assert answers(port)
    assert not answers(port)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_a_process_that_has_no_time_to_end_it(number):
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True) as holder:
        port = int(holder.stdout.readline())
        assert answers(port)
        holder.send_signal(number)

    deadline = time.monotonic() + 10
    while answers(port):
        assert time.monotonic() < deadline, "it outlived its parent"
        time.sleep(0.01)


def test_a_broker_that_cannot_start_is_a_named_error():
    with pytest.raises(LeadsmanError, match="did not start"), embedded_broker({"no.such.Plugin": {}}):
        pass


def test_without_amqtt_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "amqtt", None)

    with pytest.raises(LeadsmanError, match=r"install leadsman\[demo\]"), embedded_broker():
        pass
