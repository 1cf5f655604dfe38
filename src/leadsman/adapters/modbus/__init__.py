"""Modbus: RTU over serial ports and gateways, and TCP."""

from leadsman.adapters.modbus.bus import Modbus
from leadsman.adapters.modbus.pdu import ModbusRefused
from leadsman.adapters.modbus.table import Register, Table

__all__ = ["Modbus", "ModbusRefused", "Register", "Table"]
