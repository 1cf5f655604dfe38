"""Waves in memory, for tests, demos and dry runs."""

from itertools import cycle

from airthings2mqtt.decoding import HUMIDITY, MINI, PLUS, RADON_24H, RADON_LONG_TERM, SECOND, TEMPERATURE
from airthings2mqtt.settings import Settings
from leadsman.testing import BleTwin, TwinDevice

WAVE = {
    TEMPERATURE: bytes.fromhex("6608"),  # 21.5 °C
    HUMIDITY: bytes.fromhex("9411"),  # 45 %
    RADON_24H: bytes.fromhex("2a00"),  # 42 Bq/m³
    RADON_LONG_TERM: bytes.fromhex("2600"),  # 38 Bq/m³
}
MODELS = (
    WAVE,
    {PLUS: bytes.fromhex("015a0000 2a002600 6608c8c5 90013200 00000000")},
    {SECOND: bytes.fromhex("015a0000 2a002600 6608ffff ffffffff 0000ffff")},
    {MINI: bytes.fromhex("00001973 00009411 32000000 00000000 00000000")},
)


def simulated_radio(settings: Settings) -> BleTwin:
    """A radio that hears all Waves of the settings: the first is a Wave, the second a Wave Plus, and so on."""
    waves = zip(settings.waves.values(), cycle(MODELS), strict=False)
    return BleTwin(*(TwinDevice(wave.address, values) for wave, values in waves))
