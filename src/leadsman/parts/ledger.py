"""The ledgers: what became of each poll that was due."""

from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Publish them."""
    core.environment.events.subscribe(core.ledgers.observe, readings=False)
    core.life.starts.append(core.ledgers.start)

    async def end(delivered: bool) -> None:
        core.ledgers.durable = core.keeps_readings()
        core.ledgers.stop()

    core.life.ends.append(end)
