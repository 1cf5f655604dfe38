"""The Bluetooth devices that ``leadsman ble scan`` hears, the settings of each, and how they look on a screen. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from leadsman.adapters.ble.advertisement import Advertisement
from leadsman.adapters.ble.gatt import short_uuid
from leadsman.core.text import clean, count_noun
from leadsman.core.text.identifiers import lowercase_identifier
from leadsman.tools.cli.screen import STEPS, Line, clip, column, cut

MAX_DEVICES = 10_000
"""Devices that are remembered, those heard last: a phone has a new address every few minutes."""
GREY_SECONDS = 30.0
"""Seconds after which a device is grey. BlueZ forgets a device then."""
TITLE = "leadsman ble scan"
KEYS = "q quit  ↑ ↓ choose"
BIND_KEY = '# key = "…"  # it encrypts its values: write its bind key'
"""The last line of the settings of a device that encrypts."""
MORE = 'more makes: pip install "leadsman[ble-decoders]"'
"""What is beside the keys where only the sensors of BTHome are recognised."""
EMPTY_TEXT = "  nothing is heard yet; a sensor that sleeps advertises seldom, or when its button is pressed"
_MAX_PARTS = 16
"""Services, companies and service data of one device."""
_MAX_NAME_BYTES = 248
"""Bytes (Core Specification, Vol 3, Part C, 12.1), hence also characters."""
_MAX_DATA_BYTES = 254
"""Bytes of one part of an advertisement (Core Specification, Vol 3, Part C, 11)."""
_BAND = 10
"""dB within which devices keep their order on the screen."""
_COMMENT = 78
"""Cells of what is known of a device, in its settings."""
_ADDRESSES = re.compile("[0-9A-F:-]{5,36}")
"""What an address may look like; macOS has longer ones. Others are not heard."""
_ADDRESS, _NAME, _SIGNAL, _DECODER = 18, (17, 28), 8, 21
"""Cells of the columns; the name has more of them on a wide terminal."""
_WIDE = 100
"""Columns from which on it is wide."""

Recognise = Callable[[Advertisement], tuple[str, str, bool] | None]
"""The name of the decoder that recognises an advertisement, the model of the device, and whether it is encrypted."""

_K = TypeVar("_K", str, int)


class Advertiser(NamedTuple):
    """A device that was heard."""

    address: str
    name: str
    """Empty if it has none; without control characters."""
    rssi: int
    """dBm."""
    services: tuple[str, ...]
    manufacturer: Mapping[int, bytes]
    """By company identifier."""
    service_data: Mapping[str, bytes]
    decoder: str
    """Empty if none recognises it."""
    model: str
    encrypts: bool
    """Whether it has advertised something encrypted."""
    heard: float
    """Seconds of the listener's clock."""

    @property
    def advertises(self) -> str:
        """The services and the companies, as filters of advertisements are written."""
        services = dict.fromkeys((*self.services, *self.service_data))
        return " ".join([*map(short_uuid, services), *(f"0x{company:04x}" for company in self.manufacturer)])

    @property
    def recognised(self) -> str:
        """The decoder and the model."""
        return " ".join(filter(None, (self.decoder, self.model)))

    @property
    def settings(self) -> list[str]:
        """The lines of a settings file for this device. Other names may follow from the app."""
        name = lowercase_identifier(self.name or self.model or self.decoder or "sensor")
        about = ", ".join(filter(None, (self.name, self.recognised, f"{self.rssi} dBm")))
        end = re.sub("[:-]", "", self.address[-5:]).lower()
        lines = [f"# {clip(about, _COMMENT)}", f"[sensors.{name}-{end}]", f'address = "{self.address}"']
        return [*lines, BIND_KEY] if self.encrypts else lines

    @property
    def what(self) -> tuple[str, str, str, bool]:
        """What a person reads of it, but the signal."""
        return self.name, self.recognised, self.advertises, self.encrypts

    def document(self) -> dict[str, object]:
        """The device for a program, with all that it advertised last."""
        return {
            "address": self.address,
            "name": self.name or None,
            "rssi": self.rssi,
            "services": list(self.services),
            "manufacturer": {f"0x{company:04x}": data.hex() for company, data in self.manufacturer.items()},
            "service_data": {uuid: data.hex() for uuid, data in self.service_data.items()},
            "decoder": self.decoder or None,
            "model": self.model or None,
            "settings": "\n".join(self.settings),
        }


