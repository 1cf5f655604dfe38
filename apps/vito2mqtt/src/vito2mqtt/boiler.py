"""The adapter of this app: a Vitodens behind an optical interface."""

import uuid
from typing import Literal

from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.optolink import Optolink
from vito2mqtt.signals import Signal


class Vitodens(Optolink):
    """An `Optolink`, and what is known of its boiler while the app runs."""

    def __init__(self, port: SerialPort, protocol: Literal["P300", "KW"] = "P300") -> None:
        super().__init__(port, protocol)
        self.missing: set[Signal] = set()
        """Signals that this boiler said it does not have."""
        self.life = uuid.uuid4().hex
        """Tells this run of the app from others."""

    async def read_signal(self, signal: Signal) -> bytes:
        """The bytes of a signal. Raises as `Optolink.read`."""
        return await self.read(signal.address, signal.length)
