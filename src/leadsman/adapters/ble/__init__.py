"""Bluetooth Low Energy."""

from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.adapters.ble.radio import Address, BleDevice, BleRadio

__all__ = ["Address", "Advertisement", "BleDevice", "BleRadio"]
