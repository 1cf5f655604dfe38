"""Decodes what sensors advertise, with the parsers that Home Assistant uses, too: one package for each family of
sensors (https://github.com/Bluetooth-Devices). Their import takes half a second, so it is late, and in a thread.
"""

import asyncio
import contextlib
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, SecretStr

from leadsman.adapters.ble import bthome
from leadsman.adapters.ble.advertisement import Advertisement, check_address
from leadsman.adapters.ble.bthome import MAX_PERCENT, SHARES
from leadsman.core.readings.sensor import Sensor
from leadsman.core.text import clean, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, NotInstalled, check_found, missing

if TYPE_CHECKING:
    from bluetooth_sensor_state_data import BluetoothData
    from habluetooth import BluetoothServiceInfoBleak
    from sensor_state_data import DeviceKey, SensorUpdate

    from leadsman.adapters.ble.radio import BleRadio

MAX_SENSORS = 10_000
"""Sensors without a key whose parsers are kept, 4 to 7 kB each; the one that was heard longest ago goes first. Nothing
is kept of other devices."""
RECENT = 600.0
"""Seconds for which `Measurement.recent` has a value: sensors that advertise one value at a time take some minutes for
all of them where few of their packets are heard."""
RELEARN = 60.0
"""Seconds without a new value after which a sensor without a key may be one of another kind: a parser that takes a
device for its own by mistake does not keep it."""
_PARSERS = {
    "bthome": "BTHome",
    "xiaomi": "Xiaomi",
    "govee": "Govee",
    "ruuvitag": "Ruuvitag",
    "inkbird": "INKBIRD",
    "thermopro": "ThermoPro",
    "qingping": "Qingping",
    "sensorpush": "SensorPush",
    "sensirion": "Sensirion",
    "mopeka_iot": "MopekaIOT",
    "moat": "Moat",
    "kegtron": "Kegtron",
    "tilt": "Tilt",
    "bluemaestro": "BlueMaestro",
    "thermobeacon": "ThermoBeacon",
    "rapt": "RAPTPill",
    "oralb": "OralB",
}
"""The prefix of the class of each decoder, in the order in which they are asked. After them is SwitchBot's, whose
package has another form."""
_WITH_KEYS = ("bthome", "xiaomi")
_CLASSES = {"dew_point": "temperature", "mass": "weight", "mass_non_stabilized": "weight"}
"""Device classes that Home Assistant has under another name. It shows one that it does not have without a class."""
_TOTALS = {"energy": "total_increasing", "gas": "total_increasing", "water": "total_increasing", "volume": "total"}
"""State classes of counted quantities (https://www.home-assistant.io/integrations/sensor/#device-class); of any other
number it is ``measurement``."""
_LEFT_OUT = frozenset({"signal_strength", "packet_id"})
"""Values about an advertisement instead of the sensor, different each time."""
_KEY = re.compile(r"[0-9a-fA-F]{24}|[0-9a-fA-F]{32}")

logger = logging.getLogger("leadsman")


def check_bind_key(key: SecretStr) -> SecretStr:
    """Check the bind key of a sensor. Raises `InvalidValue`, without the key, if it has neither 24 nor 32 hexadecimal
    digits."""
    if _KEY.fullmatch(key.get_secret_value()) is None:
        raise InvalidValue("it is no bind key; write its 32 hexadecimal digits (24 for an old Xiaomi sensor)")
    return key


BindKey = Annotated[SecretStr, AfterValidator(check_bind_key)]
"""For settings: the key with which a sensor encrypts its values, checked when the app starts, and shown nowhere."""


Value = float | bool | str | datetime
"""A value that a sensor measures."""


class Recognised(NamedTuple):
    """The source of an advertisement."""

    decoder: str
    """The name of the decoder, such as ``"govee"``."""
    model: str
    """Of the device, such as ``"H5075"``, as the decoder has it: a kind of device where it has no model."""
    encrypts: bool = False
    """Whether the advertisement is encrypted, so that `Decoders` needs the bind key of the device."""


class Measurement(NamedTuple):
    """What a sensor measures, from one advertisement."""

    address: str
    rssi: int
    """dBm."""
    decoder: str
    """The name of the decoder, such as ``"govee"``."""
    model: str
    """Of the sensor, such as ``"H5075"``."""
    title: str
    """For people: the maker, the model and the end of the address."""
    values: Mapping[str, Value]
    """The values in this advertisement."""
    fields: Mapping[str, object]
    """The type of each value that the sensor has advertised, with its `Sensor`, for `Context.device`. The same dict
    while there is no new kind."""
    recent: Mapping[str, Value]
    """The last value of each kind that the sensor has advertised within `RECENT`, as its state: some sensors advertise
    one value at a time."""


