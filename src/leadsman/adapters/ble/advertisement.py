"""Advertisements of Bluetooth devices: their content, filters for them, and device addresses. Pure."""

import fnmatch
import re
import sys
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from leadsman.errors import InvalidType, InvalidValue
from leadsman.text import clean

MOST_KNOWN = 512
"""Devices remembered; in a city thousands pass by."""


class Advertisement(NamedTuple):
    """One advertisement of a device. UUIDs are complete and in lower case."""

    address: str
    name: str | None
    rssi: int
    """dBm."""
    services: tuple[str, ...]
    manufacturer: Mapping[int, bytes]
    """By company identifier."""
    service_data: Mapping[str, bytes]


class AdvertisementFilter:
    """Selects advertisements by their content, and limits their rate."""

    def __init__(
        self,
        address: str | None,
        name: str | None,
        service: str | None,
        manufacturer: int | None,
        every: float,
        changed: bool,
    ) -> None:
        self._address = address
        self._name = name
        self._service = service
        self._manufacturer = manufacturer
        self._every = every
        self._changed = changed
        self._last: dict[str, tuple[float, Advertisement]] = {}

    def accepts(self, advertisement: Advertisement, now: float) -> bool:
        """Whether an advertisement passes the filter. `now` is monotonic seconds."""
        if self._address is not None and advertisement.address != self._address:
            return False
        if self._name is not None and not fnmatch.fnmatchcase(advertisement.name or "", self._name):
            return False
        if (
            self._service is not None
            and self._service not in advertisement.services
            and self._service not in advertisement.service_data
        ):
            return False
        if self._manufacturer is not None and self._manufacturer not in advertisement.manufacturer:
            return False
        last = self._last.get(advertisement.address)
        if last is not None:
            if self._every and now - last[0] < self._every:
                return False
            if self._changed and last[1]._replace(rssi=0) == advertisement._replace(rssi=0):
                return False
        if self._every or self._changed:
            self._last.pop(advertisement.address, None)
            self._last[advertisement.address] = now, advertisement
            if len(self._last) > MOST_KNOWN:
                del self._last[next(iter(self._last))]
        return True


def check_address(value: object) -> str:
    """Check a Bluetooth address and return it in upper case. macOS hides addresses, so there it is the UUID that macOS
    gives to a device.

    Raises:
        InvalidType, InvalidValue: it is not an address.
    """
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not a Bluetooth address; write one such as 'AA:BB:CC:DD:EE:FF'")
    text = value.strip().upper().replace("-", ":") if len(value.strip()) == 17 else value.strip().upper()
    if re.fullmatch(r"[0-9A-F]{2}(:[0-9A-F]{2}){5}", text):
        return text
    if sys.platform == "darwin" and re.fullmatch(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", text):
        return text
    raise InvalidValue(f"{clean(value)!r} is not a Bluetooth address; write one such as 'AA:BB:CC:DD:EE:FF'")


Address = Annotated[str, AfterValidator(check_address)]
"""For settings: a Bluetooth address, checked when the app starts."""
