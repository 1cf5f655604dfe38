"""Sensors in memory, for tests, demos and dry runs."""

from leadsman.adapters.ble.bthome import SERVICE
from leadsman.testing import BleTwin, TwinDevice


def simulated_radio() -> BleTwin:
    """A radio that hears a thermometer of Govee, a RuuviTag, and a BTHome sensor that encrypts."""
    ruuvi = bytes.fromhex("0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F")
    bthome = bytes.fromhex("41a47266c95f730011223378237214")  # 25.06 °C, 50.55 %
    return BleTwin(
        TwinDevice("F0:11:22:33:44:66", name="GVH5075_4466", manufacturer={0xEC88: bytes.fromhex("00036da56400")}),
        TwinDevice("F0:11:22:33:44:77", manufacturer={0x0499: ruuvi}),
        TwinDevice("54:48:E6:8F:80:A5", service_data={SERVICE: bthome}),
    )
