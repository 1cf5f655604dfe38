"""The log of a process, in each of its formats."""

import contextlib
import json
import os
import pty
import select
import socket
import subprocess
import sys
import termios
import time

import pytest


@pytest.mark.parametrize(("kind", "begins"), [("json", '{"at": "'), ("journal", "<6>sys: connected"), ("text", "20")])
def test_logs_come_as_they_are_asked_for(mosquitto, listen, start_app, monkeypatch, kind, begins):
    monkeypatch.setenv("LOG_FORMAT", kind)
    app = start_app(
        '@app.telemetry("d", interval=0.2)\nasync def d():\n    raise OSError("a\\nb\\x1b[31m")\n', mosquitto.url
    )
    listen(mosquitto.port).wait_for("sys/d/error")
    app.end()

    lines = app.log.splitlines()
    assert any(line.startswith(begins) for line in lines)
    assert "\x1b" not in app.log
    if kind == "json":
        assert all(json.loads(line)["level"] in ("info", "warning") for line in lines)


HOUSE = """
import asyncio, logging, threading, warnings
from pydantic import BaseModel, SecretStr
from leadsman import App

class Settings(BaseModel):
    pin: SecretStr

app = App("house", mqtt="mqtt://127.0.0.1:9", settings=Settings)
polls = 0

class Leaves:
    def __del__(self):
        raise OSError(text())

def text():
    return f"refused {app.settings.pin.get_secret_value()}\\n<0>2026-01-01 00:00:00 ERROR forged"

def fails():
    raise OSError(text())

async def nobody_waits():
    raise OSError(text())

@app.telemetry("d", interval="100ms")
async def read():
    global polls
    polls += 1
    warnings.warn(text())
    Leaves()
    threading.Thread(target=fails, name=text()).start()
    asyncio.create_task(nobody_waits())
    asyncio.get_running_loop().call_soon(fails)
    logging.getLogger("mine").error(text(), extra={"fields": {"mine": text()}})
    if polls == 3:
        app.stop()
"""