def recognise(advertisement: Advertisement) -> Recognised | None:
    """Find the decoder of an advertisement and the model of the device; None if no decoder recognises it. A device
    that encrypts its values is recognised, too. Without the extra ``ble-decoders`` only BTHome is. Never raises.

    The first call imports the decoders, which takes half a second.
    """
    try:
        parsers = load()
    except NotInstalled:
        data = advertisement.service_data.get(bthome.SERVICE, b"")
        is_bthome = bool(data) and data[0] >> 5 == 2
        return Recognised("bthome", "BTHome sensor", bool(data[0] & 1)) if is_bthome else None
    return next(_recognise_each(advertisement, parsers, 0.0), None)


class Decoders:
    """The decoders of an app, beside its radio in ``App(adapters=…)``. They remember 10,000 sensors, and nothing of
    devices without a decoder. What cannot be decoded is counted, and costs the app nothing else.

    Args:
        keys: the bind keys of sensors that encrypt their values (BTHome and Xiaomi), by address; see `BindKey`. None
            is no key.

    Raises:
        InvalidValue, InvalidType: at construction; an address or a key is invalid.
    """

    def __init__(self, keys: Mapping[str, SecretStr | str | None] | None = None) -> None:
        self._keys: dict[str, bytes] = {}
        for address, key in (keys or {}).items():
            if key is None:
                continue
            if not isinstance(key, str | SecretStr):
                raise InvalidType(f"the key of {clean(str(address))} is a {type(key).__name__}; write text")
            secret = check_bind_key(key if isinstance(key, SecretStr) else SecretStr(key))
            self._keys[check_address(address)] = bytes.fromhex(secret.get_secret_value())
        self._sensors: dict[str, _DecodedSensor] = {}
        """Those without a key. The one that was heard last is the last."""
        self._keyed: dict[str, _DecodedSensor] = {}
        """Those with a key in the settings, which nobody on the air can push out: they keep what was sent before."""
        self._counts: Counter[str] = Counter()
        self._lines = others()

    async def __aenter__(self) -> Self:
        """Begin without any sensor."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Forget all sensors."""
        self._sensors.clear()
        self._keyed.clear()

    def check_installed(self) -> None:
        """Check that the decoders are installed. Raises `NotInstalled`."""
        check_found(_WHAT, "bthome-ble", _EXTRA, "bthome_ble")

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: how many sensors are remembered, and how many advertisements there were of each kind:
        ``decoded``; ``unknown``, of other devices; ``empty``, without data; ``no_key`` and ``wrong_key``, encrypted;
        ``unencrypted``, though there is a key; ``repeated``, without a new value, as one that somebody sends again is;
        ``garbled``."""
        return {"sensors": len(self._sensors) + len(self._keyed), **self._counts}

    async def measurements(self, radio: "BleRadio") -> AsyncGenerator[Measurement, None]:
        """Yield what sensors of all makes advertise, as it arrives; for `@app.source`. Raises as
        `BleRadio.advertisements`, and `NotInstalled`."""
        await asyncio.to_thread(load)
        clock = asyncio.get_running_loop().time
        async with contextlib.aclosing(radio.advertisements()) as heard:
            async for advertisement in heard:
                if (measured := self.decode(advertisement, clock())) is not None:
                    yield measured

    def decode(self, advertisement: Advertisement, now: float) -> Measurement | None:
        """Decode one advertisement; None if it has no new value. `now` is monotonic seconds. Never raises because of an
        advertisement. If the decoders are not imported yet, raises `NotInstalled`, or takes half a second."""
        if not advertisement.manufacturer and not advertisement.service_data:
            self._counts["empty"] += 1
            return None
        address = advertisement.address
        sensors = self._keyed if address in self._keys else self._sensors
        sensor = sensors.pop(address, None)
        if sensor is None:
            found = next(_recognise_each(advertisement, load(), now), None)
            if found is None:
                self._counts["unknown"] += 1
                return None
            sensor = _DecodedSensor(found.decoder, self._keys.get(address), now)
        sensors[address] = sensor
        if len(self._sensors) > MAX_SENSORS:
            del self._sensors[next(iter(self._sensors))]
        outcome = sensor.parse(advertisement, now)
        self._counts[outcome] += 1
        if outcome == "decoded":
            return sensor.measurement(advertisement, now)
        if outcome in _ADVICE:
            self._warn(advertisement, outcome, sensor, now)
        elif sensors is self._sensors and now - sensor.fresh_at > RELEARN:
            del sensors[address]
        return None

    def _warn(self, advertisement: Advertisement, outcome: str, sensor: "_DecodedSensor", now: float) -> None:
        """Log once in a while that a sensor cannot be read. Anybody on the air may be the cause."""
        if sensor.warned == outcome:
            return
        subject = advertisement.address if advertisement.address in self._keys else ""
        left_out = self._lines.left_out(subject, now)
        if left_out is not None:
            sensor.warned = outcome
            logger.warning(
                "%s (%s): %s%s",
                advertisement.address,
                clean(sensor.model),
                _ADVICE[outcome],
                left_out_before(left_out),
                extra=log_fields("sensor not decoded", address=advertisement.address, reason=outcome),
            )


_ADVICE = {
    "no_key": "it encrypts its values; write its bind key in the settings",
    "wrong_key": "its bind key in the settings is not the one with which it encrypts; write the right one",
    "unencrypted": "there is a bind key for it, and it does not encrypt; remove the key, unless another device pretends"
    " to be this sensor",
}
_WHAT, _EXTRA = "decoders of Bluetooth sensors", "ble-decoders"


class _DecodedSensor:
    """The parser of one sensor, and what it has found."""

    __slots__ = (
        "_fields",
        "_heard",
        "_key",
        "_last",
        "_new",
        "_parser",
        "_seen",
        "_title",
        "_units",
        "decoder",
        "fresh_at",
        "model",
        "warned",
    )

    def __init__(self, decoder: str, key: bytes | None, now: float) -> None:
        create: Callable[..., BluetoothData] = load()[decoder]
        self._key = key if decoder in _WITH_KEYS else None
        self._parser: BluetoothData = create() if self._key is None else create(bindkey=self._key)
        self._seen: dict[DeviceKey, object] = {}
        """The last value of each kind, as the parser made it: another object is a new value."""
        self._new: dict[str, Value] = {}
        """The values in the last advertisement."""
        self._heard: dict[str, tuple[Value, float]] = {}
        """The last value of each kind, and when it was heard."""
        self._fields: dict[str, object] = {}
        self._units: dict[str, tuple[str | None, type]] = {}
        """The unit and the type of each field: a parser gives one kind in several units under one key."""
        self._last: Mapping[str, bytes] = {}
        """The service data decoded last, of a sensor that encrypts."""
        self.decoder = decoder
        self.model = decoder
        self._title = ""
        self.fresh_at = now
        self.warned: str | None = None

    def parse(self, advertisement: Advertisement, now: float) -> str:
        """Parse an advertisement. Returns the name of its count."""
        parser: Any = self._parser
        if self._key is not None and advertisement.service_data == self._last:
            return "repeated"  # the parser takes the last message once more, within four seconds
        misread = _MISREAD.get(self.decoder)
        if misread is not None and misread(advertisement):
            return "garbled"
        try:
            update = parser.update(service_info(advertisement, now))
            self._new = self._find_new(update)
        except Exception:  # of garbage, parsers raise whatever they stumble over
            self._forget_half_a_packet(advertisement, now)
            return "garbled"
        if self._new:
            self._heard |= {name: (value, now) for name, value in self._new.items()}
            self.fresh_at, self.warned, self._last = now, None, advertisement.service_data
            self._describe(advertisement, update)
            return "decoded"
        if getattr(parser, "downgrade_detected", False):
            return "unencrypted"
        if not _encrypts(parser):
            return "repeated"
        self._describe(advertisement, update)
        return "no_key" if self._key is None else "wrong_key" if parser.decryption_failed else "repeated"

    def measurement(self, advertisement: Advertisement, now: float) -> Measurement:
        """What the last advertisement says, and those before it."""
        address, rssi = advertisement.address, advertisement.rssi
        recent = {name: value for name, (value, at) in self._heard.items() if now - at < RECENT}
        return Measurement(address, rssi, self.decoder, self.model, self._title, dict(self._new), self._fields, recent)

    def _forget_half_a_packet(self, advertisement: Advertisement, now: float) -> None:
        """What a parser has found before it raised is in its next update, and new to nobody then."""
        fields, nothing = self._fields, advertisement._replace(manufacturer={}, service_data={})
        with contextlib.suppress(Exception):
            self._find_new(self._parser.update(service_info(nothing, now)))
        self._fields = fields

    def _find_new(self, update: "SensorUpdate") -> dict[str, Value]:
        """The new values of an update, which has the old ones, too."""
        found: dict[str, Value] = {}
        for values, descriptions in (
            (update.entity_values, update.entity_descriptions),
            (update.binary_entity_values, update.binary_entity_descriptions),
        ):
            for key, value in values.items():
                if key.key in _LEFT_OUT or self._seen.get(key) is value:
                    continue
                self._seen[key] = value
                name, content = _name(key), value.native_value
                known = descriptions.get(key)
                unit = _word(known, "native_unit_of_measurement")
                if _is_unknown(content, unit, _word(known, "device_class")):
                    self._heard.pop(name, None)  # the sensor has just said that it does not know
                    continue
                kind = _kind(content)
                if self._units.setdefault(name, (unit, kind)) != (unit, kind):  # such as a distance in mm, and in m
                    name = f"{name}_{_letters(unit or kind.__name__)}"
                    self._units.setdefault(name, (unit, kind))
                found[name] = content if isinstance(content, int | datetime) else kind(content)
                if name not in self._fields:
                    described = _describe_field(_word(known, "device_class"), unit, kind, value.name)
                    self._fields = {**self._fields, name: described}  # another dict: it is news
        return found

    def _describe(self, advertisement: Advertisement, update: "SensorUpdate") -> None:
        device = update.devices.get(self._parser.primary_device_id)
        if device is not None and device.model:
            self.model = str(device.model)
            maker = device.manufacturer or ""
            end = advertisement.address.replace(":", "")[-4:]
            self._title = " ".join(each for each in (maker, self.model, end) if each)


def _encrypts(parser: object) -> bool:
    """Whether the last advertisement that a parser took was encrypted."""
    scheme = getattr(parser, "encryption_scheme", None)
    return scheme is not None and scheme.value != "none"


def _name(key: "DeviceKey") -> str:
    """The name of a field: letters, digits and underscores."""
    text = str(getattr(key.key, "value", key.key))
    if key.device_id is not None:
        text = f"{text}_{key.device_id}"
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()[:60]
    return name if name[:1].isalpha() else f"value_{name}"


def _is_unknown(content: object, unit: str | None, device_class: str | None) -> bool:
    """Whether a value says that the sensor knows none: a parser of numbers has ``"error"`` for that, too, and a byte of
    nothing but ones is 127 or 255 % of humidity."""
    if isinstance(content, str):
        return unit is not None
    if device_class in SHARES and isinstance(content, int | float) and not 0 <= content <= MAX_PERCENT:
        return True
    return content is None or (isinstance(content, float) and not math.isfinite(content))


def _has_unknown_flags(advertisement: Advertisement) -> bool:
    """Whether BTHome data has flags that nobody knows."""
    return bthome.unknown_flags(advertisement.service_data.get(bthome.SERVICE, b""))


def _has_its_version_as_gravity(advertisement: Advertisement) -> bool:
    """Whether a Tilt sends 999 instead of a temperature: its firmware version is where the gravity is then
    (thorrak/tiltbridge, ``tiltHydrometer.cpp``)."""
    data = advertisement.manufacturer.get(_APPLE, b"")
    return data[:2] == b"\x02\x15" and int.from_bytes(data[18:20], "big") == 999


def _has_another_version(advertisement: Advertisement) -> bool:
    """Whether a RAPT Pill sends another version of its metrics than 1 and 2, whose parser reads each as 2."""
    data = advertisement.manufacturer.get(_RAPT, b"")
    return len(data) == 23 and data[2] not in (1, 2)


_APPLE, _RAPT = 0x004C, 0x4152
"""Company identifiers: of an iBeacon, and the letters RA."""
_MISREAD: Mapping[str, Callable[[Advertisement], bool]] = {
    "bthome": _has_unknown_flags,
    "tilt": _has_its_version_as_gravity,
    "rapt": _has_another_version,
}
"""What a parser reads, although it means something else."""


def _letters(text: str) -> str:
    """What of a text may be in the name of a field."""
    return re.sub(r"\W+", "", text.lower(), flags=re.ASCII) or "other"


def _kind(value: object) -> type:
    """The type of a field."""
    if isinstance(value, bool | datetime):
        return bool if isinstance(value, bool) else datetime
    return str if isinstance(value, str) else float


def _word(description: object, attribute: str) -> str | None:
    """The device class or the unit in a description; the packages have enums for both, and text for those of their
    own."""
    word = getattr(description, attribute, None)
    return None if word is None else str(getattr(word, "value", word)) or None


@lru_cache(maxsize=1024)
def _describe_field(device_class: str | None, unit: str | None, kind: type, title: str | None) -> object:
    """The type of a field with what it measures. A class or a unit that Home Assistant does not have is left out."""
    device_class = _CLASSES.get(device_class or "", device_class)
    category = "diagnostic" if device_class == "battery" else None
    state_class = _TOTALS.get(device_class or "", "measurement") if kind is float else None
    whole = (device_class, unit, state_class)
    for its_class, its_unit, state in (whole, (device_class, unit, None), (None, unit, state_class), (None,) * 3):
        with contextlib.suppress(ConfigurationError):
            sensor = Sensor(its_unit, device_class=its_class, state_class=state, category=category, name=title or None)
            return Annotated[kind, sensor]
    return kind


@cache
def load() -> "Mapping[str, type[BluetoothData]]":
    """Import the decoders that are installed; by name. A package that cannot be had for a machine may be missing.

    Raises:
        NotInstalled: the extra is not installed.
    """
    check_found(_WHAT, "bthome-ble", _EXTRA, "bthome_ble")
    there = {name: word for name, word in _PARSERS.items() if find_spec(f"{name}_ble") is not None}
    try:
        found = {
            name: getattr(import_module(f"{name}_ble"), f"{word}BluetoothDeviceData") for name, word in there.items()
        }
        if find_spec("switchbot") is not None:
            import_module("switchbot")
            found["switchbot"] = import_module("leadsman.adapters.ble.switchbot").SwitchBot
    except ImportError as error:
        raise missing(_WHAT, error.name or "a package", _EXTRA, error) from error
    for name in ("switchbot", *(f"{each}_ble" for each in found)):
        # Anybody on the air could fill the log with warnings of the decoders; the causes are counted here instead.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return found


def _recognise_each(
    advertisement: Advertisement, parsers: "Mapping[str, type[BluetoothData]]", now: float
) -> Iterator[Recognised]:
    """Yield the result of each decoder that recognises an advertisement."""
    for each in _alone(advertisement):
        info = service_info(each, now)
        for name, create in parsers.items():
            parser = create()
            try:
                device = parser.update(info).devices.get(parser.primary_device_id)
            except Exception:  # of garbage, they raise whatever they stumble over
                continue
            if device is not None and device.model:
                yield Recognised(name, device.model, _encrypts(parser))


def _alone(advertisement: Advertisement) -> Iterator[Advertisement]:
    """An advertisement, and then each of its manufacturer data alone: some parsers want the only one."""
    yield advertisement
    if len(advertisement.manufacturer) > 1:
        for each in advertisement.manufacturer.items():
            yield advertisement._replace(manufacturer=dict([each]))


def service_info(advertisement: Advertisement, now: float) -> "BluetoothServiceInfoBleak":
    """An advertisement as the parsers take it. `now` is monotonic seconds."""
    from habluetooth import BluetoothServiceInfoBleak

    heard = advertisement
    bleak_device: Any = None  # only parsers that connect look at it
    return BluetoothServiceInfoBleak(
        heard.name or "",
        heard.address,
        heard.rssi,
        dict(heard.manufacturer),
        dict(heard.service_data),
        list(heard.services),
        "local",
        bleak_device,
        None,
        False,
        now,
        None,
        _raw(heard.manufacturer),
    )


def _raw(manufacturer: Mapping[int, bytes]) -> bytes:
    """The manufacturer data of a packet as it is in the air (Core Specification, Vol 3, Part C, 11). By it the parsers
    learn that all of it is of this packet: else they look for what differs from the packet before."""
    parts = (company.to_bytes(2, "little") + data for company, data in manufacturer.items())
    return b"".join(bytes((len(part) + 1, 0xFF)) + part for part in parts if len(part) < 255)
