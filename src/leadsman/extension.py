"""What a package imports that extends an app; see `Extension`. The reference says what of it is stable."""

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.event_bus import Phase
from leadsman.core.extension import Documents, Extension, Join, JoinPhase
from leadsman.core.extension_tools import CheckResult, Command, Place, Topic
from leadsman.core.introspection.added import AddedSection
from leadsman.core.introspection.added_measures import AddedMeasures, MetricFamily, counter, gauge
from leadsman.core.parts.kinds import ANSWERS, DISK, HEARTBEAT, STATUSES
from leadsman.core.readings.reading import Reading
from leadsman.core.registration.declaration import Option, own_options
from leadsman.core.settings.sections import read_duration, read_switch
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.offers import Kind
from leadsman.core.wiring.plan import Plan

__all__ = [
    "ANSWERS",
    "DISK",
    "HEARTBEAT",
    "STATUSES",
    "AddedMeasures",
    "AddedSection",
    "CheckResult",
    "Command",
    "Core",
    "Departure",
    "Device",
    "Documents",
    "Extension",
    "Follower",
    "Join",
    "JoinPhase",
    "Kind",
    "MetricFamily",
    "Option",
    "Phase",
    "Place",
    "Plan",
    "Reading",
    "RosterPhase",
    "Topic",
    "counter",
    "gauge",
    "own_options",
    "read_duration",
    "read_switch",
]
