"""What a service manager hears, and a loop that is blocked."""

import os
import re
import signal
import socket
import subprocess
import time

from leadsman_rigs.notify_socket import NotifySocket
from leadsman_rigs.service import LEADSMAN

STALE = """
@app.telemetry("dead", interval=0.2, stale_after="1s")
async def dead():
    raise OSError("away")
"""


BLOCKING = """
import subprocess


@app.telemetry("slow", interval=60)
async def read_the_bus_without_await():
    subprocess.run(["sleep", "2.5"])
    return {"t": 1}
"""
CALLBACK = """
def read_the_bus_later():
    time.sleep(2.5)
    asyncio.get_running_loop().call_soon(app.stop)


@app.telemetry("d", interval=60)
async def d():
    asyncio.get_running_loop().call_later(0.5, read_the_bus_later)
"""


def test_the_watchdog_is_not_fed_while_no_data_is_fresh(mosquitto, start_app, tmp_path, monkeypatch):
    manager = NotifySocket(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.setenv("LEADSMAN_HEALTH_FILE", str(tmp_path / "health.json"))
    start_app(STALE, mosquitto.url)

    manager.wait_for("0 of 1 device ok (not dead)")
    manager.listen(3)
    last_fed = max(at for at, line in manager.said if line == "WATCHDOG=1")

    assert time.monotonic() - last_fed > 1
    unwell = subprocess.run([*LEADSMAN, "health"], capture_output=True, text=True)
    assert unwell.returncode == 1
    assert "0 of 1 device ok" in unwell.stderr
    manager.socket.close()


def test_an_abstract_notify_socket_and_one_that_is_gone_are_fine(mosquitto, start_app, listen, monkeypatch):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(f"\0leadsman-{os.getpid()}")
    receiver.settimeout(60)
    monkeypatch.setenv("NOTIFY_SOCKET", f"@leadsman-{os.getpid()}")
    app = start_app('@app.telemetry("d", interval=0.2)\nasync def d():\n    return {}\n', mosquitto.url)
    assert receiver.recv(100) == b"READY=1"
    receiver.close()
    listen(mosquitto.port).wait_for("sys/d/state", 3)

    assert app.end()[0] == 0


def test_the_handler_that_blocks_the_loop_is_named_with_the_stack(mosquitto, listen, start_app):
    app = start_app(BLOCKING, mosquitto.url)
    listen(mosquitto.port).wait_for("sys/slow/state")

    assert re.search(r"The event loop has been blocked for \d", app.log)
    assert "by read_the_bus_without_await (<string>:" in app.log
    assert app.log.count("has been blocked") == 1
    assert 'File "<string>"' in app.log


def test_a_callback_that_blocks_the_loop_is_named(mosquitto, start_app):
    app = start_app(CALLBACK, mosquitto.url)
    app.process.wait(60)

    assert "by read_the_bus_later (<string>:" in app.log


def test_a_process_that_was_stopped_blames_nobody(mosquitto, listen, start_app):
    app = start_app('@app.telemetry("d", interval=0.2)\nasync def d():\n    return {}\n', mosquitto.url)
    listener = listen(mosquitto.port)
    listener.wait_for("sys/d/state", 3)

    app.process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    app.process.send_signal(signal.SIGCONT)
    listener.wait_for("sys/d/state", len(listener.on("sys/d/state")) + 3)

    assert "blocked" not in app.log
