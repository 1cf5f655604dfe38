"""Devices with Modbus on one line or at one address: meters whose tables are here, and others by tables of yours."""

from meter2mqtt.app import app, main

__all__ = ["app", "main"]
