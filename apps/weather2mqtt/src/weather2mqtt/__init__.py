"""The present weather of places, from Open-Meteo or a server of the same interface."""

from weather2mqtt.app import app, main

__all__ = ["app", "main"]
