"""Decodes what sensors advertise, with the parsers that Home Assistant uses, too: one package for each family of
sensors (https://github.com/Bluetooth-Devices). They are imported at the first advertisement, which takes half a second.
"""

import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.adapters.ble import bthome
from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.errors import NotInstalled
from leadsman.extras import missing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bluetooth_sensor_state_data import BluetoothData
    from habluetooth import BluetoothServiceInfoBleak

_PARSERS = {
    "bthome": "BTHome",
    "xiaomi": "Xiaomi",
    "govee": "Govee",
    "ruuvitag": "Ruuvitag",
    "inkbird": "INKBIRD",
    "thermopro": "ThermoPro",
    "qingping": "Qingping",
    "sensorpush": "SensorPush",
    "sensirion": "Sensirion",
    "mopeka_iot": "MopekaIOT",
    "moat": "Moat",
    "kegtron": "Kegtron",
    "tilt": "Tilt",
    "bluemaestro": "BlueMaestro",
    "thermobeacon": "ThermoBeacon",
    "rapt": "RAPTPill",
    "oralb": "OralB",
}
"""What the class of each decoder begins with, in the order in which they are asked."""


class Recognised(NamedTuple):
    """What an advertisement is of."""

    decoder: str
    """The name of the decoder, such as ``"govee"``."""
    model: str
    """Of the device, such as ``"H5075"``, as the decoder has it: a kind of device where it knows no model."""


def recognise(advertisement: Advertisement) -> Recognised | None:
    """Find the decoder of an advertisement and the model of the device; None if no decoder knows it. A device that
    encrypts its values is recognised, too. Without the extra ``ble-decoders`` only BTHome is. Never raises.

    The first call imports the decoders, which takes half a second.
    """
    try:
        parsers = load()
    except NotInstalled:
        return Recognised("bthome", "BTHome sensor") if _is_bthome(advertisement) else None
    return next(_recognising(advertisement, parsers, 0.0), None)


@cache
def load() -> "Mapping[str, type[BluetoothData]]":
    """Import the decoders; by name.

    Raises:
        NotInstalled: one of their packages is missing.
    """
    try:
        found = {
            name: getattr(import_module(f"{name}_ble"), f"{word}BluetoothDeviceData") for name, word in _PARSERS.items()
        }
    except ImportError as error:
        raise missing("decoders of Bluetooth sensors", f"{error.name or 'a package'}", "ble-decoders", error) from error
    for name in found:
        # Whoever is on the air could fill the log with what they warn of; it is counted here instead.
        logging.getLogger(f"{name}_ble").setLevel(logging.CRITICAL)
    return found


def _recognising(
    advertisement: Advertisement, parsers: "Mapping[str, type[BluetoothData]]", now: float
) -> Iterator[Recognised]:
    """What the decoders make of an advertisement, each that knows it."""
    for each in _alone(advertisement):
        info = service_info(each, now)
        for name, create in parsers.items():
            parser = create()
            try:
                device = parser.update(info).devices.get(parser.primary_device_id)
            except Exception:  # of garbage, they raise whatever they stumble over
                continue
            if device is not None and device.model:
                yield Recognised(name, device.model)


def _alone(advertisement: Advertisement) -> Iterator[Advertisement]:
    """An advertisement, and then each of its manufacturer data alone: BlueZ adds up those of a device, and a parser
    cannot know which of several is the new one."""
    yield advertisement
    if len(advertisement.manufacturer) > 1:
        for each in advertisement.manufacturer.items():
            yield advertisement._replace(manufacturer=dict([each]))


def service_info(advertisement: Advertisement, now: float) -> "BluetoothServiceInfoBleak":
    """An advertisement as the parsers take it. `now` is monotonic seconds."""
    from habluetooth import BluetoothServiceInfoBleak

    heard = advertisement
    bleak_device: Any = None  # only parsers that connect look at it
    return BluetoothServiceInfoBleak(
        heard.name or "",
        heard.address,
        heard.rssi,
        dict(heard.manufacturer),
        dict(heard.service_data),
        list(heard.services),
        "local",
        bleak_device,
        None,
        False,
        now,
        None,
    )


def _is_bthome(advertisement: Advertisement) -> bool:
    data = advertisement.service_data.get(bthome.SERVICE, b"")
    return bool(data) and data[0] >> 5 == 2
