"""Sensor-to-MQTT apps that run unattended for years."""

from leadsman._version import __version__
from leadsman.app import App
from leadsman.buffer import Buffer
from leadsman.context import Context
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.message import Delivery
from leadsman.publish import Every, OnChange
from leadsman.registrar import Device, Router
from leadsman.resilience.backoff import BackoffStrategy, ExponentialBackoff, FixedBackoff, LinearBackoff
from leadsman.resilience.breaker import CircuitBreaker
from leadsman.schedule import Cron
from leadsman.sensor import Sensor

__all__ = [
    "App",
    "BackoffStrategy",
    "Broker",
    "Buffer",
    "CircuitBreaker",
    "Context",
    "Cron",
    "Delivery",
    "Device",
    "Every",
    "ExponentialBackoff",
    "FixedBackoff",
    "LinearBackoff",
    "OnChange",
    "Router",
    "Sensor",
    "__version__",
]
