"""A Viessmann Vitodens 200-W: its signals in groups, its settings, and hot water against legionella."""

from vito2mqtt.app import app, main

__all__ = ["app", "main"]
