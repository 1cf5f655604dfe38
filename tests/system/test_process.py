"""A real process: signals, blocked threads, blocked loops, and an end within the deadline."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import paho.mqtt.client as paho
import pytest

from leadsman.testing.mosquitto import free_port

READING = """
@app.telemetry("sound", interval=0.2)
async def sound():
    return {"t": 1}
"""
BACKOFF = """
@app.telemetry("failing", interval=60, retry=3, backoff=FixedBackoff(30))
async def failing():
    raise OSError("away")
"""
THREAD = """
@app.telemetry("blocked", interval=1)
def blocked():
    threading.Event().wait()
"""
THREADS = """
def blocked():
    threading.Event().wait()

for number in range(50):
    app.add_telemetry(f"blocked{number}", blocked, interval=0.5)
"""
TO_THREAD = """
@app.telemetry("blocked", interval=1)
async def blocked():
    await asyncio.to_thread(threading.Event().wait)
"""
FROZEN = """
import gc

@app.telemetry("frozen", interval=0.2)
async def frozen():
    return {"objects": gc.get_freeze_count()}
"""
STUBBORN = """
@app.telemetry("stubborn", interval=1)
async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""
LOOP = """
@app.telemetry("blocking", interval=60)
async def blocking():
    print("blocks the loop", flush=True)
    time.sleep(300)
"""
SLOW_DISK = """
import os
from leadsman import Context

sync = os.fsync

def sync_slowly(handle):
    time.sleep(0.6)
    sync(handle)

os.fsync = sync_slowly

@app.telemetry("counting", interval=0.2)
async def counting(context: Context):
    context.store["count"] = context.store.get("count", 0) + 1
    return dict(context.store)
"""


SECOND = """
import atexit
import os
import signal

@atexit.register  # what is registered before the app runs is called after what the app registers
def second():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
"""


SLACK = 4.0
"""Seconds that a busy machine may take besides."""


