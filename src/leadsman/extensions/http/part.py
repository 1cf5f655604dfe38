"""The HTTP endpoint, and what is kept for people who watch."""

import functools

from leadsman.core.devices.roster import RosterPhase, forgetting
from leadsman.core.introspection.watching import Watching
from leadsman.core.parts.kinds import ANSWERS, WATCHING
from leadsman.core.wiring.core import Core
from leadsman.extensions.http.door import keep_open


def watch(core: Core) -> None:
    """Keep the last readings. They are taken from the publishers, so this comes before the devices."""
    environment = core.environment
    watching = Watching(environment.clock, environment.timers, environment.events)
    core.offer(WATCHING, watching)
    core.listen(watching.on_reading)
    core.roster.follow(RosterPhase.STATUS, forgetting(watching.recent.forget))


def join(core: Core) -> None:
    """Serve the endpoint."""
    endpoint, watching, answers = core.plan.sections.http, core.of(WATCHING), core.of(ANSWERS)
    if endpoint is not None:
        emit = core.environment.events.emit
        opened = functools.partial(keep_open, endpoint, answers.service, watching.happenings, core.slices, emit)
        core.life.beside.append(("the HTTP endpoint", opened))
