"""Bluetooth sensors of many makes: each that advertises its values is a device."""

from ble2mqtt.app import app, main

__all__ = ["app", "main"]
