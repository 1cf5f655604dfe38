"""The table of all checks: facts in, findings out. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from leadsman.doctor import broker_checks, machine_checks, topic_checks
from leadsman.doctor.facts import Facts
from leadsman.doctor.findings import Finding, Result


class Check(NamedTuple):
    """One check. It gives no result where it does not apply, and several where several things are wrong."""

    group: str
    name: str
    check: Callable[[Facts], Iterable[Result]]


CHECKS = (
    Check("broker", "address", broker_checks.reach),
    Check("broker", "TLS", broker_checks.tls),
    Check("broker", "authentication", broker_checks.authentication),
    Check("broker", "version", broker_checks.version),
    Check("broker", "client ids", broker_checks.client_ids),
    Check("broker", "limits", broker_checks.limits),
    Check("broker", "packet size", broker_checks.packet_size),
    Check("broker", "retained", broker_checks.retained),
    Check("broker", "expiry", broker_checks.expiry),
    Check("broker", "will", broker_checks.last_will),
    Check("broker", "session", broker_checks.session),
    Check("broker", "takeover", broker_checks.takeover),
    Check("topics", "publish", topic_checks.publishing),
    Check("topics", "subscribe", topic_checks.subscribing),
    Check("topics", "orphans", topic_checks.orphans),
    Check("topics", "running app", topic_checks.running_app),
    Check("topics", "clock", topic_checks.other_clock),
    Check("topics", "Home Assistant", topic_checks.home_assistant),
    Check("devices", "libraries", machine_checks.libraries),
    Check("devices", "serial port", machine_checks.serial_ports),
    Check("devices", "Bluetooth", machine_checks.bluetooth),
    Check("devices", "calendars", machine_checks.calendars),
    Check("machine", "versions", machine_checks.versions),
    Check("machine", "clock", machine_checks.clock),
    Check("machine", "time zone", machine_checks.time_zone),
    Check("machine", "disk", machine_checks.disk),
    Check("machine", "state", machine_checks.state),
    Check("doctor", "unfinished", machine_checks.unfinished),
)
"""In the order in which they are shown."""


def findings(facts: Facts) -> list[Finding]:
    """What all checks say."""
    return [Finding(each.group, each.name, *result) for each in CHECKS for result in each.check(facts)]
