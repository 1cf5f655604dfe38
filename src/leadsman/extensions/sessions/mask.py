"""What a session does not show: secrets, and on request addresses. Pure, but for the secrets that the process has."""

import re
from collections.abc import Callable
from typing import Any

from leadsman.core.text.redaction import HIDDEN, without_secrets
from leadsman.extensions.sessions.session import Event

_MAC = re.compile(r"(?i)(?<![0-9a-f:-])[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![0-9a-f:-])")
_URL_HOST = re.compile(r"(?<=://)(?:[^\s/?#@\"]{0,200}@)?(\[[0-9a-fA-F:.]+\]|[^\s/?#:@\"\\]+)")
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_BY_ID = re.compile(r"/dev/serial/by-(?:id|path)/[^\s\"]+")
_ONE_WIRE = re.compile(r"(?<![\w-])(10|22|28|3b|42)-[0-9a-f]{12}(?![\w-])")
_PUBLIC = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|.*\.invalid|\*\*\*")
"""Hosts that name nobody."""

MAX_HOSTS = 100
"""Hosts that are masked outside of URLs, too."""
CHECKED = "serial", "i2c"
"""Wires whose bytes keep their addresses, since their checksums would be wrong."""


class Mask:
    """Hides secrets, and on request addresses. The same address becomes the same mask, wherever it stands.

    Args:
        addresses: hide Bluetooth addresses, hosts, IPv4 addresses, the names that udev gives to ports, and serial
            numbers of thermometers.
    """

    def __init__(self, *, addresses: bool = False) -> None:
        self._addresses = addresses
        self._masks: dict[str, dict[str, str]] = {}

    def of(self, event: Event) -> Event:
        """The event, as it is written."""
        data = event.data
        if data:
            data = self._data(data, self._text if event.kind not in CHECKED else without_secrets)
        return event._replace(wire=self._text(event.wire), data=data, more=self._value(event.more))

    def _data(self, data: bytes, hide: Callable[[str], str]) -> bytes:
        for encoding in ("utf-8", "latin-1"):  # the second one takes all bytes
            try:
                text = data.decode(encoding)
                break
            except UnicodeDecodeError:
                continue
        hidden = hide(text)
        return data if hidden == text else hidden.encode(encoding, "replace")

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self._text(value)
            case dict():
                return {self._text(key): self._value(each) for key, each in value.items()}
            case list() | tuple():
                return [self._value(each) for each in value]
        return value

    def _text(self, text: str) -> str:
        text = without_secrets(text)
        if not self._addresses:
            return text
        text = _MAC.sub(lambda found: self._mac(found[0]), text)
        text = _ONE_WIRE.sub(lambda found: self._thermometer(found[1], found[0]), text)
        text = _BY_ID.sub(lambda found: self._mask("port", found[0], "/dev/serial/by-id/port{}"), text)
        text = _URL_HOST.sub(lambda found: self._host(found[1]), text)
        hosts = self._masks.get("host", {})
        if hosts:
            known = sorted([*hosts][:MAX_HOSTS], key=len, reverse=True)
            pattern = rf"(?<![\w.-])(?:{'|'.join(map(re.escape, known))})(?![\w-])"
            text = re.sub(pattern, lambda found: hosts[found[0]], text)
        return _IPV4.sub(lambda found: self._ipv4(found[0]), text)

    def _host(self, host: str) -> str:
        return host if _PUBLIC.fullmatch(host) or _IPV4.fullmatch(host) else self._mask("host", host, "host{}.invalid")

    def _mac(self, address: str) -> str:
        """A locally administered address (IEEE 802, 8.4) in the same writing."""
        plain = address.upper().replace("-", ":")
        mask = self._mask("mac", plain, "{}")
        number = int(mask)
        made = f"02:00:00:00:{number >> 8 & 0xFF:02X}:{number & 0xFF:02X}".replace(":", address[2])
        return made if address.upper() == address else made.lower()

    def _thermometer(self, family: str, name: str) -> str:
        """A name of the same family."""
        return f"{family}-{int(self._mask('thermometer', name, '{}')):012x}"

    def _ipv4(self, address: str) -> str:
        """An address for documentation (RFC 5737)."""
        if _PUBLIC.fullmatch(address) or any(int(part) > 255 for part in address.split(".")):
            return address
        number = int(self._mask("ip number", address, "{}"))
        blocks = "192.0.2", "198.51.100", "203.0.113"
        return self._mask("ip", address, f"{blocks[(number - 1) // 254 % 3]}.{(number - 1) % 254 + 1}")

    def _mask(self, kind: str, what: str, pattern: str) -> str:
        masks = self._masks.setdefault(kind, {})
        if what not in masks:
            masks[what] = pattern.format(len(masks) + 1)
        return masks[what]


def same(recorded: object, asked: object) -> bool:
    """Whether a request is the recorded one, in which `HIDDEN` stands for anything."""
    if isinstance(recorded, bytes) and isinstance(asked, bytes) and HIDDEN.encode() in recorded:
        recorded, asked = recorded.decode("latin-1"), asked.decode("latin-1")
    if not isinstance(recorded, str) or not isinstance(asked, str) or HIDDEN not in recorded:
        return recorded == asked
    first, *middle, last = recorded.split(HIDDEN)
    if not asked.startswith(first) or not asked[len(first) :].endswith(last):
        return False
    at, stop = len(first), len(asked) - len(last)
    for part in middle:
        at = asked.find(part, at, stop)
        if at < 0:
            return False
        at += len(part)
    return at <= stop
