"""The ledgers: what became of each poll that was due."""

from leadsman.devices import followers
from leadsman.devices.roster import Phase
from leadsman.ledger.reports import LedgerReports
from leadsman.wiring.core import Core


def join(core: Core) -> None:
    """Keep one for each device, and publish them. They give the receipts of the readings, so this comes before the
    devices."""
    reports = core.ledgers = LedgerReports(core.plan.topics, core.link, core.environment, core.slices)
    core.roster.follow(Phase.HEALTH, followers.ledgers(reports.ledgers))
    reports.subscribe(core.environment.events)
    core.life.starts.append(reports.start)

    async def end(delivered: bool) -> None:
        reports.durable = core.keeps_readings()
        reports.stop()

    core.life.ends.append(end)
