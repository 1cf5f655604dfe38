"""The abilities of adapters, as authors of adapters declare them. Never run; `make check` type-checks it."""

from typing import Self

from leadsman import App
from leadsman.adapters.ble import BleRadio
from leadsman.adapters.caldav import CalDav
from leadsman.adapters.http import HttpClient
from leadsman.adapters.serial import SerialPort
from leadsman.core.adapters.adapter import (
    Adapter,
    ChecksInstallation,
    DeclaresTransientErrors,
    LimitsRetries,
    ReportsHealth,
    SupportsProbe,
    SupportsReset,
)


class Plain:
    """An adapter without any ability."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None: ...


class Able(Plain):
    """An adapter with all of them: as class attributes, as attributes, as properties and as methods."""

    transient_errors = (KeyError, ValueError)

    def __init__(self) -> None:
        self.retry_tokens = 5

    @property
    def health(self) -> dict[str, float | None]:
        return {"signal": -60.0, "battery": None}

    async def probe(self) -> None: ...

    async def reset(self) -> None: ...

    def check_installed(self) -> None: ...


plain: Adapter = Plain()
able = Able()
adapter: Adapter = able
probed: list[SupportsProbe] = [able, SerialPort("/dev/a"), BleRadio(), CalDav("http://calendar.lan")]
reset: list[SupportsReset] = [able, BleRadio(), CalDav("http://calendar.lan")]
reporting: list[ReportsHealth] = [able, SerialPort("/dev/a"), HttpClient()]
checked: list[ChecksInstallation] = [able, SerialPort("/dev/a"), BleRadio(), HttpClient()]
declaring: DeclaresTransientErrors = able
limited: list[LimitsRetries] = [able, SerialPort("/dev/a"), BleRadio(), CalDav("http://calendar.lan")]

App("house", adapters={"plain": plain, "able": able})
