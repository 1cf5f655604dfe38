"""Sensor-to-MQTT apps that run unattended for years.

A program imports this package, `leadsman.errors`, `leadsman.notices`, `leadsman.testing`, and the adapters that it
uses, such as `leadsman.adapters.serial`. Everything else may change with any version.
"""

from typing import TYPE_CHECKING, Any

from leadsman._version import __version__

if TYPE_CHECKING:
    from leadsman.app import App
    from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, PermanentError, TransientError
    from leadsman.loop.schedule import Cron
    from leadsman.loop.threads import Worker
    from leadsman.mqtt.broker import Broker, Brokers, Tls
    from leadsman.mqtt.connection import Received
    from leadsman.mqtt.message import Delivery
    from leadsman.readings.buffer import Buffer
    from leadsman.readings.content import Content
    from leadsman.readings.controls import Climate, Cover, Fan, Light, Lock, Siren, Update, Valve
    from leadsman.readings.filters import Clamp, Filter, LowPass, Median, Outlier, Rate, Round, Scale
    from leadsman.readings.publish import Every, LastPublished, OnChange, PublishRule
    from leadsman.readings.sensor import Sensor
    from leadsman.readings.windows import Delta, Last, Maximum, Mean, Minimum, Seen
    from leadsman.registration.finds import Finds
    from leadsman.registration.router import Device, Router
    from leadsman.resilience.adhoc import execute_with_retry, retrying
    from leadsman.resilience.backoff import BackoffStrategy, ExponentialBackoff, FixedBackoff, LinearBackoff
    from leadsman.resilience.breaker import CircuitBreaker
    from leadsman.resilience.failure import RetryRequested
    from leadsman.resilience.policy import (
        UNTIL_NEXT_POLL,
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
    "Content",
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
    "Filter",
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
    "Update",
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

_PLACES = {
    "App": "leadsman.app",
    "BackoffStrategy": "leadsman.resilience.backoff",
    "Broker": "leadsman.mqtt.broker",
    "Brokers": "leadsman.mqtt.broker",
    "Buffer": "leadsman.readings.buffer",
    "CircuitBreaker": "leadsman.resilience.breaker",
    "Clamp": "leadsman.readings.filters",
    "Climate": "leadsman.readings.controls",
    "Content": "leadsman.readings.content",
    "Context": "leadsman.runtime.context",
    "Cover": "leadsman.readings.controls",
    "Cron": "leadsman.loop.schedule",
    "Delivery": "leadsman.mqtt.message",
    "Delta": "leadsman.readings.windows",
    "Device": "leadsman.registration.router",
    "DeviceTimeout": "leadsman.errors",
    "DeviceUnavailable": "leadsman.errors",
    "Discovery": "leadsman.settings.discovery",
    "Every": "leadsman.readings.publish",
    "Filter": "leadsman.readings.filters",
    "ExponentialBackoff": "leadsman.resilience.backoff",
    "Fan": "leadsman.readings.controls",
    "Finds": "leadsman.registration.finds",
    "FixedBackoff": "leadsman.resilience.backoff",
    "FoundDevice": "leadsman.runtime.found_devices",
    "GarbledData": "leadsman.errors",
    "Last": "leadsman.readings.windows",
    "LastPublished": "leadsman.readings.publish",
    "Light": "leadsman.readings.controls",
    "LinearBackoff": "leadsman.resilience.backoff",
    "Lock": "leadsman.readings.controls",
    "LowPass": "leadsman.readings.filters",
    "Maximum": "leadsman.readings.windows",
    "Mean": "leadsman.readings.windows",
    "Median": "leadsman.readings.filters",
    "Minimum": "leadsman.readings.windows",
    "OnChange": "leadsman.readings.publish",
    "Outlier": "leadsman.readings.filters",
    "PermanentError": "leadsman.errors",
    "Policy": "leadsman.resilience.policy",
    "PublishRule": "leadsman.readings.publish",
    "Rate": "leadsman.readings.filters",
    "Received": "leadsman.mqtt.connection",
    "RetryRequested": "leadsman.resilience.failure",
    "Round": "leadsman.readings.filters",
    "Router": "leadsman.registration.router",
    "Scale": "leadsman.readings.filters",
    "Seen": "leadsman.readings.windows",
    "Sensor": "leadsman.readings.sensor",
    "Siren": "leadsman.readings.controls",
    "Tls": "leadsman.mqtt.broker",
    "TransientError": "leadsman.errors",
    "UNTIL_NEXT_POLL": "leadsman.resilience.policy",
    "Update": "leadsman.readings.controls",
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
"""Where each name is. Its module is loaded when it is asked for: what an app does not use, it does not pay for, and
neither does the probe of a container, which uses none."""


_PACKAGES = ("adapters", "errors", "notices", "testing")
"""What ``import leadsman`` gives besides: ``leadsman.errors.DeviceError``."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"leadsman.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'leadsman' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found
