"""Makes the health document of a running app, for probes and for people: is some data fresh, and what is in trouble."""

from itertools import islice
from typing import TYPE_CHECKING

from leadsman.introspection.registry import About
from leadsman.introspection.sections import Parts
from leadsman.monitoring.health import WELL
from leadsman.text import clean, counted
from leadsman.timing.clock import Clock, rfc3339

if TYPE_CHECKING:
    from leadsman.introspection.exchange import HealthCheck, HealthDocument

MOST_DEVICES = 32
"""Devices in trouble that the document lists. It says how many there are."""


def health_document(about: About, parts: Parts, clock: Clock) -> "HealthDocument":
    """The health of an app now."""
    now, at = clock.monotonic(), rfc3339(clock.wall())
    statuses = parts.statuses
    statuses.refresh(now)
    troubled = [name for name in statuses.troubled if statuses.words[name] not in WELL]
    checks = {"mqtt:connection": [_connection(parts, at)], "outbox:messages": [_outbox(parts, at)]}
    for name in islice(troubled, MOST_DEVICES):
        checks[f"{name}:status"] = [_device(parts, name, at)]
    for file, error in parts.state_files.items():
        checks[f"{clean(file)}:written"] = [
            {"componentType": "datastore", "observedValue": False, "status": "warn", "time": at, "output": clean(error)}
        ]
    notes = [f"{counted(len(troubled), 'device')} of {len(statuses.words)} in trouble"] if troubled else []
    fresh = statuses.is_fresh(now)
    if not fresh:
        notes.append("no device has fresh data")
    warned = any(check["status"] != "pass" for each in checks.values() for check in each)
    return {
        "status": "fail" if not fresh else "warn" if warned else "pass",
        "version": clean(about.version),
        "releaseId": about.leadsman,
        "serviceId": about.client_id,
        "notes": notes,
        "checks": checks,
    }


def _connection(parts: Parts, at: str) -> "HealthCheck":
    check: HealthCheck = {
        "componentType": "system",
        "observedValue": parts.link.up,
        "status": "pass" if parts.link.up and parts.link.last_error is None else "warn",
        "time": at,
    }
    if parts.link.last_error is not None:
        check["output"] = clean(parts.link.last_error)
    return check


def _outbox(parts: Parts, at: str) -> "HealthCheck":
    return {
        "componentType": "component",
        "observedValue": parts.link.outbox.messages,
        "observedUnit": "messages",
        "status": "pass",
        "time": at,
    }


def _device(parts: Parts, name: str, at: str) -> "HealthCheck":
    word = parts.statuses.words[name]
    check: HealthCheck = {"componentType": "component", "observedValue": word, "status": "warn", "time": at}
    trouble = parts.records.entities[name].trouble
    if trouble.error_type is not None:
        check["output"] = clean(f"{trouble.error_type}: {trouble.error_message}")
    return check
