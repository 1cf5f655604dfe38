"""What `leadsman watch` says of its own connection, and which patterns it takes. A real terminal has
`tests/system/test_watch.py`."""

import asyncio
import os
import termios
from types import SimpleNamespace

import pytest

from leadsman.cli import keys, watch
from leadsman.cli.main import main
from leadsman.cli.watch import Watcher
from leadsman.errors import SubscriptionRefused
from leadsman.mqtt.broker import Broker


class Refusing:
    """A connection to a broker that refuses every subscription."""

    async def subscribe(self, topic_filter):
        raise SubscriptionRefused(f"the broker refused the subscription to {topic_filter}")


@pytest.fixture
def watcher():
    found = Watcher(Broker.from_url("mqtt://broker.lan"), ())
    found._away_since = None
    return found


def test_a_request_that_the_broker_refuses_is_said(watcher):
    assert watcher._trouble(0.0) is None
    watcher.acknowledged(1, 0)
    assert watcher._trouble(0.0) is None

    watcher.acknowledged(2, 0x87)

    assert watcher._trouble(0.0) == "the broker refused a request for introspection (0x87)"


def test_a_subscription_that_the_broker_refuses_is_said(watcher):
    asyncio.run(watcher._subscribe(Refusing(), ["house/+/state"]))

    assert watcher._trouble(0.0) == "the broker refused the subscription to house/+/state"


@pytest.mark.parametrize(("size", "used"), [((0, 0), (80, 24)), ((132, 43), (132, 43)), ((0, 50), (80, 50))])
def test_a_terminal_that_does_not_know_its_size_is_taken_for_a_common_one(monkeypatch, size, used):
    monkeypatch.setattr("sys.stdout", SimpleNamespace(fileno=lambda: 1))
    monkeypatch.setattr(watch.os, "get_terminal_size", lambda number: os.terminal_size(size))

    assert watch._size() == used


def test_the_last_column_stays_free(watcher, monkeypatch):
    monkeypatch.setattr(watch, "_size", lambda: (40, 10))

    lines = watcher._frame(0.0)

    assert len(lines) == 10
    assert max(map(len, lines)) == 39


def test_a_terminal_that_is_gone_ends_the_board(watcher):
    def draw(lines):
        raise OSError(5, "Input/output error")

    watcher._frame = lambda now: ["x"]

    asyncio.run(watcher._draw(draw))


def test_a_terminal_that_is_gone_cannot_be_given_back_and_that_is_no_error(monkeypatch):
    def gone(*arguments):
        raise termios.error(5, "Input/output error")

    leader, follower = os.openpty()
    with open(follower, "r+b", buffering=0, closefd=True) as terminal:
        monkeypatch.setattr(keys.sys, "stdin", terminal)
        monkeypatch.setattr(keys.sys, "stdout", terminal)
        with keys.full_screen():
            monkeypatch.setattr(keys.termios, "tcsetattr", gone)
    os.close(leader)


@pytest.mark.parametrize("pattern", ["ho+", "house/#", "a//b", "home/+x"])
def test_a_pattern_that_is_no_prefix_is_a_wrong_command_line(capsys, pattern):
    assert main(["watch", pattern, "--once"]) == 2
    assert "is not a prefix" in capsys.readouterr().err