@pytest.mark.parametrize(
    "code",
    [READING, READING + BACKOFF, READING + THREAD, READING + THREADS, READING + TO_THREAD],
    ids=["idle", "backoff", "thread", "threads", "to_thread"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_and_says_so(mosquitto, listen, start_app, code, number):
    listener = listen(mosquitto.port)
    app = start_app(code, mosquitto.url)
    listener.wait_for("sys/sound/state", 3)

    exit_code, took = app.end(number)

    assert exit_code == 0
    assert took <= 1 + SLACK
    listener.wait_for("sys/status", where=lambda message: json.loads(message.payload)["state"] == "offline")
    assert [each.payload for each in listener.on("sys/sound/availability")] == [b"online"]
    assert f"sys stops, asked by {number.name}" in app.log
    assert "sys starts with leadsman" in app.log


def test_what_a_busy_disk_takes_long_for_is_written_before_the_process_ends(mosquitto, listen, start_app, tmp_path):
    listener = listen(mosquitto.port)
    app = start_app(SLOW_DISK, mosquitto.url, state=tmp_path / "kept")
    listener.wait_for("sys/counting/state", 3)

    exit_code, took = app.end()

    assert exit_code == 0
    assert took <= 2 + SLACK
    assert "did not end in time" not in app.log
    last = listener.on("sys/counting/state")[-1]
    assert json.loads((tmp_path / "kept" / "leadsman" / "sys" / "counting.json").read_text()) == json.loads(
        last.payload
    )


def test_the_garbage_collector_leaves_the_parts_of_the_app_alone_while_it_runs(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    start_app(FROZEN, mosquitto.url)
    state = listener.wait_for("sys/frozen/state", 3)[-1]

    assert json.loads(state.payload)["objects"] > 10_000


def test_a_handler_that_swallows_its_cancellation_is_left_behind(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(READING + STUBBORN, mosquitto.url)
    listener.wait_for("sys/sound/state", 3)

    exit_code, took = app.end()

    assert exit_code == 0
    assert took <= 2 + SLACK
    assert "1 call did not end in time; the process ends anyway" in app.log
    listener.wait_for("sys/status", where=lambda message: json.loads(message.payload)["state"] == "offline")


def test_a_blocked_event_loop_delays_the_end_by_two_seconds_at_most(mosquitto, listen, start_app):
    app = start_app(READING + LOOP, mosquitto.url)
    app.wait_for("blocks the loop")

    exit_code, took = app.end()

    assert exit_code == 70
    assert took <= 2 + SLACK


@pytest.mark.parametrize("devices", [1, 50])
def test_a_frozen_broker_delays_the_end_by_two_seconds_at_most_and_says_offline_later(
    client, mosquitto, listen, start_app, devices
):
    listener = listen(mosquitto.port)
    many = f"for i in range({devices}): app.add_telemetry(f'd{{i}}', sound, interval=0.2)\n"
    app = start_app(READING + many, mosquitto.url)
    listener.wait_for("sys/sound/state", 3)
    mosquitto.freeze()
    time.sleep(1)

    exit_code, took = app.end()

    mosquitto.thaw()
    assert exit_code == 0
    assert took <= 2 + SLACK
    listener.wait_for("sys/status", where=lambda message: json.loads(message.payload)["state"] == "offline")


def test_without_a_broker_it_ends_at_once(start_app):
    app = start_app(READING, f"mqtt://127.0.0.1:{free_port()}")
    app.wait_for("Connection refused")

    assert app.end()[0] == 0


def test_a_broker_that_swallows_connections_does_not_delay_the_end(start_app):
    import socket

    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # the next connection attempt is never answered
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
        app = start_app(READING, f"mqtt://127.0.0.1:{hole.getsockname()[1]}")
        app.wait_for("sys starts")
        time.sleep(0.5)

        exit_code, took = app.end()

        for filler in fillers:
            filler.close()
    assert exit_code == 0
    assert took <= 1 + SLACK


def test_a_second_interrupt_ends_it_now(mosquitto, start_app):
    app = start_app(READING + LOOP, mosquitto.url)
    app.wait_for("blocks the loop")
    app.process.send_signal(signal.SIGINT)
    time.sleep(0.3)

    exit_code, _ = app.end(signal.SIGINT)

    assert exit_code == 130, "it was not the deadline, which ends it with 70"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_twice_at_once_is_one_request(mosquitto, listen, start_app, number):
    listener = listen(mosquitto.port)
    app = start_app(READING, mosquitto.url)
    listener.wait_for("sys/sound/state", 3)
    app.process.send_signal(number)

    exit_code, _ = app.end(number)

    assert exit_code == 0
    listener.wait_for("sys/status", where=lambda message: b"offline" in message.payload)


def test_a_second_interrupt_after_the_app_has_ended_is_no_traceback(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(READING + SECOND, mosquitto.url)
    listener.wait_for("sys/sound/state", 3)

    exit_code, _ = app.end(signal.SIGINT)

    assert exit_code == 130
    assert "Traceback (most" not in app.log


AFTERWARDS = """
import sys, time
time.sleep(2.5)
print("the program has gone on", file=sys.stderr, flush=True)
"""
THREAD_OF_THE_PROGRAM = """
import threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
"""


def test_what_the_program_does_after_the_app_takes_its_time(mosquitto, listen, alone):
    listener = listen(mosquitto.port)
    process = alone(UNREAD + AFTERWARDS, URL=mosquitto.url)
    listener.wait_for("sys/sound/state", 2)

    process.terminate()
    _, log = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "the program has gone on" in log.decode()


def test_a_thread_that_hangs_after_the_app_delays_the_end_by_two_seconds_at_most(mosquitto, listen, alone):
    listener = listen(mosquitto.port)
    process = alone(UNREAD + THREAD_OF_THE_PROGRAM, URL=mosquitto.url)
    listener.wait_for("sys/sound/state", 2)

    process.terminate()

    assert process.wait(2 + SLACK) == 70


def test_a_signal_right_after_the_start_ends_it_too(mosquitto, start_app):
    for delay in (0.05, 0.15, 0.3, 0.45):
        app = start_app(READING, mosquitto.url)
        time.sleep(delay)
        exit_code, took = app.end()
        assert exit_code in (0, -signal.SIGTERM)
        assert took <= 1.5 + SLACK


def test_a_wrong_environment_is_a_named_error_without_a_traceback(tmp_path):
    script = tmp_path / "app.py"
    script.write_text("from leadsman import App\nApp('x').run()\n")

    result = subprocess.run(
        [sys.executable, script], env={**os.environ, "MQTT__PORT": "many"}, capture_output=True, text=True, check=False
    )

    assert result.returncode == 78
    assert (
        result.stderr == "x: mqtt.port is 'many'; it must be a number from 1 to 65535 (from environment MQTT__PORT)\n"
    )


def test_a_wrong_log_level_is_a_named_error_and_an_exit_code(monkeypatch, start_app):
    monkeypatch.setenv("LOG_LEVEL", "chatty")

    app = start_app(READING, "mqtt://127.0.0.1:1")

    assert app.process.wait(60) == 78
    assert app.log == "sys: LOG_LEVEL is 'CHATTY'; it must be DEBUG, INFO, WARNING, ERROR or CRITICAL\n"


@pytest.fixture
def alone():
    """Start a program with an empty environment, so that nobody's PYTHONUNBUFFERED hides what its last flush does."""
    with contextlib.ExitStack() as stack:

        def start(code, redirect="", **variables):
            command = ["/bin/sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, code]
            process = stack.enter_context(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE))
            stack.callback(process.kill)
            return process

        yield start


UNREAD = "from leadsman import *\nimport os\napp = App('sys', mqtt=os.environ['URL'])\n" + READING + "app.run()\n"


def test_a_log_nobody_reads_any_more_does_not_keep_it_alive(mosquitto, listen, alone):
    listener = listen(mosquitto.port)
    process = alone(UNREAD, URL=mosquitto.url)
    listener.wait_for("sys/sound/state", 2)
    process.stderr.close()
    mosquitto.kill()
    time.sleep(0.5)

    process.terminate()

    assert process.wait(60) == 0


def test_the_exit_code_of_a_wrong_configuration_needs_no_reader_of_stderr(alone):
    process = alone("from leadsman import App\nApp('x').run()\n", MQTT__PORT="many")
    process.stderr.close()

    assert process.wait(60) == 78


@pytest.mark.parametrize("redirect", ["2>/dev/full", ">&- 2>&-"], ids=["a full disk", "closed"])
def test_a_log_that_cannot_be_written_does_not_change_the_exit_code(mosquitto, listen, alone, redirect):
    listener = listen(mosquitto.port)
    process = alone(UNREAD, redirect, URL=mosquitto.url)
    listener.wait_for("sys/sound/state", 2)

    process.terminate()

    assert process.wait(60) == 0


ENDS = """
import atexit, gc, os
from leadsman import App

before = gc.get_freeze_count()  # Python freezes some objects of its own
atexit.register(lambda: os.write(2, b"frozen" if gc.get_freeze_count() > before else b"searched"))

def write():  # a cycle: the function has the module's names, and the module has it
    pass

{}
App("x").run()
"""


@pytest.mark.parametrize(
    ("opened", "end"), [("", b"frozen"), ("file = open('written', 'w')\nfile.write('kept')", b"searched")]
)
def test_the_last_search_for_garbage_is_spared_unless_a_file_is_open(alone, tmp_path, monkeypatch, opened, end):
    monkeypatch.chdir(tmp_path)
    process = alone(ENDS.format(opened), MQTT__PORT="many")

    assert process.communicate(timeout=60)[1].endswith(end)
    assert process.returncode == 78
    assert not opened or (tmp_path / "written").read_text() == "kept"


SLOW_IMPORTS = """
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name in ("mqtt5", "aiomqtt"):
            print(f"importing {name}", flush=True)
            time.sleep(1.5)

sys.meta_path.insert(0, Slow())
"""


def test_a_small_machine_that_takes_long_to_import_has_no_blocked_loop(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    app = start_app(SLOW_IMPORTS + READING, mosquitto.url)
    listener.wait_for("sys/sound/state")
    app.end()

    assert "importing mqtt5" in app.log
    assert "blocked" not in app.log


def test_nor_has_one_that_needs_the_other_client_once_the_broker_has_answered(old_broker, listen, start_app):
    listener = listen(old_broker, version=paho.MQTTv311)
    app = start_app(SLOW_IMPORTS + READING, f"mqtt://127.0.0.1:{old_broker}")
    listener.wait_for("sys/sound/state")
    app.end()

    assert "importing aiomqtt" in app.log
    assert "blocked" not in app.log


@pytest.mark.parametrize(("asked", "spoken"), [("", "mqtt5"), ("?client=aiomqtt", "aiomqtt")])
def test_the_url_chooses_the_client_and_the_other_library_is_not_imported(mosquitto, listen, start_app, asked, spoken):
    listener = listen(mosquitto.port)
    code = """
@app.telemetry("imports", interval=60)
async def imports():
    return {name: name in sys.modules for name in ("mqtt5", "aiomqtt")}
"""
    start_app(code, f"{mosquitto.url}{asked}")

    status = json.loads(listener.wait_for("sys/status", where=lambda message: b"online" in message.payload)[0].payload)
    imported = json.loads(listener.wait_for("sys/imports/state")[0].payload)
    assert (status["mqtt"]["client"], status["mqtt"]["protocol"]) == (spoken, "5.0")
    assert imported == {name: name == spoken for name in imported}


def test_the_log_escapes_what_a_device_sends(mosquitto, start_app):
    app = start_app(
        """
@app.telemetry("odd", interval=60)
async def odd():
    raise OSError("\\x1b[2J\\r\\n2026-01-01 INFO forged")
""",
        mosquitto.url,
    )
    app.wait_for("forged")

    assert "\\x1b[2J\\r\\n2026-01-01 INFO forged" in app.log
    assert "\x1b" not in app.log


def test_a_library_that_logs_by_the_root_logger_neither_doubles_lines_nor_breaks_their_format(
    mosquitto, listen, start_app
):
    listener = listen(mosquitto.port)
    code = """
import logging
@app.telemetry("d", interval=0.2)
async def d():
    logging.error("trouble in a library")
    logging.info("nothing to see")
    return {"t": 1}
"""
    app = start_app(code, mosquitto.url)
    listener.wait_for("sys/d/state", 3)
    app.end()

    lines = app.log.splitlines()
    assert sum("connected to the broker" in line for line in lines) == 1
    assert sum("trouble in a library" in line for line in lines) >= 3
    assert all(line.startswith("20") for line in lines)
    assert "nothing to see" not in app.log
