"""Bluetooth sensors of many makes: each that advertises its values is a device."""

from bluetooth2mqtt.app import app, main

__all__ = ["app", "main"]
