"""A boiler in memory, for tests, demos and dry runs."""

from typing import Literal

from leadsman.adapters.serial.framing import FixedFramer
from leadsman.testing import Boiler, SerialTwin
from vito2mqtt.boiler import Vitodens
from vito2mqtt.codecs import TIMER, Json
from vito2mqtt.signals import GROUPS, Signal

CIRCUIT = {
    "flow_temperature": 38.0,
    "flow_setpoint": 40.0,
    "curve_gradient": 1.4,
    "curve_level": 0,
    "room_setpoint": 20,
    "room_setpoint_economy": 16,
    "room_setpoint_party": 22,
    "mode": "heating and hot water",
    "economy_mode": "off",
    "party_mode": "off",
    "frost_warning": "off",
    "frost_limit": 1,
}
VALUES: dict[str, dict[str, Json]] = {
    "outdoor": {"temperature": 5.0, "temperature_lowpass": 5.0, "temperature_damped": 5.0},
    "hot_water": {
        "temperature": 48.5,
        "outlet_temperature": 47.0,
        "storage_lowpass": 48.5,
        "setpoint": 50,
        "pump_overrun": 5,
        "pump": "off",
        "circulation_pump": "on",
    },
    "burner": {
        "temperature": 41.5,
        "temperature_lowpass": 41.0,
        "setpoint": 42.0,
        "exhaust_temperature": 44.0,
        "modulation": 35,
        "starts": 12345,
        "hours": 4321.5,
        "power": bytes((70, 0)),  # 35 %
    },
    "heating_radiator": CIRCUIT | {"pump": 1},
    "heating_floor": CIRCUIT
    | {"pump": "on", "flow_temperature": 31.0, "flow_setpoint": 32.0, "curve_gradient": 0.6}
    | {"pump_speed": bytes((1, 40)), "flow_setpoint_m3": 30.0},
    "system": {
        "time": "2026-01-01T12:00:00",
        "internal_pump": "on",
        "internal_pump_speed": bytes((1, 55)),
        "valve": "heating",
    },
    "diagnosis": {"fault": "off"} | {f"history_{number}": bytes(9) for number in range(1, 11)},
}
"""A boiler on a winter's day, without a fault: values as they are published, or bytes."""
PERIODS = [["05:00", "23:00"]]
"""Of every timer on every day."""


def simulated_boiler(protocol: Literal["P300", "KW"] = "P300") -> Boiler:
    """A boiler with these values in its memory."""
    memory: dict[int, bytes] = {}
    for group, signals in GROUPS.items():
        for name, signal in signals.items():
            data = encoded(signal, PERIODS if signal.codec is TIMER else VALUES[group][name])
            memory[signal.address] = max(memory.get(signal.address, b""), data, key=len)
    return Boiler(memory, protocol)


def encoded(signal: Signal, value: Json) -> bytes:
    """The bytes of a value."""
    if isinstance(value, bytes):
        return value
    assert signal.codec.encode is not None  # what has no encoding is given as bytes
    return signal.codec.encode(value, signal.length)


def simulated_vitodens(protocol: Literal["P300", "KW"] = "P300") -> Vitodens:
    """The adapter over a boiler in memory."""
    boiler = simulated_boiler(protocol)
    port = SerialTwin(boiler.receive, says=lambda: (2.0, boiler.beat()), framer=FixedFramer(1))
    return Vitodens(port, protocol)
