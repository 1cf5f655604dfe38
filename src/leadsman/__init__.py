"""Sensor-to-MQTT apps that run unattended for years."""

from typing import TYPE_CHECKING, Any

from leadsman._version import __version__
from leadsman.app import App
from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, PermanentError, TransientError
from leadsman.mqtt.broker import Broker, Brokers
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import Delivery
from leadsman.publish import Every, OnChange
from leadsman.registration.router import Device, Router
from leadsman.resilience.backoff import BackoffStrategy, ExponentialBackoff, FixedBackoff, LinearBackoff
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.resilience.failure import RetryRequested
from leadsman.resilience.policy import UNTIL_NEXT_POLL
from leadsman.sensor import Sensor
from leadsman.timing.schedule import Cron

if TYPE_CHECKING:
    from leadsman.buffer import Buffer
    from leadsman.controls import Climate, Light
    from leadsman.registration.finds import Finds
    from leadsman.resilience.adhoc import execute_with_retry, retrying
    from leadsman.runtime.context import Context
    from leadsman.settings.discovery import Discovery

__all__ = [
    "UNTIL_NEXT_POLL",
    "App",
    "BackoffStrategy",
    "Broker",
    "Brokers",
    "Buffer",
    "CircuitBreaker",
    "Climate",
    "Context",
    "Cron",
    "Delivery",
    "Device",
    "DeviceTimeout",
    "DeviceUnavailable",
    "Discovery",
    "Every",
    "ExponentialBackoff",
    "Finds",
    "FixedBackoff",
    "GarbledData",
    "Light",
    "LinearBackoff",
    "OnChange",
    "PermanentError",
    "Received",
    "RetryRequested",
    "Router",
    "Sensor",
    "TransientError",
    "__version__",
    "execute_with_retry",
    "retrying",
]

_LATER = {
    "Buffer": "leadsman.buffer",
    "Climate": "leadsman.controls",
    "Context": "leadsman.runtime.context",
    "Discovery": "leadsman.settings.discovery",
    "Finds": "leadsman.registration.finds",
    "Light": "leadsman.controls",
    "execute_with_retry": "leadsman.resilience.adhoc",
    "retrying": "leadsman.resilience.adhoc",
}
"""Names that most apps do not use; their modules are loaded by those that do."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'leadsman' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
