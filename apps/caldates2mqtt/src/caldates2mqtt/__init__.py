"""Waste collection, birthdays and whatever else takes whole days, from a CalDAV server."""

from caldates2mqtt.app import app, main

__all__ = ["app", "main"]
