"""The device classes of Home Assistant with the units that each takes. Imported only where a `Sensor` has a class.

The table is that of Home Assistant 2026.11 (``DEVICE_CLASS_UNITS`` of its sensor integration, which
https://www.home-assistant.io/integrations/sensor/#device-class lists; for booleans
https://www.home-assistant.io/integrations/binary_sensor/#device-class).
"""

from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidValue

RELEASE = "2026.11"
"""The release of Home Assistant whose table this is."""

UNITS: dict[str, str | None] = {
    "absolute_humidity": "g/m³, mg/m³",
    "apparent_power": "VA, kVA, mVA",
    "aqi": "",
    "area": "ac, cm², ft², ha, in², km², mi², mm², m², yd²",
    "atmospheric_pressure": "Pa, atm, bar, cbar, hPa, inHg, inH₂O, kPa, mPa, mbar, mmHg, psi",
    "battery": "%",
    "blood_glucose_concentration": "mg/dL, mmol/L",
    "carbon_dioxide": "ppm",
    "carbon_monoxide": "mg/m³, ppb, ppm, μg/m³",
    "conductivity": "S/cm, mS/cm, μS/cm",
    "current": "A, mA, μA",
    "data_rate": "B/s, GB/s, Gbit/s, GiB/s, KiB/s, MB/s, Mbit/s, MiB/s, bit/s, kB/s, kbit/s",
    "data_size": "B, EB, EiB, GB, Gbit, GiB, KiB, MB, Mbit, MiB, PB, PiB, TB, TiB, YB, YiB, ZB, ZiB, bit, kB, kbit",
    "date": None,
    "distance": "cm, ft, in, km, m, mi, mm, nmi, yd",
    "duration": "d, h, min, ms, s, μs",
    "energy": "GJ, GWh, Gcal, J, MJ, MWh, Mcal, TWh, Wh, cal, kJ, kWh, kcal, mWh, thm",
    "energy_distance": "Wh/km, kWh/100km, km/kWh, mi/kWh",
    "energy_storage": "GJ, GWh, Gcal, J, MJ, MWh, Mcal, TWh, Wh, cal, kJ, kWh, kcal, mWh, thm",
    "enum": None,
    "frequency": "GHz, Hz, MHz, kHz, mHz",
    "gas": "CCF, L, MCF, ft³, m³",
    "humidity": "%",
    "illuminance": "lx",
    "irradiance": "BTU/(h⋅ft²), W/m²",
    "moisture": "%",
    "monetary": None,
    "nitrogen_dioxide": "ppb, ppm, μg/m³",
    "nitrogen_monoxide": "ppb, μg/m³",
    "nitrous_oxide": "μg/m³",
    "ozone": "ppb, ppm, μg/m³",
    "ph": "",
    "pm1": "μg/m³",
    "pm10": "μg/m³",
    "pm25": "μg/m³",
    "pm4": "μg/m³",
    "power": "GW, MW, TW, W, kW, mW",
    "power_factor": "%",
    "precipitation": "cm, in, mm",
    "precipitation_intensity": "in/d, in/h, mm/d, mm/h",
    "pressure": "Pa, atm, bar, cbar, hPa, inHg, inH₂O, kPa, mPa, mbar, mmHg, psi",
    "radon": "Bq/m³, pCi/L",
    "reactive_energy": "kvarh, varh",
    "reactive_power": "kvar, mvar, var",
    "signal_strength": "dB, dBm",
    "sound_pressure": "dB, dBA",
    "speed": "Beaufort, ft/s, in/d, in/h, in/s, km/h, kn, m/min, m/s, mm/d, mm/h, mm/s, mph",
    "sulphur_dioxide": "ppb, μg/m³",
    "temperature": "K, °C, °F",
    "temperature_delta": "K, °C, °F",
    "timestamp": None,
    "uptime": None,
    "volatile_organic_compounds": "mg/m³, μg/m³",
    "volatile_organic_compounds_parts": "ppb, ppm",
    "voltage": "MV, V, kV, mV, μV",
    "volume": "CCF, L, MCF, fl. oz., ft³, gal, mL, m³",
    "volume_flow_rate": "L/h, L/min, L/s, ft³/min, gal/d, gal/h, gal/min, mL/s, m³/h, m³/min, m³/s",
    "volume_storage": "CCF, L, MCF, fl. oz., ft³, gal, mL, m³",
    "water": "CCF, L, MCF, ft³, gal, m³",
    "weight": "g, kg, lb, mg, oz, st, μg",
    "wind_direction": "°",
    "wind_speed": "Beaufort, ft/s, in/s, km/h, kn, m/min, m/s, mm/s, mph",
}
"""The units of each class, with commas between them. Empty text: it takes none. None: it takes any, or is no
number."""

