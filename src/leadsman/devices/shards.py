"""The shards at work on this node of a cluster: the devices of each have a home of their own, which ends with the
lease. Imported only in a cluster."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from leadsman.devices.home import Home, Surroundings
from leadsman.devices.roster import Departure, Roster
from leadsman.event_bus import EventBus
from leadsman.events import Event
from leadsman.loop.clock import Clock
from leadsman.loop.timers import Timers
from leadsman.resilience.environment import Environment
from leadsman.resilience.overrides import handler_context
from leadsman.runtime.publisher import PublisherContext


class _ShardEvents(EventBus):
    """The bus of the app, for the devices of one shard: a call that outlives the shard on this node says nothing of a
    device that is gone."""

    __slots__ = ("_app", "over")

    def __init__(self, app: EventBus, clock: Clock) -> None:
        super().__init__(clock)
        self._app = app
        self.over = False
        """Whether the devices are gone."""

    def emit(self, event: Event) -> None:
        """See `EventBus`."""
        if not self.over or getattr(event, "entity", None) is None:
            self._app.emit(event)


class _Shard(NamedTuple):
    """The devices of one shard, which are read here."""

    names: tuple[str, ...]
    home: Home
    events: _ShardEvents


class Shards:
    """The shards of this node.

    Args:
        roster: the devices.
        surroundings: what all homes of the app have in common.
        publishing: how the devices of the app publish, with the environment that stays while shards come and go.
        piled_up: see `Timers`.
        pending: seconds until the next attempt, of devices whose retry another node waited for.
        save: publishes the failure state of devices at once.
    """

    def __init__(
        self,
        roster: Roster,
        surroundings: Surroundings,
        publishing: PublisherContext,
        piled_up: Callable[[], bool],
        pending: dict[str, float],
        save: Callable[[], None],
    ) -> None:
        self.environment = publishing.environment
        """That of the app, which stays while shards come and go."""
        self._roster = roster
        self._surroundings = surroundings
        self._publishing = publishing
        self._piled_up = piled_up
        self._pending = pending
        self._save = save
        self._shards: dict[str, _Shard] = {}

    def begin(self, key: str, names: Iterable[str], permitted: Callable[[], bool]) -> None:
        """Begin to read the devices of a shard. `permitted` is asked before any of their timers rings."""
        app = self.environment
        events = _ShardEvents(app.events, app.clock)
        timers = handler_context().run(Timers, asyncio.get_running_loop(), events.emit, self._piled_up, permitted)
        environment: Environment = app._replace(timers=timers, events=events, stopping=asyncio.Event())
        home = Home(self._surroundings, self._publishing._replace(environment=environment))
        shard = self._shards[key] = _Shard(tuple(names), home, events)
        for name in shard.names:
            self._roster.join(home.make(name))
        home.start({name: self._pending.pop(name, 0.0) for name in shard.names})

    async def stop(self, keys: Iterable[str], grace: float) -> int:
        """End the polls, the sources and the commands of these shards, and wait at most `grace` seconds for them.
        Returns how many calls are still alive."""
        homes = [self._shards[key].home for key in keys if key in self._shards]
        for home in homes:
            home.environment.stopping.set()
        alive = sum(await asyncio.gather(*(home.stop(grace) for home in homes)))
        for home in homes:
            home.environment.timers.stop()
        self._save()
        return alive

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the devices of these shards, whose polls have ended. Another node goes on at their topics."""
        for key in keys:
            shard = self._shards.pop(key, None)
            if shard is not None:
                shard.events.over = True
                for name in shard.names:
                    self._roster.leave(name, Departure.MOVED)
