"""A smart meter with a P1 port (DSMR): power, energy, volts, gas, water and heat, as the meter sends them."""

from p1meter2mqtt.app import app, main

__all__ = ["app", "main"]
