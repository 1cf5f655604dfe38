"""Sensor-to-MQTT apps that run unattended for years.

A program imports this package, `leadsman.errors`, `leadsman.testing`, and the adapters that it uses, such as
`leadsman.adapters.serial`. Everything else may change with any version.
"""

from typing import TYPE_CHECKING, Any

from leadsman._version import __version__
from leadsman.app import App
from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, PermanentError, TransientError
from leadsman.loop.schedule import Cron
from leadsman.mqtt.broker import Broker, Brokers
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import Delivery
from leadsman.readings.publish import Every, OnChange
from leadsman.readings.sensor import Sensor
from leadsman.registration.router import Device, Router
from leadsman.resilience.backoff import BackoffStrategy, ExponentialBackoff, FixedBackoff, LinearBackoff
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.failure import RetryRequested
from leadsman.resilience.policy import UNTIL_NEXT_POLL

if TYPE_CHECKING:
    from leadsman.loop.threads import Worker
    from leadsman.mqtt.broker import Tls
    from leadsman.readings.buffer import Buffer
    from leadsman.readings.controls import Climate, Cover, Fan, Light, Lock, Siren, Valve
    from leadsman.readings.filters import Clamp, LowPass, Median, Outlier, Rate, Round, Scale
    from leadsman.readings.publish import LastPublished, PublishRule
    from leadsman.readings.windows import Delta, Last, Maximum, Mean, Minimum, Seen
    from leadsman.registration.finds import Finds
    from leadsman.resilience.adhoc import execute_with_retry, retrying
    from leadsman.resilience.policy import (
        Policy,
        exponential,
        fibonacci,
        immediate,
        linear,
        never,
        periodic,
        sequence,
        strategy,
    )
    from leadsman.resilience.predicate import is_a, prop
    from leadsman.runtime.context import Context
    from leadsman.runtime.found_devices import FoundDevice
    from leadsman.settings.discovery import Discovery
    from leadsman.tools.cli.app_cli import command_line

__all__ = [
    "UNTIL_NEXT_POLL",
    "App",
    "BackoffStrategy",
    "Broker",
    "Brokers",
    "Buffer",
    "CircuitBreaker",
    "Clamp",
    "Climate",
    "Context",
    "Cover",
    "Cron",
    "Delivery",
    "Delta",
    "Device",
    "DeviceTimeout",
    "DeviceUnavailable",
    "Discovery",
    "Every",
    "ExponentialBackoff",
    "Fan",
    "Finds",
    "FixedBackoff",
    "FoundDevice",
    "GarbledData",
    "Last",
    "LastPublished",
    "Light",
    "LinearBackoff",
    "Lock",
    "LowPass",
    "Maximum",
    "Mean",
    "Median",
    "Minimum",
    "OnChange",
    "Outlier",
    "PermanentError",
    "Policy",
    "PublishRule",
    "Rate",
    "Received",
    "RetryRequested",
    "Round",
    "Router",
    "Scale",
    "Seen",
    "Sensor",
    "Siren",
    "Tls",
    "TransientError",
    "Valve",
    "Worker",
    "__version__",
    "command_line",
    "execute_with_retry",
    "exponential",
    "fibonacci",
    "immediate",
    "is_a",
    "linear",
    "never",
    "periodic",
    "prop",
    "retrying",
    "sequence",
    "strategy",
]

_LATER = {
    "Buffer": "leadsman.readings.buffer",
    "Clamp": "leadsman.readings.filters",
    "Climate": "leadsman.readings.controls",
    "Context": "leadsman.runtime.context",
    "Cover": "leadsman.readings.controls",
    "Delta": "leadsman.readings.windows",
    "Discovery": "leadsman.settings.discovery",
    "Fan": "leadsman.readings.controls",
    "Finds": "leadsman.registration.finds",
    "FoundDevice": "leadsman.runtime.found_devices",
    "Last": "leadsman.readings.windows",
    "LastPublished": "leadsman.readings.publish",
    "Light": "leadsman.readings.controls",
    "Lock": "leadsman.readings.controls",
    "LowPass": "leadsman.readings.filters",
    "Maximum": "leadsman.readings.windows",
    "Mean": "leadsman.readings.windows",
    "Median": "leadsman.readings.filters",
    "Minimum": "leadsman.readings.windows",
    "Outlier": "leadsman.readings.filters",
    "Policy": "leadsman.resilience.policy",
    "PublishRule": "leadsman.readings.publish",
    "Rate": "leadsman.readings.filters",
    "Round": "leadsman.readings.filters",
    "Scale": "leadsman.readings.filters",
    "Seen": "leadsman.readings.windows",
    "Siren": "leadsman.readings.controls",
    "Tls": "leadsman.mqtt.broker",
    "Valve": "leadsman.readings.controls",
    "Worker": "leadsman.loop.threads",
    "command_line": "leadsman.tools.cli.app_cli",
    "execute_with_retry": "leadsman.resilience.adhoc",
    "exponential": "leadsman.resilience.policy",
    "fibonacci": "leadsman.resilience.policy",
    "immediate": "leadsman.resilience.policy",
    "is_a": "leadsman.resilience.predicate",
    "linear": "leadsman.resilience.policy",
    "never": "leadsman.resilience.policy",
    "periodic": "leadsman.resilience.policy",
    "prop": "leadsman.resilience.predicate",
    "retrying": "leadsman.resilience.adhoc",
    "sequence": "leadsman.resilience.policy",
    "strategy": "leadsman.resilience.policy",
}
"""Names that most apps do not use; their modules are loaded by those that do."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'leadsman' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
