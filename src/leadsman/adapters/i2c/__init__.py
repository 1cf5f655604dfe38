"""Chips on I²C buses."""

from leadsman.adapters.i2c.bus import I2c

__all__ = ["I2c"]
