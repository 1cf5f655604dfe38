"""Bluetooth Low Energy."""

from leadsman.adapters.ble.advertisement import Address, Advertisement
from leadsman.adapters.ble.device import BleDevice
from leadsman.adapters.ble.radio import BleRadio

__all__ = ["Address", "Advertisement", "BleDevice", "BleRadio"]
