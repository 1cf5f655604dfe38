"""Serial ports."""

from leadsman.adapters.serial.port import SerialPort, Session

__all__ = ["SerialPort", "Session"]
