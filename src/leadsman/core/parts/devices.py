"""The devices that are here from the start of the app to its end, and the polls of all."""

from leadsman.core.parts.kinds import SAVED
from leadsman.core.wiring.core import Core


def join(core: Core) -> None:
    """Make them, and read them while the app runs."""
    for name in core.plan.residents:
        core.roster.join(core.device_group.make(name))

    def start() -> None:
        saved = core.find(SAVED)
        core.device_group.start({} if saved is None else saved.pending)

    core.life.starts.append(start)
    core.life.stop_handlers.append(core.device_group.stop)
