"""What `leadsman watch` says of its own connection, and which patterns it takes. A real terminal has
`tests/system/test_watch.py`."""

import asyncio
import json
import os
import re
import sys
import termios
from types import SimpleNamespace

import pytest

from leadsman import Brokers, Received
from leadsman.errors import BrokerError, ConnectionRefused, SubscriptionRefused, TlsRefused
from leadsman.mqtt.connection_state import ConnectionState
from leadsman.tools.cli import terminal
from leadsman.tools.cli.commands import watch
from leadsman.tools.cli.commands.watch import FleetWatcher
from leadsman.tools.cli.main import main
from leadsman.tools.cli.screen import text_of


class Refusing:
    """A connection to a broker that refuses every subscription."""

    async def subscribe(self, topic_filter):
        raise SubscriptionRefused(f"the broker refused the subscription to {topic_filter}")


@pytest.fixture
def watcher():
    found = FleetWatcher(Brokers.of("mqtt://broker.lan"), ())
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


@pytest.mark.parametrize("error", [ConnectionRefused(0x86, "bad password"), TlsRefused("unknown certificate")])
def test_a_refusal_that_only_a_person_can_mend_is_tried_again_as_seldom_as_an_app_does_it(error):
    session, waits = ConnectionState(), []
    for _ in range(6):
        session, wait = watch.after(error, session, 1.0)
        waits.append(wait)

    assert waits == [5.0, 10.0, 20.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize("error", [BrokerError("unreachable"), ConnectionRefused(0x88, "the server is unavailable")])
def test_any_other_failure_is_tried_again_at_once_for_the_person_who_looks(error):
    patient, _ = watch.after(TlsRefused("unknown certificate"), ConnectionState(), 0.0)

    assert watch.after(error, patient, 0.0) == (ConnectionState(), watch.RECONNECT)


def test_the_screen_says_why_there_is_no_connection_and_when_the_next_attempt_is(watcher, monkeypatch):
    async def refused(*arguments):
        raise ConnectionRefused(0x86, "bad user name or password")

    async def one_attempt():
        listening = asyncio.create_task(watcher._listen())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        listening.cancel()

    monkeypatch.setattr("leadsman.mqtt.client.connect", refused)
    monkeypatch.setattr(watch.time, "time", lambda: 1000.0)
    monkeypatch.setattr(watch.random, "random", lambda: 1.0)

    asyncio.run(one_attempt())

    assert watcher._trouble(1002.0) == (
        "no connection to the broker for 2s: bad user name or password; next attempt in 3s; the board shows old values"
    )


@pytest.mark.parametrize(("size", "used"), [((0, 0), (79, 24)), ((132, 43), (131, 43)), ((0, 50), (79, 50))])
def test_a_terminal_that_does_not_know_its_size_is_taken_for_a_common_one(monkeypatch, size, used):
    monkeypatch.setattr("sys.stdout", SimpleNamespace(fileno=lambda: 1))
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size(size))

    assert terminal.size() == used  # the last column stays free


def test_the_board_fills_the_screen(watcher, monkeypatch):
    monkeypatch.setattr(watch, "size", lambda: (39, 10))

    lines = [text_of(line, colour=True) for line in watcher._frame(0.0)]

    assert len(lines) == 10
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in lines) == 39


def test_a_terminal_that_is_gone_ends_the_screen(monkeypatch):
    leader, follower = os.openpty()
    with open(follower, "r+b", buffering=0, closefd=True) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(sys, "stdout", stream)

        async def pull_the_plug():
            os.close(leader)
            await asyncio.Event().wait()

        asyncio.run(asyncio.wait_for(terminal.show(lambda: [[("x", "")]], lambda keys: False, pull_the_plug()), 60))


def test_a_terminal_that_is_gone_cannot_be_given_back_and_that_is_no_error(monkeypatch):
    def gone(*arguments):
        raise termios.error(5, "Input/output error")

    leader, follower = os.openpty()
    with open(follower, "r+b", buffering=0, closefd=True) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(sys, "stdout", stream)
        with terminal.raw_keys(), terminal.full_screen():
            monkeypatch.setattr(termios, "tcsetattr", gone)
    os.close(leader)


@pytest.mark.parametrize("pattern", ["ho+", "house/#", "a//b", "home/+x"])
def test_a_pattern_that_is_no_prefix_is_a_wrong_command_line(capsys, pattern):
    assert main(["watch", pattern, "--once"]) == 2
    assert "is not a prefix" in capsys.readouterr().err


def test_the_next_broker_is_tried_when_one_cannot_be_reached(monkeypatch):
    tried = []

    async def connected(broker, clock, packet, listener):
        tried.append(broker.host)
        raise BrokerError("unreachable")

    async def no_wait(seconds):
        if len(tried) == 5:
            raise asyncio.CancelledError

    monkeypatch.setattr("leadsman.mqtt.client.connect", connected)
    monkeypatch.setattr(watch.asyncio, "sleep", no_wait)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(FleetWatcher(Brokers.of(["mqtt://a", "mqtt://b"]), ())._listen())

    assert tried == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_board_that_is_printed_once_waits_for_no_broker_that_is_away(monkeypatch, form, capsys, tmp_path):
    tried = []

    async def connected(broker, clock, packet, listener):
        tried.append(broker.host)
        raise BrokerError(f"cannot connect to {broker}: Connection refused")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("leadsman.mqtt.client.connect", connected)
    monkeypatch.setattr(watch, "RECONNECT", 0.0)

    assert main(["watch", "--once", *form, "--timeout", "1h", "--mqtt", "mqtt://a,mqtt://b"]) == 1
    assert tried[:2] == ["a", "b"]
    assert capsys.readouterr().err == "leadsman: cannot connect to mqtt://b:1883: Connection refused\n"


class Deserted:
    """A connection to a broker that has one app, as it retains, and knows that nobody listens to requests."""

    def __init__(self, listener, says):
        self._listener, self._says = listener, says

    async def subscribe(self, topic_filter):
        if topic_filter == "+/status":
            status = {"state": "online", "session": 1, "devices": {"attic": {"status": "ok"}}}
            self._listener.received(Received("house/status", json.dumps(status).encode(), True))

    def publish(self, message):
        asyncio.get_running_loop().call_soon(self._listener.acknowledged, 7, self._says)
        return 7

    def abort(self):
        pass


def test_a_board_that_is_printed_once_waits_for_no_app_that_does_not_listen(monkeypatch, capsys, tmp_path):
    async def connected(broker, clock, packet, listener):
        return Deserted(listener, 0x10)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("leadsman.mqtt.client.connect", connected)

    assert main(["watch", "--once", "--timeout", "1h", "--mqtt", "mqtt://a"]) == 0
    assert "attic" in capsys.readouterr().out


def test_an_app_that_listens_again_is_waited_for_again(watcher):
    watcher._requests = {1: "house", 2: "house"}
    watcher.acknowledged(1, 0x10)
    assert watcher._deaf == {"house"}

    watcher.acknowledged(2, 0)
    assert watcher._deaf == set()
    assert watcher._requests == {}
