"""Sensor-to-MQTT apps that run unattended for years.

A program imports this package, `leadsman.errors`, `leadsman.notices`, `leadsman.testing`, and the adapters that it
uses, such as `leadsman.adapters.serial`; a package that extends an app imports `leadsman.extension`. Everything else
may change with any version.
"""

from typing import TYPE_CHECKING, Any

from leadsman._version import __version__

if TYPE_CHECKING:
    from leadsman.core.app import App
    from leadsman.core.extension import Extension
    from leadsman.core.loop.schedule import Cron
    from leadsman.core.loop.threads import Worker
    from leadsman.core.mqtt.broker import Broker, Brokers, Tls
    from leadsman.core.mqtt.connection import Received
    from leadsman.core.mqtt.message import Delivery
    from leadsman.core.readings.buffer import Buffer
    from leadsman.core.readings.content import Content
    from leadsman.core.readings.controls import Climate, Cover, Fan, Light, Lock, Siren, Update, Valve
    from leadsman.core.readings.filters import Clamp, Filter, LowPass, Median, Outlier, Rate, Round, Scale
    from leadsman.core.readings.publish import Every, LastPublished, OnChange, PublishRule
    from leadsman.core.readings.sensor import Sensor
    from leadsman.core.readings.windows import Delta, Last, Maximum, Mean, Minimum, Seen
    from leadsman.core.registration.finds import Finds
    from leadsman.core.registration.router import Device, Router
    from leadsman.core.resilience.adhoc import execute_with_retry, retrying
    from leadsman.core.resilience.backoff import BackoffStrategy, ExponentialBackoff, FixedBackoff, LinearBackoff
    from leadsman.core.resilience.breaker import CircuitBreaker
    from leadsman.core.resilience.failure import RetryRequested
    from leadsman.core.resilience.policy import (
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
    from leadsman.core.resilience.predicate import is_a, prop
    from leadsman.core.runtime.context import Context
    from leadsman.core.runtime.found_devices import FoundDevice
    from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, PermanentError, TransientError
    from leadsman.extensions.discovery.settings import Discovery
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
    "Extension",
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
    "App": "leadsman.core.app",
    "BackoffStrategy": "leadsman.core.resilience.backoff",
    "Broker": "leadsman.core.mqtt.broker",
    "Brokers": "leadsman.core.mqtt.broker",
    "Buffer": "leadsman.core.readings.buffer",
    "CircuitBreaker": "leadsman.core.resilience.breaker",
    "Clamp": "leadsman.core.readings.filters",
    "Climate": "leadsman.core.readings.controls",
    "Content": "leadsman.core.readings.content",
    "Context": "leadsman.core.runtime.context",
    "Cover": "leadsman.core.readings.controls",
    "Cron": "leadsman.core.loop.schedule",
    "Delivery": "leadsman.core.mqtt.message",
    "Delta": "leadsman.core.readings.windows",
    "Device": "leadsman.core.registration.router",
    "DeviceTimeout": "leadsman.errors",
    "DeviceUnavailable": "leadsman.errors",
    "Discovery": "leadsman.extensions.discovery.settings",
    "Every": "leadsman.core.readings.publish",
    "Filter": "leadsman.core.readings.filters",
    "ExponentialBackoff": "leadsman.core.resilience.backoff",
    "Extension": "leadsman.core.extension",
    "Fan": "leadsman.core.readings.controls",
    "Finds": "leadsman.core.registration.finds",
    "FixedBackoff": "leadsman.core.resilience.backoff",
    "FoundDevice": "leadsman.core.runtime.found_devices",
    "GarbledData": "leadsman.errors",
    "Last": "leadsman.core.readings.windows",
    "LastPublished": "leadsman.core.readings.publish",
    "Light": "leadsman.core.readings.controls",
    "LinearBackoff": "leadsman.core.resilience.backoff",
    "Lock": "leadsman.core.readings.controls",
    "LowPass": "leadsman.core.readings.filters",
    "Maximum": "leadsman.core.readings.windows",
    "Mean": "leadsman.core.readings.windows",
    "Median": "leadsman.core.readings.filters",
    "Minimum": "leadsman.core.readings.windows",
    "OnChange": "leadsman.core.readings.publish",
    "Outlier": "leadsman.core.readings.filters",
    "PermanentError": "leadsman.errors",
    "Policy": "leadsman.core.resilience.policy",
    "PublishRule": "leadsman.core.readings.publish",
    "Rate": "leadsman.core.readings.filters",
    "Received": "leadsman.core.mqtt.connection",
    "RetryRequested": "leadsman.core.resilience.failure",
    "Round": "leadsman.core.readings.filters",
    "Router": "leadsman.core.registration.router",
    "Scale": "leadsman.core.readings.filters",
    "Seen": "leadsman.core.readings.windows",
    "Sensor": "leadsman.core.readings.sensor",
    "Siren": "leadsman.core.readings.controls",
    "Tls": "leadsman.core.mqtt.broker",
    "TransientError": "leadsman.errors",
    "UNTIL_NEXT_POLL": "leadsman.core.resilience.policy",
    "Update": "leadsman.core.readings.controls",
    "Valve": "leadsman.core.readings.controls",
    "Worker": "leadsman.core.loop.threads",
    "command_line": "leadsman.tools.cli.app_cli",
    "execute_with_retry": "leadsman.core.resilience.adhoc",
    "exponential": "leadsman.core.resilience.policy",
    "fibonacci": "leadsman.core.resilience.policy",
    "immediate": "leadsman.core.resilience.policy",
    "is_a": "leadsman.core.resilience.predicate",
    "linear": "leadsman.core.resilience.policy",
    "never": "leadsman.core.resilience.policy",
    "periodic": "leadsman.core.resilience.policy",
    "prop": "leadsman.core.resilience.predicate",
    "retrying": "leadsman.core.resilience.adhoc",
    "sequence": "leadsman.core.resilience.policy",
    "strategy": "leadsman.core.resilience.policy",
}
"""Where each name is. Its module is loaded when it is asked for: what an app does not use, it does not pay for, and
neither does the probe of a container, which uses none."""


_PACKAGES = ("adapters", "errors", "extension", "notices", "testing")
"""What ``import leadsman`` gives besides: ``leadsman.errors.DeviceError``."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})


def __getattr__(name: str) -> Any:
    import gc
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"leadsman.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'leadsman' has no attribute {name!r}")
    searches = gc.isenabled()
    gc.disable()  # what is imported stays: there is no garbage in it
    try:
        found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    finally:
        if searches:
            gc.enable()
    return found
