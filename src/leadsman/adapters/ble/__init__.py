"""Bluetooth Low Energy."""

from typing import TYPE_CHECKING

from leadsman.adapters.ble.advertisement import Address, Advertisement
from leadsman.adapters.ble.device import BleDevice
from leadsman.adapters.ble.radio import BleRadio

if TYPE_CHECKING:
    from leadsman.adapters.ble.decoders import BindKey, Decoders, Measurement, Recognised, recognise

__all__ = [
    "Address",
    "Advertisement",
    "BindKey",
    "BleDevice",
    "BleRadio",
    "Decoders",
    "Measurement",
    "Recognised",
    "recognise",
]


def __getattr__(name: str) -> object:
    """Import the decoders at their first use: an app that decodes by itself needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from leadsman.adapters.ble import decoders

    return getattr(decoders, name)
