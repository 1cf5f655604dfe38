"""`leadsman watch` in virtual time: what it shows of its own connection, when it tries again, and which patterns it
takes. A real terminal has `tests/system/test_watch.py`."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import select
import sys
import termios
import threading

import pytest

from leadsman.errors import BrokerError, TlsRefused
from leadsman.testing import VirtualLoop
from leadsman.tools.cli import terminal
from leadsman.tools.cli.main import main
from leadsman_rigs.stage import URL

STATUS = {"state": "online", "session": 1, "devices": {"attic": {"status": "ok"}}}
AWAY = BrokerError("unreachable")


class Watched:
    """Types `leadsman watch` in virtual time. Events are pairs: a time, and what is called then."""

    def __init__(self, monkeypatch, stage):
        self._monkeypatch, self.stage = monkeypatch, stage
        self.loop = VirtualLoop()
        monkeypatch.setattr("asyncio.events.new_event_loop", lambda: self.loop)
        monkeypatch.setattr("time.time", self.loop.wall_time)

    def printed(self, *arguments, until=None, events=()):
        """What it prints without a terminal. Ctrl-C comes at the end."""
        self._plan(events, until, self._interrupt)
        return self.stage.run("watch", "--mqtt", URL, *arguments)

    def _interrupt(self):
        raise KeyboardInterrupt

    def frames(self, *, until, events=(), mqtt=URL, size=(200, 24)):
        """The frames that it draws on a terminal, each as its lines. A q comes at the end."""
        leader, follower = os.openpty()
        termios.tcsetwinsize(follower, size[::-1])
        drawn = []
        reading = threading.Thread(target=_read_all, args=(leader, drawn), daemon=True)
        reading.start()

        def press_q():
            os.write(leader, b"q")
            select.select([follower], [], [], 60)  # the kernel may take its time, and the loop would jump on

        self._plan(events, until, press_q)
        with open(follower, "r+b", buffering=0) as stream, self._monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", stream)
            patched.setattr(sys, "stdout", stream)
            assert main(["watch", "--mqtt", mqtt]) == 0
        reading.join(60)
        os.close(leader)
        text = re.sub("\x1b\\[[0-9;]*[mKJ]", "", b"".join(drawn).decode().partition("\x1b[?25h")[0])
        return [frame.split("\r\n") for frame in text.split("\x1b[H")[1:]]

    def _plan(self, events, until, end):
        for at, event in (*events, (until, end)):
            if at is not None:
                self.loop.call_at(at, event)


def _read_all(leader, drawn):
    with contextlib.suppress(OSError):  # the other end is closed
        while found := os.read(leader, 65536):
            drawn.append(found)


@pytest.fixture
def watched(monkeypatch, stage):
    return Watched(monkeypatch, stage)


@pytest.fixture
def broker(stage):
    """A broker with one app, which answers nothing."""
    stage.keep({"house/status": STATUS})
    return stage.broker()


def attempts(broker, since):
    """Seconds between the attempts to connect, from the first one since then."""
    return [after - before for before, after in itertools.pairwise(at for at, _ in broker.connects if at > since)]


@pytest.mark.parametrize(
    ("code", "trouble"), [(0, None), (0x87, "the broker refused a request for introspection (0x87)")]
)
def test_a_request_that_the_broker_refuses_is_said(watched, broker, code, trouble):
    broker.refusals["house/introspect"] = code

    assert json.loads(watched.printed("--once", "--json", "--timeout", "5s").out)["lost"] == trouble


def test_a_subscription_that_the_broker_refuses_is_said(watched, broker):
    broker.refuse_subscriptions.add("house/+/state")

    found = json.loads(watched.printed("--once", "--json", "--timeout", "5s").out)

    assert found["lost"] == "the broker refused the subscription to 'house/+/state' (0x87)"


@pytest.mark.parametrize("refusal", [0x86, TlsRefused("unknown certificate")])
def test_a_refusal_that_only_a_person_can_mend_is_tried_again_as_seldom_as_an_app_does_it(
    watched, broker, monkeypatch, refusal
):
    monkeypatch.setattr("random.random", lambda: 1.0)
    broker.refuse_connect = refusal

    watched.frames(until=160)

    assert attempts(broker, -1) == pytest.approx([5.0, 10.0, 20.0, 60.0, 60.0])


@pytest.mark.parametrize("failure", [AWAY, 0x88])
def test_any_other_failure_is_tried_again_at_once_for_the_person_who_looks(watched, broker, monkeypatch, failure):
    monkeypatch.setattr("random.random", lambda: 1.0)
    broker.refuse_connect = 0x86

    def fail(refusal):
        return lambda: setattr(broker, "refuse_connect", refusal)

    watched.frames(until=23, events=[(14, fail(failure)), (16.2, fail(0x86))])

    assert attempts(broker, -1) == pytest.approx([5.0, 10.0, 0.5, 0.5, 0.5, 5.0])


def test_the_screen_says_why_there_is_no_connection_and_when_the_next_attempt_is(watched, broker, monkeypatch):
    monkeypatch.setattr("random.random", lambda: 1.0)
    broker.refuse_connect = 0x86

    *_, last = watched.frames(until=2.1)

    said = "no connection to the broker for 2s: refused (0x86); next attempt in 3s; the board shows old values"
    assert any(said in line for line in last)


@pytest.mark.parametrize(
    ("size", "used"), [((0, 0), (79, 24)), ((132, 43), (131, 43)), ((0, 50), (79, 50)), ((40, 10), (39, 10))]
)
def test_the_board_fills_the_screen_and_a_terminal_that_does_not_know_its_size_is_taken_for_a_common_one(
    watched, broker, size, used
):
    *_, last = watched.frames(until=1, size=size)

    assert (max(map(len, last)), len(last)) == used  # the last column stays free


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


def test_the_next_broker_is_tried_when_one_cannot_be_reached(watched, stage):
    for host in "ab":
        stage.broker(host).refuse_connect = AWAY

    watched.frames(until=2.2, mqtt="mqtt://a,mqtt://b")

    assert stage.tried == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_board_that_is_printed_once_waits_for_no_broker_that_is_away(watched, stage, form):
    for host in "ab":
        stage.broker(host).refuse_connect = BrokerError(f"cannot connect to mqtt://{host}:1883: Connection refused")

    found = watched.printed("--once", *form, "--timeout", "1h", "--mqtt", "mqtt://a,mqtt://b")

    assert found.code == 1
    assert stage.tried[:2] == ["a", "b"]
    assert found.err == "leadsman: cannot connect to mqtt://b:1883: Connection refused\n"
    assert watched.loop.time() < 2


def test_a_board_that_is_printed_once_waits_for_no_app_that_does_not_listen(watched, broker):
    broker.refusals["house/introspect"] = 0x10

    found = watched.printed("--once", "--timeout", "1h")

    assert found.code == 0
    assert "attic" in found.out
    assert watched.loop.time() < 1


@pytest.mark.parametrize(("listens", "boards"), [(False, 3), (True, 2)])
def test_an_app_that_listens_again_is_waited_for_again(watched, broker, listens, boards):
    broker.refusals["house/introspect"] = 0x10
    events = [(2.0, broker.refusals.clear)] if listens else []

    found = watched.printed("--json", until=8, events=events)

    assert len(found.lines) == boards
