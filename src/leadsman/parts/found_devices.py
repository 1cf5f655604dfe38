"""Devices that handlers find at run time."""

import asyncio

from leadsman.devices.found import FoundHost, TopicRemoval, families_of
from leadsman.devices.roster import Follower, Phase, forgetting, ignore
from leadsman.runtime.found_devices import FoundDevices, Names
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Let them come and go. Of one that is forgotten, the topics are removed."""
    plan, roster, environment = core.plan, core.roster, core.environment
    registered = Names(frozenset((*plan.telemetries, *plan.sources, *plan.commands)))
    core.found = FoundDevices(
        families_of(plan.readers),
        FoundHost(roster, core.home),
        registered if core.taken_names is None else core.taken_names(),
        environment.timers,
        environment.clock.monotonic,
        asyncio.get_running_loop(),
        None if plan.device_settings is None else plan.device_settings.found,
    )
    has_health = core.described is not None and core.described.convention.has_health
    removal = TopicRemoval(roster, plan.topics, core.others, core.link, core.slices, has_health, core.node.elsewhere)
    roster.follow(Phase.TOPICS, Follower(ignore, removal.leave))
    roster.follow(Phase.TOPICS, forgetting(core.found.let_go))
