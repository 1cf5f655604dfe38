"""The README's code is run as it stands there."""

import re
from pathlib import Path

import pytest

from leadsman import App
from leadsman.testing import Harness, SerialTwin

SHOWN = re.findall(r"^    (house/\S+) +(\S.*?)(?: {2,}(retained))?$", Path("README.md").read_text(), re.MULTILINE)
BLOCKS = re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)


def test_there_is_code_in_the_readme():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["the app", "the test of an app"])
def test_the_code_of_the_readme_works(block, monkeypatch):
    monkeypatch.setattr(App, "run", lambda app: None)
    names = {}

    exec(block, names)

    for name, thing in names.items():
        if name.startswith("test_"):
            thing()


@pytest.mark.parametrize(("topic", "payload", "retained"), SHOWN)
def test_what_the_readme_shows_is_published(topic, payload, retained, monkeypatch):
    monkeypatch.setattr(App, "run", lambda app: None)
    answers = [b"412.5\r\n"] * 4 + [b""] * 100
    code = BLOCKS[0].replace('SerialPort("/dev/serial/by-id/usb-meter", 9600)', "TWIN")
    assert "TWIN" in code
    names = {"TWIN": SerialTwin(lambda request: answers.pop(0))}
    exec(code, names)

    with Harness(names["app"]) as harness:
        harness.run("10m")
        messages = [message for message in harness.broker.log if message.topic == topic]

    pattern = re.escape(payload).replace("…", ".*")
    assert [message for message in messages if re.search(pattern, message.payload.decode())]
    assert all(message.retain for message in messages) if retained else messages
