"""The app of the page about SML, as a person types it: in a file of its own, over a pseudo-terminal, to a broker."""

import contextlib
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from leadsman.testing import garbage
from leadsman_rigs.sml_files import WATT, WATT_HOUR, content_of, entry, file_of

PAGE = Path("docs/how-to/sml.md").read_text()
APP, SHOW = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def talking_meter(pty_device):
    """A meter that says its values again and again, with noise and a file that was cut before each of them."""
    file = file_of(
        content_of(
            entry("1-0:1.8.0*255", 12_345_678, WATT_HOUR, -1),
            entry("1-0:2.8.0*255", 77, None),
            entry("1-0:16.7.0*255", 4711, WATT, -1, 4),
        )
    )
    done = threading.Event()

    def talk():
        while not done.wait(0.1):
            with contextlib.suppress(OSError, TimeoutError, TypeError):  # nobody reads
                pty_device.send(garbage(30) + file[:90] + file, timeout=0.2)

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    yield pty_device.path
    done.set()
    thread.join()


def test_the_app_of_the_page_reads_a_meter(tmp_path, talking_meter, mosquitto, listen):
    settings = re.sub(r'port = ".*?"', f'port = "{talking_meter}"', SETTINGS).replace(
        "mqtt://broker.lan", mosquitto.url
    )
    (tmp_path / "electricity.py").write_text(APP)
    (tmp_path / "leadsman.toml").write_text(settings)
    listener = listen(mosquitto.port)

    running = subprocess.Popen([sys.executable, "electricity.py"], cwd=tmp_path)
    try:
        first = listener.wait_for("electricity/meter/state", 1)[0]
    finally:
        running.terminate()
        assert running.wait(30) == 0

    assert json.loads(first.payload) == {"energy_used": 1234.5678, "energy_delivered": None, "power": 471.1}


def test_the_other_program_of_the_page_prints_what_the_meter_says(tmp_path, talking_meter):
    (tmp_path / "show.py").write_text(re.sub(r'"/dev/serial/.*?"', repr(talking_meter), SHOW))

    done = subprocess.run([sys.executable, "show.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.stdout == "1-0:1.8.0*255 1234567.8 Wh\n1-0:2.8.0*255 77 \n1-0:16.7.0*255 471.1 W\n", done.stderr


def test_the_demo_says_what_the_page_shows(tmp_path):
    (tmp_path / "electricity.py").write_text(APP)
    shown = re.search(r'^    (\{"energy_used".*)$', PAGE, re.MULTILINE)[1]

    running = subprocess.Popen(
        [sys.executable, "electricity.py", "--demo"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        found = next(line for line in running.stdout if "electricity/meter/state" in line)
    finally:
        running.terminate()
        running.communicate(timeout=30)

    assert shown in found
