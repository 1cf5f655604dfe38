"""The service manager and containers see that the app works."""

from collections.abc import Iterable

from leadsman.core.extension import Extension, Join, JoinPhase
from leadsman.core.parts.kinds import STATUSES
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan
from leadsman.extensions.watchdog.watchdog import Watchdog


def join(core: Core) -> None:
    """Show it from the first polls on, until the app is asked to stop."""
    watchdog: Watchdog | None = None

    def start() -> None:
        nonlocal watchdog
        watchdog = Watchdog(core.plan.variables, core.of(STATUSES), core.link, core.environment.timers)
        watchdog.start()
        core.environment.events.subscribe(watchdog.observe, readings=False)

    async def end() -> None:
        if watchdog is not None:
            watchdog.stop(for_good=core.node.leaving)

    core.life.starts.append(start)
    core.life.before_stop.append(end)


class ProcessWatchdog(Extension):
    """The service manager and containers see that the app works."""

    name = "watchdog"

    def joins(self, plan: Plan) -> Iterable[Join]:
        """See `Extension`."""
        return ((JoinPhase.OBSERVERS, join),)
