"""The parts of an app that report about its devices, together."""

from typing import NamedTuple

from leadsman.monitoring.heartbeat import Heartbeat
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.monitoring.statuses import Statuses
from leadsman.wiring.doors import Doors


class Reports(NamedTuple):
    """What reports about devices, and must know which there are."""

    statuses: Statuses
    heartbeat: Heartbeat
    outages: OutageReporter
    doors: Doors
