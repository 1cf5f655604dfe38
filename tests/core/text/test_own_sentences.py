"""What hides secrets leaves our own advice alone: each sentence of the source is shown as it was written."""

import ast
from pathlib import Path

import pytest

import leadsman
from leadsman.core.text import clean

PACKAGE = Path(leadsman.__file__).parent
APPS = PACKAGE.parents[1] / "apps"
BEHIND = (
    "",
    ".",
    ", retried",
    "; wait",
    " (gave up: errors of this kind are not retried)",
    ". Readings are kept.",
    "\nwait",
)
"""What the log, `why` and the page add to a sentence."""


def sentences(path):
    """The texts in a module, but for docstrings; each value in one is a word."""
    tree = ast.parse(path.read_text())
    apart = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            apart.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "boiler" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value


def is_sentence(text):
    return " " in text.strip() and text.isprintable() and len(text) < 400 and "(?" not in text  # a regular expression


@pytest.mark.slow
def test_each_sentence_is_shown_as_it_was_written():
    files = [*PACKAGE.rglob("*.py"), *APPS.glob("*/src/**/*.py")]
    written = {text for file in files for text in sentences(file) if is_sentence(text)}

    changed = {
        text: shown
        for text in written
        for behind in BEHIND
        if (shown := clean(text + behind)) != (text + behind).replace("\n", "\\n").replace("user:password@", "***@")
    }

    assert len(written) > 1000
    assert changed == {}


@pytest.mark.parametrize(
    "text",
    [
        "password={0}, and token={0}.",
        "password=,{0}",
        "password=...{0}",
        "password=…{0}",
        "password=;{0} x",
        "token: {0}",
        "token=({0})",
        'auth="digest{0}"',
        "auth=basic{0}",
        'password="digest {0}"',
        "Authorization: Bearer {0}",
        "Authorization: Digest username={0}",
        "Authorization: Bearer {0}…",
    ],
)
def test_what_is_a_secret_there_stays_hidden(text):
    assert "hunter2hunter2" not in clean(text.format("hunter2hunter2"))
