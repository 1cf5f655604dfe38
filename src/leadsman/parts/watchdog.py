"""The service manager and containers see that the app works."""

from leadsman.monitoring.watchdog import Watchdog
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Show it from the first polls on, until the app is asked to stop."""

    def start() -> None:
        watchdog = Watchdog(core.plan.variables, core.statuses, core.link, core.environment.timers)
        watchdog.start()
        core.environment.events.subscribe(watchdog.observe, readings=False)

        async def end() -> None:
            watchdog.stop(for_good=core.node.leaving)

        core.life.leaves.insert(0, end)

    core.life.starts.append(start)
