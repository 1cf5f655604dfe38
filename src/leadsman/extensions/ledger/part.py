"""The ledgers: what became of each poll that was due."""

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.extension import Extension, Join, JoinPhase
from leadsman.core.introspection.added import AddedSection
from leadsman.core.parts.kinds import DISK
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan
from leadsman.extensions.ledger.kinds import LEDGERS
from leadsman.extensions.ledger.ledger import NEVER_POLLED
from leadsman.extensions.ledger.ledgers import Ledgers, Schedule
from leadsman.extensions.ledger.reports import LedgerReports

if TYPE_CHECKING:
    from leadsman.core.introspection.added import Member
    from leadsman.core.introspection.added_measures import AddedMeasures
    from leadsman.core.introspection.requests import Query
    from leadsman.extensions.ledger.table import LedgerTable


def join(core: Core) -> None:
    """Keep one for each device, and publish them. They give the receipts of the readings, so this comes before the
    devices."""
    reports = LedgerReports(core.plan.topics, core.link, core.environment, core.slices)
    core.offer(LEDGERS, reports)
    core.roster.follow(RosterPhase.HEALTH, _follower(reports.ledgers))
    reports.subscribe(core.environment.events)
    core.life.starts.append(reports.start)
    core.tables.append(lambda: _table(core, reports))
    core.documents.add_section("ledger", AddedSection(functools.partial(_section, reports.ledgers)))
    core.documents.measures.append(functools.partial(_measures, reports.ledgers))

    async def end(delivered: bool) -> None:
        disk = core.find(DISK)
        reports.stop(durable=disk is not None and disk.keeps_readings())

    core.life.after_delivery.append(end)


def _section(ledgers: Ledgers, request: "Query") -> "Iterator[Member]":
    """What introspection has of the ledgers."""
    return ((name, ledgers.document(name, request.since)) for name in request.names if name in ledgers)


def _measures(ledgers: Ledgers) -> "AddedMeasures":
    from leadsman.extensions.ledger.measures import measures  # for who measures

    return measures(ledgers)


def _table(core: Core, reports: LedgerReports) -> "LedgerTable":
    from leadsman.extensions.ledger.table import LedgerTable  # where the state is kept

    return LedgerTable(reports, lambda: (disk := core.find(DISK)) is not None and disk.left)


def _follower(kept: Ledgers) -> Follower:
    """Lets each device have a ledger, which gives the receipts of its readings. So does a telemetry that is not
    enabled."""

    def join(device: Device) -> None:
        reader, schedule = device.reader, Schedule()
        if isinstance(reader, Telemetry):
            schedule = Schedule(reader.interval, reader.cron)
        elif reader is not None and reader.events is not None:
            schedule = Schedule(events=True)
        if reader is not None and device.runner is not None:
            publisher, poll = device.runner.publisher, device.poll
            ledger = kept.add(device.name, schedule, poll, job=device.job, silence=reader.stale_after)
            publisher.receipts, ledger.comparison = ledger, publisher.comparison
        elif isinstance(reader, Telemetry):
            kept.add(device.name, schedule, NEVER_POLLED, job=device.job, enabled=False)

    def leave(device: Device, why: Departure) -> None:
        kept.remove(device.name)

    return Follower(join, leave)


class Ledger(Extension):
    """What became of each poll that was due."""

    name = "ledger"

    def joins(self, plan: Plan) -> Iterable[Join]:
        """See `Extension`."""
        return ((JoinPhase.BEFORE_DEVICES, join),)
