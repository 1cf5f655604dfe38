"""A gas meter with a magnet in its last wheel: ticks counted by a magnetometer beside it."""

from gas2mqtt.app import app, main

__all__ = ["app", "main"]
