"""The contexts of handlers that ask for one."""

from leadsman.devices import followers
from leadsman.devices.roster import Phase
from leadsman.runtime.context import Contexts
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Give each handler its own."""
    contexts = Contexts(core.state_directory, core.publisher, core.own_requests)
    follower = followers.contexts(contexts)
    for device in core.roster.values():
        follower.join(device)
    core.roster.follow(Phase.STATE, follower)
    core.life.closes.append(contexts.finish)