@pytest.mark.parametrize("kind", ["json", "journal", "text"])
def test_what_python_itself_reports_is_a_record_without_secrets(kind, tmp_path):
    (tmp_path / "house.py").write_text(HOUSE)
    given = {"HOUSE_PIN": "canary of python", "LOG_FORMAT": kind, "STATE_DIRECTORY": str(tmp_path)}
    command = [sys.executable, "-W", "always", "-m", "leadsman", "run", "house:app"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "canary" not in done.stderr + done.stdout
    reported = ("UserWarning: refused ***", "Leaves.__del__", "an exception ended the thread refused ***")
    assert [each for each in reported if each not in done.stderr] == []
    lines = done.stderr.splitlines()
    if kind == "json":
        assert all(json.loads(line)["level"] for line in lines)
    assert [line for line in lines if line.startswith(("<0>", "2026-01-01"))] == []


READ = """
from leadsman import App

app = App("house", mqtt="{url}", heartbeat="1s")


@app.telemetry("well", interval="100ms")
async def well() -> dict[str, int]:
    return {{}}


@app.telemetry("ill", interval="10ms")
async def ill() -> dict[str, int]:
    raise OSError("x" * 400)
"""


class Unread:
    """An output of a process that nobody reads; it is full before the process starts."""

    def __init__(self, kind):
        match kind:
            case "pipe":
                self.reader, self.writer = os.pipe()
            case "socket":  # as from journald and container engines
                self.reader, self.writer = (each.detach() for each in socket.socketpair())
            case "pty":
                self.reader, self.writer = pty.openpty()
                termios.tcflow(self.writer, termios.TCOOFF)  # Ctrl-S
        if kind != "pty":
            os.set_blocking(self.writer, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(self.writer, b"full\n" * 100)
            os.set_blocking(self.writer, True)
        self.kind = kind

    def read_until(self, text):
        """Read until this comes."""
        if self.kind == "pty":
            termios.tcflow(self.writer, termios.TCOON)
        found, deadline = "", time.monotonic() + 60
        while text not in found:
            assert time.monotonic() < deadline
            if select.select([self.reader], [], [], 0.1)[0]:
                found += os.read(self.reader, 65536).decode(errors="replace")
        return found


UNREAD = pytest.mark.parametrize("kind", ["pipe", "pty", "socket"])


@pytest.fixture
def start(tmp_path):
    """Start a program whose stdout and stderr are an `Unread`."""
    processes, outputs = [], []

    def start(code, kind, **environment):
        outputs.append(Unread(kind))
        (tmp_path / "house.py").write_text(code)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "leadsman", "run", "house:app"],
                cwd=tmp_path,
                env=os.environ | {"STATE_DIRECTORY": str(tmp_path / "state"), **environment},
                stdin=subprocess.DEVNULL,
                stdout=outputs[-1].writer,
                stderr=outputs[-1].writer,
            )
        )
        return processes[-1], outputs[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
    for output in outputs:
        os.close(output.reader)
        os.close(output.writer)


@UNREAD
def test_a_log_that_nobody_reads_costs_no_reading_and_says_how_many_lines_it_lacks(mosquitto, listen, start, kind):
    listener = listen(mosquitto.port)
    process, output = start(READ.format(url=mosquitto.url), kind, LOG_LEVEL="DEBUG")

    listener.wait_for("house/status", where=lambda message: b"log_lines_left_out" in message.payload)
    listener.wait_for("house/well/state", len(listener.on("house/well/state")) + 20)
    text = output.read_until("of the log were left out here: nobody read those before")
    assert text.index("house starts with") < text.index("were left out here")

    process.terminate()
    output.read_until("house stops, asked by SIGTERM")
    assert process.wait(60) == 0


ENDS = {
    "SIGTERM": ("", 0),
    "the last words of a device": (
        "@app.telemetry('d', interval=1, on_failure='stop')\nasync def d():\n    raise OSError('away')\n",
        69,
    ),
    "a setting that is wrong": ("@app.telemetry('d', interval=lambda s: 'x')\nasync def d():\n    return {}\n", 78),
    "a loop that is blocked": (
        "import os, time\n@app.telemetry('d', interval=0.1)\nasync def d():\n    if os.path.exists('block'):\n"
        "        open('blocked', 'w').close()\n        time.sleep(300)\n    return {}\n",
        70,
    ),
    "an error of the program": ("raise RuntimeError('of the program')\n", 1),
    "stdout that is not read either": ("import sys\nsys.stdout.write('x' * 5000)\n", 0),
}


@UNREAD
@pytest.mark.parametrize("end", ENDS)
def test_a_process_whose_output_nobody_reads_ends_with_its_own_code(mosquitto, listen, start, tmp_path, kind, end):
    code, expected = ENDS[end]
    listener = listen(mosquitto.port)
    app = f"from leadsman import App\napp = App('house', mqtt='{mosquitto.url}')\n"
    process, _ = start(f"{app}\n@app.telemetry('well', interval=1)\nasync def well():\n    return {{}}\n{code}", kind)

    if expected in (0, 70):
        listener.wait_for("house/well/state")
        (tmp_path / "block").touch()
        while expected == 70 and not (tmp_path / "blocked").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
    assert process.wait(60) == expected


LAST = """
import os, signal, sys
from leadsman import App
from leadsman.core.loop import output

output.PUT_TIMEOUT = 60.0  # the machine of a test may be busy
app = App("house", mqtt="mqtt://127.0.0.1:9")

@app.telemetry("d", interval=1)
async def d():
    import logging
    logging.getLogger("mine").error("the last line")
    {end}
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.abort()", -6),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGTERM)", 0),
        ("import time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(300)", 70),
    ],
)
@pytest.mark.parametrize("where", ["stderr", "file"])
def test_the_line_before_the_end_is_there(tmp_path, end, code, where):
    (tmp_path / "house.py").write_text(LAST.format(end=end))
    environment = os.environ | {"STATE_DIRECTORY": str(tmp_path), "LOG__PATH": str(tmp_path / "house.log")}
    command = [sys.executable, "-m", "leadsman", "run", "house:app"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    text = done.stderr if where == "stderr" else (tmp_path / "house.log").read_text()
    assert done.returncode == code
    assert "ERROR the last line\n" in text
    assert text.index("house starts with") < text.index("the last line")


def test_a_process_that_forks_writes_each_line_once(tmp_path):
    (tmp_path / "forks.py").write_text(
        "import logging, os, sys\n"
        "from leadsman.core.loop import output\n"
        "from leadsman.core.monitoring.log_format import log_to_stderr\n"
        "output.PUT_TIMEOUT = 60.0\n"
        "log_to_stderr()\n"
        "log = logging.getLogger('leadsman')\n"
        "log.info('of the parent')\n"
        "if os.fork() == 0:\n"
        "    log.info('of the child')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "log.info('the end')\n"
    )
    command = [sys.executable, "-W", "ignore", "forks.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)

    lines = [line.partition(" INFO ")[2] for line in done.stderr.splitlines()]
    assert lines == ["of the parent", "of the child", "the end"]
