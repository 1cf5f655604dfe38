"""Sensors of SwitchBot. PySwitchbot reads their advertisements; here is what each of its values measures, in the form
of the other decoders. Only `leadsman.adapters.ble.decoders` imports this file.
"""

from typing import TYPE_CHECKING

from leadsman.errors import missing

if TYPE_CHECKING:
    from habluetooth import BluetoothServiceInfoBleak

try:
    from sensor_state_data import BinarySensorDeviceClass, SensorData, SensorLibrary
except ImportError as error:
    raise missing("decoders of SwitchBot sensors", error.name or "a package", "ble-decoders", error) from error

_MODELS = frozenset(
    {
        *("WoSensorTH", "WoMeterPlus", "WoTHP", "WoTHPc", "WoIOSensorTH", "Weather Station"),
        *("WoHub2", "Hub3", "HubMini Matter"),
        *("WoContact", "WoPresence", "Presence Sensor", "Leak Detector"),
        *("WoPlugUS", "WoPlugJP"),
    }
)
"""Meters, hubs with one, sensors, and the plugs whose advertised power PySwitchbot uses, by its names: it asks the plug
of Europe over a connection."""
_NUMBERS = {
    "temperature": SensorLibrary.TEMPERATURE__CELSIUS,
    "humidity": SensorLibrary.HUMIDITY__PERCENTAGE,
    "battery": SensorLibrary.BATTERY__PERCENTAGE,
    "co2": SensorLibrary.CO2__CONCENTRATION_PARTS_PER_MILLION,
    "illuminance": SensorLibrary.LIGHT__LIGHT_LUX,
    "power": SensorLibrary.POWER__POWER_WATT,
}
_STATES = {
    "contact_open": ("opening", BinarySensorDeviceClass.OPENING),
    "motion_detected": ("motion", BinarySensorDeviceClass.MOTION),
    "is_light": ("light", BinarySensorDeviceClass.LIGHT),
    "leak": ("moisture", BinarySensorDeviceClass.MOISTURE),
    "tampered": ("tamper", BinarySensorDeviceClass.TAMPER),
    "isOn": ("on", BinarySensorDeviceClass.POWER),
}


class SwitchBot(SensorData):
    """The parser of one sensor. The answer to an active scan has its model; until then it is not known, and after it
    the rest is enough, but not beside the answer of another model. A device that wants a password for commands
    advertises its values as any other."""

    _model: object = None

    def _start_update(self, data: "BluetoothServiceInfoBleak") -> None:
        from switchbot import parse_advertisement_data  # it loads aiohttp and bleak

        model = None if data.service_data else self._model
        parsed = parse_advertisement_data(data, data, model)  # it looks only at what both types have
        found = parsed.data if parsed is not None else {}
        if found.get("modelName") not in _MODELS:
            return
        for key, value in found["data"].items():
            if value is None:
                continue  # it is in the answer to an active scan only
            if key in _NUMBERS:
                self.update_predefined_sensor(_NUMBERS[key], value)
            elif key in _STATES:
                name, device_class = _STATES[key]
                self.update_predefined_binary_sensor(device_class, value, name)
            else:
                continue
            self._model = found["modelName"]
            self.set_device_manufacturer("SwitchBot")
            self.set_device_type(found["modelFriendlyName"])
