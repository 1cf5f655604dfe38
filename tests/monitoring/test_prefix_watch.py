"""Several apps on one prefix, which hear each other's status."""

import asyncio
import itertools

import pytest

from leadsman.event_bus import EventBus
from leadsman.loop.clock import system_clock
from leadsman.monitoring.prefix_watch import MOST_APPS, SILENT, PrefixWatch
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import Topics, encode
from leadsman.testing import VirtualLoop


class Link:
    conflict: str | None = None


class App:
    """A watch, and the reasons that it emitted."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.link = Link()
        self.said: list[str | None] = []
        events = EventBus(system_clock(asyncio.get_running_loop()))
        events.subscribe(lambda event: self.said.append(event.reason))
        self.watch = PrefixWatch(Topics("app"), client_id, self.link, events)

    def hear(self, client_id: str, state: str = "online") -> None:
        self.watch.received(Received("app/status", encode({"state": state, "client_id": client_id}), False, None, None))


@pytest.fixture
def virtual():
    loop = VirtualLoop()
    yield lambda play: loop.run_until_complete(play)
    loop.close()


def test_apps_on_one_prefix_become_quiet_however_many_they_are(virtual):
    async def play():
        apps = [App(name) for name in "abc"]
        sent = 0
        speaking = [*apps]
        for _ in range(100):  # each change is a status, which the others hear
            before = {app: len(app.said) for app in apps}
            for one, other in itertools.permutations(apps, 2):
                if one in speaking:
                    other.hear(one.client_id)
            sent += len(speaking)
            speaking = [app for app in apps if len(app.said) > before[app]]
        return apps, sent

    apps, sent = virtual(play())

    assert sent <= 6
    assert all(len(app.said) == 1 for app in apps)


def test_the_app_that_is_named_stays_until_it_leaves_and_the_next_is_named_then(virtual):
    async def play():
        app = App("a")
        app.hear("b")
        app.hear("c")
        app.hear("b", "offline")
        app.hear("c", "offline")
        return app

    app = virtual(play())

    assert [reason and reason.split("client id is ")[1][:3] for reason in app.said] == ["'b'", "'c'", None]
    assert app.link.conflict is None


def test_an_app_that_falls_silent_is_forgotten(virtual):
    async def play():
        app = App("a")
        app.hear("b")
        await asyncio.sleep(SILENT + 1)
        return app

    assert virtual(play()).said[-1] is None


def test_changing_client_ids_are_one_warning_and_are_remembered_in_bounded_number(virtual):
    async def play():
        app = App("a")
        for n in range(1000):
            app.hear(f"other-{n}")
        for n in range(1000):
            app.hear(f"other-{n}", "offline")
        return app

    assert len(virtual(play()).said) <= MOST_APPS + 1
