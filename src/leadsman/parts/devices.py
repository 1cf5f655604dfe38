"""The devices that are here from the start of the app to its end, and the polls of all."""

from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Make them, and read them while the app runs."""
    for name in core.plan.residents:
        core.roster.join(core.home.make(name))

    def start() -> None:
        core.home.start(core.pending)
        core.polling = True
        core.plan.live.ask_poll = lambda name: core.own_requests.poll(name)

    core.life.starts.append(start)
    core.life.stops.append(core.home.stop)
