"""What the ledgers offer other parts."""

from leadsman.core.wiring.offers import Kind
from leadsman.extensions.ledger.reports import LedgerReports

LEDGERS: Kind[LedgerReports] = Kind("the ledgers", "leadsman.extensions.ledger.part")
