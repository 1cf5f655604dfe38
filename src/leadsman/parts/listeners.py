"""The functions of an app that get notices of what happens."""

from leadsman.devices.roster import Phase, forgetting
from leadsman.event_bus import Phase as EventPhase
from leadsman.events import AppFault, Event
from leadsman.notices import Notices
from leadsman.runtime.listeners import Listener
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Notify them from the first connection on, until the goodbye."""
    emit, notices = core.environment.events.emit, Notices()
    listeners = [
        Listener(kind, function, lambda where, error: emit(AppFault(where, error)))
        for kind, function in core.plan.live.listeners
    ]

    def observe(event: Event) -> None:
        notice = notices.of(event)
        if notice is not None:
            for listener in listeners:
                if isinstance(notice, listener.kind):
                    listener.notify(notice)

    core.environment.events.subscribe(observe, EventPhase.ACT)
    core.roster.follow(Phase.REPORT, forgetting(notices.forget))
    for number, listener in enumerate(listeners, 1):
        core.life.beside[f"{listener.name} ({number})"] = listener.run
