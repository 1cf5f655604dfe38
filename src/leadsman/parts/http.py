"""The HTTP endpoint, and what is kept for people who watch."""

import functools

from leadsman.devices.roster import RosterPhase, forgetting
from leadsman.http.door import keep_open
from leadsman.introspection.watching import Watching
from leadsman.wiring.core import Core


def watch(core: Core) -> None:
    """Keep the last readings. They are taken from the publishers, so this comes before the devices."""
    environment = core.environment
    core.watching = Watching(environment.clock, environment.timers, environment.events)
    core.listen(core.watching.on_reading)
    core.roster.follow(RosterPhase.STATUS, forgetting(core.watching.recent.forget))


def join(core: Core) -> None:
    """Serve the endpoint."""
    endpoint, watching = core.plan.sections.http, core.watching
    if endpoint is not None and watching is not None:
        emit = core.environment.events.emit
        core.life.beside["the HTTP endpoint"] = functools.partial(
            keep_open, endpoint, core.answers.service, watching.happenings, core.slices, emit
        )
