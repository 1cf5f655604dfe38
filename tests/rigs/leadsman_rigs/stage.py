"""Brokers in memory, with an app that answers as a test says, for the commands of the command line."""

import contextlib
import io
import json
import re
from typing import NamedTuple

from leadsman import Received
from leadsman.core.mqtt.topics import topic_matches
from leadsman.testing import MemoryBroker
from leadsman.tools.cli.main import main, parser, run_command

HOST = "broker.lan"
URL = f"mqtt://{HOST}"


def inspected(app, capsys, *arguments):
    """What `leadsman inspect` prints of an app that is not in a module."""
    assert run_for(app, "inspect", *arguments) == 0
    return capsys.readouterr().out


def run_for(app, command, *arguments):
    """Type a command for an app that is not in a module. Returns its exit code."""
    options = parser([command]).parse_args([command, "app:app", *arguments])
    options.target = app
    if "app:app" in getattr(options, "named", ()):
        options.named.remove("app:app")
    return run_command(options, "leadsman")


class Access(NamedTuple):
    """Topic filters of an app."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def access_of(app, **settings):
    """What an app may publish and subscribe to, as `leadsman acl` prints it. Dots of settings are `__` here."""
    given = [f"--set={key.replace('__', '.')}={value}" for key, value in settings.items()]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_for(app, "acl", "--format", "emqx", *given) == 0
    rule = re.compile(r"^\{allow, \{.*?\}, (publish|subscribe), (\[.*?\])\}\.$", re.MULTILINE | re.DOTALL)
    filters = dict(rule.findall(out.getvalue()))
    return Access(*(tuple(json.loads(filters[each])) for each in Access._fields))


class Printed(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.splitlines()


class Stage:
    """What a command finds at its brokers, by host, and what it asks there. A broker answers nothing until a test says
    what.

    Args:
        monkeypatch: puts the brokers in the place of the network.
        capsys: reads what the command prints.
    """

    def __init__(self, monkeypatch, capsys):
        self._capsys = capsys
        self.brokers = {}
        self.tried = []
        """The hosts that the command connected to."""
        self.requests = []
        """What was asked, as (topic, request without its transaction)."""
        monkeypatch.setattr("leadsman.core.mqtt.client.connect", self._connect)

    def broker(self, host=HOST):
        """The broker on a host."""
        return self.brokers.setdefault(host, StageBroker(self))

    async def _connect(self, broker, clock, packet, listener):
        self.tried.append(broker.host)
        return await self.broker(broker.host).connect(packet, listener)

    def keep(self, kept, host=HOST):
        """Have a broker retain messages: payloads, documents, or what a client receives, by topic."""
        for topic, payload in kept.items():
            data = json.dumps(payload).encode() if isinstance(payload, dict) else payload
            self.broker(host).kept[topic] = data if isinstance(data, Received) else Received(topic, data, retain=True)

    def answers(self, topic, answer, host=HOST):
        """Have an app answer requests at a topic.

        Args:
            topic: of the requests.
            answer: the data; the error as text; a list of whole answers; or a function that makes one of those of a
                request.
            host: of the broker.
        """
        self.broker(host).answers[topic] = answer

    def run(self, *arguments):
        """Type a command, and read what it prints."""
        code = main(list(arguments))
        return Printed(code, *self._capsys.readouterr())


class StageBroker(MemoryBroker):
    """A broker of a stage."""

    def __init__(self, stage):
        super().__init__()
        self._stage = stage
        self.kept = {}
        self.keeps = set()
        """Topics whose removal it acknowledges, and does not do."""
        self.answers = {}
        self.filters = []
        """What was subscribed to, in order."""

    def hand_out(self, connection, topic_filter):
        self.filters.append(topic_filter)
        for topic, message in self.kept.items():
            if topic == topic_filter or (topic_matches(topic_filter, topic) and not self.exact_only):
                connection.loop.call_soon(connection.listener.received, message)

    def receive(self, connection, packet_id, message):
        super().receive(connection, packet_id, message)
        if message.retain:
            if not message.payload and message.topic not in self.keeps:
                self.kept.pop(message.topic, None)
            return
        request = json.loads(message.payload)
        transaction = request.pop("transaction", None)
        self._stage.requests.append((message.topic, request))
        if message.topic not in self.answers:
            return
        found = self.answers[message.topic]
        found = found(request) if callable(found) else found
        whole = found if isinstance(found, list) else [{"data": found} if not isinstance(found, str) else _error(found)]
        for each in whole:
            answer = {"status": "ok", "error": None, "transaction": transaction, **each}
            payload = json.dumps(answer).encode()
            connection.listener.received(Received(f"{message.topic}/response", payload, retain=False))


def _error(text):
    return {"status": "error", "error": text, "data": None}
