"""The HTTP endpoint, and what is kept for people who watch."""

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from leadsman.core.devices.roster import RosterPhase, forgetting
from leadsman.core.extension import Extension, Join, JoinPhase
from leadsman.core.introspection.added import AddedSection, Member
from leadsman.core.introspection.added_measures import AddedMeasures, gauge
from leadsman.core.introspection.watching import Watching
from leadsman.core.parts.kinds import ANSWERS
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan
from leadsman.extensions.http.door import keep_open
from leadsman.extensions.http.kinds import WATCHING
from leadsman.extensions.http.settings import Endpoint

if TYPE_CHECKING:
    from leadsman.core.introspection.requests import Query


def watch(core: Core) -> None:
    """Keep the last readings. They are taken from the publishers, so this comes before the devices."""
    environment = core.environment
    watching = Watching(environment.clock, environment.timers, environment.events)
    core.offer(WATCHING, watching)
    core.listen(watching.on_reading)
    documents = core.documents
    documents.app.add(lambda section: section.update({"loop_lag": round(watching.lag.seconds, 4)}))
    documents.add_section("recent", AddedSection(functools.partial(_recent, watching)))
    documents.measures.append(functools.partial(_measures, watching))
    core.roster.follow(RosterPhase.STATUS, forgetting(watching.recent.forget))


def _recent(watching: Watching, request: "Query") -> Iterator[Member]:
    """What introspection has of the last values."""
    return ((name, watching.recent.recent(name)) for name in request.names)


def _measures(watching: Watching) -> AddedMeasures:
    lag = gauge("loop_lag_seconds", "Largest delay of the event loop in the last ten seconds.")
    return AddedMeasures(app={lag: lambda: watching.lag.seconds})


def join(core: Core) -> None:
    """Serve the endpoint."""
    endpoint, watching, answers = core.plan.sections.of(Endpoint), core.of(WATCHING), core.of(ANSWERS)
    if endpoint is not None:
        emit = core.environment.events.emit
        opened = functools.partial(keep_open, endpoint, answers.service, watching.happenings, core.slices, emit)
        core.life.beside.append(("the HTTP endpoint", opened))


class HttpEndpoint(Extension):
    """The HTTP endpoint."""

    name = "http"

    def joins(self, plan: Plan) -> Iterable[Join]:
        """See `Extension`."""
        return (JoinPhase.BEFORE_DEVICES, watch), (JoinPhase.DOORS, join)