_ANY = ("measurement", "measurement_angle", "total", "total_increasing")
_TOTALS = ("total", "total_increasing")
_OF_STATES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("area", "data_size", "distance", "duration", "precipitation"), _ANY),
    **dict.fromkeys(("energy", "gas", "reactive_energy", "volume", "water"), _TOTALS),
    **dict.fromkeys(("date", "enum", "timestamp", "uptime"), ()),
    "monetary": ("total",),
    "weight": ("measurement", *_TOTALS),
    "wind_direction": ("measurement_angle",),
}
"""The state classes of each class that takes others than ``measurement`` alone (``DEVICE_CLASS_STATE_CLASSES`` of the
same integration). Home Assistant complains of others, and the statistics of such a sensor are wrong."""

WITHOUT_UNIT = frozenset({"date", "enum", "timestamp", "uptime"})
"""Classes that are no numbers."""
OF_NUMBERS = UNITS.keys() - WITHOUT_UNIT
"""The classes of numbers."""

OF_BOOLEANS = frozenset(
    {
        *("battery", "battery_charging", "carbon_monoxide", "cold", "connectivity", "door", "garage_door", "gas"),
        *("heat", "light", "lock", "moisture", "motion", "moving", "occupancy", "opening", "plug", "power"),
        *("presence", "problem", "running", "safety", "smoke", "sound", "tamper", "update", "vibration", "window"),
    }
)
"""The classes of binary sensors."""
OF_EVENTS = ("button", "doorbell", "motion")
"""The classes of events (https://www.home-assistant.io/integrations/event/#device-class)."""


def check_class(device_class: str, unit: str | None, state_class: str | None) -> None:
    """See that Home Assistant has a device class, and that it takes this unit and this state class.

    Raises:
        InvalidValue: the message lists what the class takes, or names the class that may be meant.
    """
    if device_class not in UNITS and device_class not in OF_BOOLEANS:
        near = suggestion(device_class, sorted({*UNITS, *OF_BOOLEANS}))
        raise InvalidValue(f"device_class {device_class!r} is unknown to Home Assistant {RELEASE}; {near}")
    taken = _OF_STATES.get(device_class, ("measurement",)) if device_class in UNITS else ()
    if state_class is not None and state_class not in taken:
        what = (
            f"write one of {', '.join(taken)}" if len(taken) > 1 else f"write {taken[0]!r}" if taken else "leave it out"
        )
        raise InvalidValue(f"device_class {device_class!r} does not allow the state_class {state_class!r}; {what}")
    if unit is None:
        return
    if device_class in WITHOUT_UNIT or device_class not in UNITS:
        raise InvalidValue(f"device_class {device_class!r} has no unit; leave out unit={unit!r}")
    listed = UNITS[device_class]
    if listed is not None and _as_listed(unit) not in listed.split(", "):
        what = f"write one of {listed}" if listed else "leave the unit out"
        raise InvalidValue(f"device_class {device_class!r} does not allow the unit {unit!r}; {what}")


def _as_listed(unit: str) -> str:
    """The unit as the table writes it: with the Greek letter mu, which looks like the micro sign."""
    return unit.replace("\u00b5", "\u03bc")
