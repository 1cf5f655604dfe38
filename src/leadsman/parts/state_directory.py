"""The directory of what must survive the app. Readings are there, too, in a file that has a lock of its own."""

from leadsman.wiring.core import Core


async def join(core: Core) -> None:
    """Lock it, which waits for a process that is about to leave it."""
    await core.state_directory.claim(core.environment.stopping)
    core.life.joined.append(core.state_directory.announce)
