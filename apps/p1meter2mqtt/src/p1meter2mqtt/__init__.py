"""A smart meter with a P1 port (DSMR): power, energy, gas and volts, as the meter sends them, every second or ten."""

from p1meter2mqtt.app import app, main

__all__ = ["app", "main"]