class Advertisers:
    """All devices that were heard, at most `MAX_DEVICES`: the one that was silent for longest is forgotten first.

    Args:
        recognise: finds the decoder of an advertisement.
    """

    def __init__(self, recognise: Recognise) -> None:
        self._recognise = recognise
        self._found: dict[str, Advertiser] = {}
        self._changed: dict[str, None] = {}
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._found)

    def hear(self, advertisement: Advertisement, now: float) -> None:
        """Take an advertisement. What a device advertised before is kept, since it divides its data among several.

        Args:
            now: seconds of any clock that only goes on.
        """
        address = advertisement.address
        if not _ADDRESSES.fullmatch(address):
            return
        is_new = address not in self._found
        before = self._found.pop(address, None) or Advertiser(address, "", 0, (), {}, {}, "", "", False, now)
        decoder, model, encrypts = before.decoder, before.model, before.encrypts
        if not decoder or (advertisement.service_data and not encrypts):  # its first one may have had no values
            found_decoder, found_model, encrypts = self._recognise(advertisement) or ("", "", False)
            decoder, model = (decoder, model) if decoder else (found_decoder, found_model)
        found = self._found[address] = Advertiser(
            address,
            clean((advertisement.name or "")[:_MAX_NAME_BYTES]) or before.name,
            advertisement.rssi,
            tuple(dict.fromkeys((*before.services, *advertisement.services)))[:_MAX_PARTS],
            _first({**before.manufacturer, **advertisement.manufacturer}),
            _first({**before.service_data, **advertisement.service_data}),
            clean(decoder),
            clean(model),
            encrypts,
            now,
        )
        if is_new or found.what != before.what:
            self._changed[address] = None
        if len(self._found) > MAX_DEVICES:
            gone = next(iter(self._found))
            del self._found[gone]
            self._changed.pop(gone, None)
            self.forgotten += 1

    def changed(self) -> list[Advertiser]:
        """Those that are new since the last call, or of which something else than the signal is."""
        found, self._changed = [self._found[address] for address in self._changed], {}
        return found

    def ranked(self) -> list[Advertiser]:
        """Those with a decoder first, and of these and the others the nearest first."""
        return sorted(self._found.values(), key=lambda each: (not each.decoder, -(each.rssi // _BAND), each.address))


class AirView:
    """What the person at the terminal has chosen."""

    def __init__(self) -> None:
        self.chosen: str | None = None
        """An address; None until somebody chooses one."""
        self.top = 0
        """The first row on the screen."""

    def place(self, rows: Sequence[Advertiser]) -> int:
        """The place of the chosen device, or the first one."""
        return next((place for place, each in enumerate(rows) if each.address == self.chosen), 0)

    def press(self, key: str, rows: Sequence[Advertiser]) -> bool:
        """Do what a key asks for. Returns whether to quit."""
        if key in STEPS and rows:
            self.chosen = rows[min(max(self.place(rows) + STEPS[key], 0), len(rows) - 1)].address
        return key in ("q", "ctrl-c")


def screen(
    rows: Sequence[Advertiser],
    view: AirView,
    size: tuple[int, int],
    now: float,
    clock: str,
    forgotten: int = 0,
    hint: str = "",
) -> list[Line]:
    """The whole screen: at most as many lines as the terminal has.

    Args:
        rows: in their order.
        size: columns and lines.
        now: as in `Advertisers.hear`.
        clock: what a clock on the wall shows.
        forgotten: how many devices are remembered no more.
        hint: beside the keys.
    """
    width, height = size
    place = view.place(rows)
    pane: list[Line] = [[(line, "")] for line in rows[place].settings] if rows else []
    room = max(1, height - len(pane) - 4)
    view.top = max(min(view.top, place), place - room + 1)
    shown = rows[view.top : view.top + room]
    widths = (max([_ADDRESS, *(len(each.address) + 1 for each in shown)]), _NAME[width >= _WIDE], _SIGNAL, _DECODER)
    titles = map(column, ("address", "name", "signal", "decoder"), widths)
    body = [_row(each, widths, now, chosen=each is rows[place]) for each in shown] or [[(EMPTY_TEXT, "dim")]]
    blank: list[Line] = [[] for _ in range(room - len(body) + 1)]
    count = f"  {count_noun(len(rows), 'device')}, {sum(bool(each.decoder) for each in rows)} recognised"
    count += f", {forgotten} forgotten" if forgotten else ""
    head = [(TITLE, "bold"), (column(count, width - len(TITLE) - len(clock)), ""), (clock, "dim")]
    lines = [
        head,
        [(f"  {''.join(titles)}advertises", "dim")],
        *body,
        *blank,
        *pane,
        [(f"{KEYS}  {hint}".rstrip(), "dim")],
    ]
    return [cut(line, width) for line in lines[:height]]


def line_of(each: Advertiser) -> str:
    """A device in one line."""
    parts = (each.address, f"{each.rssi} dBm", each.name or "–", each.recognised or "–", each.advertises or "–")
    return "  ".join((*parts, "encrypted") if each.encrypts else parts)


def _row(each: Advertiser, widths: Sequence[int], now: float, *, chosen: bool) -> Line:
    style = "dim" if now - each.heard > GREY_SECONDS else "green" if each.decoder else ""
    texts = (each.address, each.name, f"{each.rssi} dBm", each.recognised)
    return [("> " if chosen else "  ", "bold"), ("".join(map(column, texts, widths)) + each.advertises, style)]


def _first(parts: Mapping[_K, bytes]) -> dict[_K, bytes]:
    """As many parts as are remembered."""
    return {key: value[:_MAX_DATA_BYTES] for key, value in list(parts.items())[:_MAX_PARTS]}
