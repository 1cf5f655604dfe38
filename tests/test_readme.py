"""The README's code is run as it stands there."""

import re
from pathlib import Path

import pytest

from leadsman import App

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
