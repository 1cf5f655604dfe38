"""Sensor-to-MQTT apps that run unattended for years."""

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

__version__ = "0.1.0"

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
]
