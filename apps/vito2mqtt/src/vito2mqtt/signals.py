"""Which signals a Vitodens 200-W has, where, and in which group they are published."""

from difflib import get_close_matches
from typing import Annotated, Any, NamedTuple

from leadsman import Sensor
from leadsman.errors import PayloadError
from vito2mqtt.codecs import (
    CLOCK,
    HALF_PERCENT,
    HISTORY,
    HOURS,
    MODE,
    ON_OFF,
    PERCENT,
    SWITCH,
    TENTHS,
    TIMER,
    VALVE,
    WHOLE,
    Codec,
    Json,
)

WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class Signal(NamedTuple):
    """A value of the boiler."""

    address: int
    length: int
    codec: Codec
    writable: bool = False
    readable: bool = True

    def decode(self, data: bytes) -> Json:
        """Decode its value."""
        return self.codec.decode(data)

    def encode(self, value: Json) -> bytes:
        """Encode its value. Raises `PayloadError`."""
        if not self.writable or self.codec.encode is None:
            raise PayloadError("it is read only")
        return self.codec.encode(value, self.length)


def week(base: int, name: str) -> dict[str, Signal]:
    """A timer for each day."""
    return {f"{name}_{day}": Signal(base + 8 * number, 8, TIMER, writable=True) for number, day in enumerate(WEEK)}


def circuit(number: int, **pump: Signal) -> dict[str, Signal]:
    """A heating circuit with its pump: 1 with radiators, 2 under the floor."""
    high = 0x1000 * (number + 1)
    return {
        "flow_temperature": Signal(high + 0x0900, 2, TENTHS),
        "flow_setpoint": Signal(high + 0x0544, 2, TENTHS),
        "curve_gradient": Signal(high + 0x07D3, 1, TENTHS, writable=True),
        "curve_level": Signal(high + 0x07D4, 2, WHOLE, writable=True),
        "room_setpoint": Signal(high + 0x0306, 1, WHOLE, writable=True),
        "room_setpoint_economy": Signal(high + 0x0307, 1, WHOLE, writable=True),
        "room_setpoint_party": Signal(high + 0x0308, 1, WHOLE, writable=True),
        "mode": Signal(high + 0x0301, 1, MODE),
        "economy_mode": Signal(high + 0x0302, 1, ON_OFF, writable=True),
        "party_mode": Signal(high + 0x0303, 1, ON_OFF, writable=True),
        **pump,
        "frost_warning": Signal(high + 0x0500, 1, SWITCH),
        "frost_limit": Signal(high + 0x07A3, 1, WHOLE),
        **week(high, "timer"),
    }


GROUPS: dict[str, dict[str, Signal]] = {
    "outdoor": {
        "temperature": Signal(0x0800, 2, TENTHS),
        "temperature_lowpass": Signal(0x5525, 2, TENTHS),
        "temperature_damped": Signal(0x5527, 2, TENTHS),
    },
    "hot_water": {
        "temperature": Signal(0x0804, 2, TENTHS),
        "outlet_temperature": Signal(0x0814, 2, TENTHS),
        "storage_lowpass": Signal(0x0812, 2, TENTHS),
        "setpoint": Signal(0x6300, 1, WHOLE, writable=True),
        "pump_overrun": Signal(0x6762, 2, WHOLE, writable=True),
        "pump": Signal(0x6513, 1, SWITCH),
        "circulation_pump": Signal(0x6515, 1, SWITCH),
        **week(0x2100, "timer"),
        **week(0x2200, "circulation"),
    },
    "burner": {
        "temperature": Signal(0x0802, 2, TENTHS),
        "temperature_lowpass": Signal(0x0810, 2, TENTHS),
        "setpoint": Signal(0x555A, 2, TENTHS),
        "exhaust_temperature": Signal(0x0808, 2, TENTHS),
        "modulation": Signal(0x55D3, 1, WHOLE),
        "starts": Signal(0x088A, 4, WHOLE),
        "hours": Signal(0x08A7, 4, HOURS),
        "power": Signal(0xA38F, 2, HALF_PERCENT),
    },
    "heating_radiator": circuit(1, pump=Signal(0x7663, 1, WHOLE)),
    "heating_floor": {
        **circuit(2, pump=Signal(0x7665, 1, SWITCH), pump_speed=Signal(0x7665, 2, PERCENT)),
        "flow_setpoint_m3": Signal(0x4544, 2, TENTHS),
    },
    "system": {
        "time": Signal(0x088E, 8, CLOCK, writable=True, readable=False),
        "internal_pump": Signal(0x7660, 1, SWITCH),
        "internal_pump_speed": Signal(0x7660, 2, PERCENT),
        "valve": Signal(0x0A10, 1, VALVE),
    },
    "diagnosis": {
        "fault": Signal(0x0A82, 1, SWITCH),
        **{f"history_{number}": Signal(0x7507 + 9 * (number - 1), 9, HISTORY) for number in range(1, 11)},
    },
}
CELSIUS = Sensor("°C", device_class="temperature", state_class="measurement")
UNITS = {
    "temperature": CELSIUS,
    "lowpass": CELSIUS,
    "setpoint": CELSIUS,
    "limit": Sensor("°C", device_class="temperature"),
    "level": Sensor("K", icon="mdi:thermometer-plus"),
    "gradient": Sensor(icon="mdi:slope-uphill"),
    "overrun": Sensor("min", device_class="duration"),
    "modulation": Sensor("%", state_class="measurement", icon="mdi:fire"),
    "power": Sensor("%", state_class="measurement", icon="mdi:fire"),
    "speed": Sensor("%", state_class="measurement", icon="mdi:pump"),
    "hours": Sensor("h", device_class="duration", state_class="total_increasing"),
    "pump": Sensor(icon="mdi:pump"),
    "starts": Sensor(state_class="total_increasing", icon="mdi:counter"),
}
"""Of signals whose names hold these words; the first one counts."""


def field_of(name: str, signal: Signal) -> Any:
    """The field of a signal in a payload, as `pydantic.create_model` takes it: its value with its unit, or None."""
    unit = next((unit for word, unit in UNITS.items() if word in name), None)
    kind = signal.codec.kind | None
    return (kind if unit is None else Annotated[kind, unit], None)


WRITABLE_GROUPS = tuple(name for name, signals in GROUPS.items() if any(signal.writable for signal in signals.values()))


def encoded(group: str, values: dict[str, Json]) -> dict[str, bytes]:
    """Encode the values of a group, by signal. Raises `PayloadError` with everything that is wrong."""
    signals = GROUPS[group]
    writable = [name for name, signal in signals.items() if signal.writable]
    found, faults = {}, []
    for name, value in values.items():
        if name not in signals:
            faults.append(f"{name}: {_suggestion(name, writable)}")
            continue
        try:
            found[name] = signals[name].encode(value)
        except PayloadError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise PayloadError("; ".join(faults))
    if not found:
        raise PayloadError("nothing to write; name a signal and its value")
    return found


def _suggestion(name: str, writable: list[str]) -> str:
    near = get_close_matches(name, writable, 1)
    return f"did you mean {near[0]!r}?" if near else f"write one of {', '.join(sorted(writable)) or 'no signal'}"
