"""The pages for newcomers: what they say to type is typed, and what they show is what comes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ELSEWHERE = ("sudo ", "python3 -m venv ", "pip ", "make ", "git ")
"""What needs the network, or would change this machine."""
STAYS = ("leadsman run", "python sound.py", "mosquitto_sub")
"""What runs until somebody ends it."""
CONNECTED = "connected to the broker"
PROGRAMS = (*ELSEWHERE, "cd ", "leadsman ", "python ", "mosquitto_")
WRAPPER = '#!/bin/sh\nexec {program} {options} "$@"\n'


def indented(page):
    """The lines of its blocks that are indented: what to type, and what is shown; without code."""
    text = re.sub(r"```.*?```", "", Path(page).read_text(), flags=re.DOTALL)
    text = re.sub(r"    @app.*?\n\n", "", text, flags=re.DOTALL)
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def shown(line):
    """What matches an output like this one: other numbers and times, and anything for …"""
    pattern = re.escape(line).replace("…", ".*").replace("/home/ann", ".*")
    pattern = re.sub(r"-?\d+(\\\.\d+)?", r"-?\\d+(\\.\\d+)?", pattern)
    return re.sub(r"(\\ )+", r"\\s+", pattern)


class Terminal:
    """A terminal in an empty directory, whose broker is not on port 1883."""

    def __init__(self, directory, broker):
        self.directory, self.running = directory, []
        self.seen = 0
        """Characters of the output that belong to the life before."""
        self.output = directory / "output"
        tools = directory / "bin"
        tools.mkdir()
        for name in ("mosquitto_sub", "mosquitto_pub"):
            self.tool(tools / name, shutil.which(name), f"-p {broker.port}")
        self.tool(tools / "leadsman", sys.executable, "-m leadsman")
        self.tool(tools / "python", sys.executable, "")
        state = str(directory / "state")
        self.environment = {**os.environ, "MQTT__URL": broker.url, "XDG_STATE_HOME": state, "COLUMNS": "160"}
        self.environment["PATH"] = f"{tools}:{os.environ['PATH']}"

    def tool(self, path, program, options):
        path.write_text(WRAPPER.format(program=program, options=options))
        path.chmod(0o755)

    def type(self, line, exit_code=0):
        for command in line.split("&&"):
            words = shlex.split(command, comments=True)
            if words[0] == "cd":
                self.directory /= words[1]
            elif command.strip().startswith(STAYS):
                connected = self.said().count(CONNECTED)
                self.running.append(self.start(words))
                if words[0] == "mosquitto_sub":
                    time.sleep(0.5)
                else:
                    self.waits_for(lambda before=connected: self.said().count(CONNECTED) > before)
            else:
                assert self.start(words).wait(120) == exit_code, self.said()

    def start(self, words):
        with self.output.open("ab") as output:
            return subprocess.Popen(words, cwd=self.directory, env=self.environment, stdout=output, stderr=output)

    def said(self):
        return self.output.read_text(errors="replace")[self.seen :] if self.output.exists() else ""

    def sees(self, line):
        self.waits_for(lambda: re.search(shown(line), self.said()), line)

    def waits_for(self, come, what="it"):
        deadline = time.monotonic() + 90
        while not come():
            assert time.monotonic() < deadline, f"{what!r} did not come:\n{self.said()}"
            time.sleep(0.05)

    def restarts(self):
        """End the app and start it again."""
        (app,) = [process for process in self.running if "run" in process.args]
        app.terminate()
        assert app.wait(60) == 0
        self.running.remove(app)
        self.seen += len(self.said())
        self.type(" ".join(app.args))

    def follows(self, page, first=None):
        """Type and see all of a page. `first` has what to do before a line that is shown."""
        for line in indented(page):
            for key, do in (first or {}).items():
                if key in line:
                    do()
            if line.startswith(ELSEWHERE) or set(line) <= {"-", " "}:
                continue
            if line.startswith(PROGRAMS):
                self.type(line)
            elif line:
                self.sees(line)


@pytest.fixture
def terminal(tmp_path, mosquitto):
    it = Terminal(tmp_path, mosquitto)
    yield it
    for process in it.running:
        process.kill()
        process.wait()


def replace(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def test_the_quickstart(terminal):
    (program,) = re.findall(r"```python\n(.*?)```", Path("docs/quickstart.md").read_text(), re.DOTALL)
    (terminal.directory / "sound.py").write_text(program)

    terminal.follows("docs/quickstart.md")


def test_the_tutorial(terminal):
    def misspelt():
        settings = terminal.directory / "leadsman.toml"
        replace(settings, "every =", "evry =")
        terminal.type("leadsman check house:app", exit_code=78)
        replace(settings, "evry =", "every =")

    def failing():
        replace(terminal.directory / "leadsman.toml", 'path = "/tmp"', 'path = "/nowhere"')
        terminal.restarts()

    def fixed():
        replace(terminal.directory / "leadsman.toml", 'path = "/nowhere"', 'path = "/tmp"')
        terminal.restarts()

    first = {"disks.tmp.evry": misspelt, "WARNING tmp": failing, '"temperature": 21}': fixed}
    terminal.follows("docs/tutorial.md", first)


def test_the_app_of_the_tutorial_is_the_one_that_init_writes(terminal):
    template = Path("src/leadsman/tools/cli/templates/module.py.txt").read_text()
    text = Path("docs/tutorial.md").read_text()
    handler = re.search(r"(    @app.telemetry.*?)\n\n[A-Z]", text, re.DOTALL)[1]

    assert re.sub("^    ", "", handler, flags=re.MULTILINE) in template


def test_the_command_of_the_readme_writes_an_app_that_runs(terminal):
    (command,) = re.findall("`(leadsman init .*?)`", Path("README.md").read_text())

    terminal.type(f"{command} && cd house && leadsman check house:app && leadsman run house:app")

    terminal.sees("connected to the broker")
