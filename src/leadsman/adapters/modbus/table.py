"""The meaning of the registers of a device: names, types, scales and units, in code or in a TOML file; and which
requests read them. Pure, but for reading the file."""

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from leadsman.adapters.modbus.pdu import ADDRESSES, BITS, KINDS, MAX_BITS, MAX_REGISTERS, Kind, nouns, unpacked
from leadsman.core.readings.sensor import Sensor
from leadsman.core.settings.documents import read_text, toml_document
from leadsman.core.text import clean, join_words
from leadsman.core.text.suggestion import suggestion
from leadsman.core.value import Value
from leadsman.errors import (
    ConfigurationError,
    InvalidType,
    InvalidValue,
    PayloadError,
    collect,
    labelled,
    raise_together,
)

RegisterValue = bool | int | float | str | None
"""The value of a register; None where the device has no value for it."""

_FORMATS = {
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
"""Types of numbers, as `struct` calls them."""
TYPES = (*_FORMATS, "string", "bool")
"""Types of registers, and of coils and discrete inputs, which are ``bool``."""
MAX_NUMBER_BITS = 128
"""Bits of a number that may be written before it is scaled."""
_FLOATS = ("float32", "float64")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_SENSOR_KEYS = ("unit", "device_class", "state_class", "precision", "icon", "category", "name")
"""Keys of a register in a file that are those of a `Sensor`."""
_REGISTER_KEYS = (
    "address",
    "type",
    "kind",
    "scale",
    "word_order",
    "byte_order",
    "length",
    "bits",
    "absent",
    "optional",
)
_SHARED_KEYS = ("kind", "type", "word_order", "byte_order", "optional")
"""Keys of a file that stand for all of its registers, unless one has its own."""
_TABLE_KEYS = ("name", "source", "gap", "most", *_SHARED_KEYS, "registers")
_ORDERS = ("big", "little")


class Register(Value):
    """One value of a device: a register, several that belong together, some bits of one, or a coil.

    Args:
        address: of the first register, 0 to 65535, as it is sent: 0 where a manual calls it 30001 or 40001.
        type: one of `TYPES`; None is ``uint16``, or ``bool`` for a coil and a discrete input.
        kind: ``holding``, ``input``, ``coil`` or ``discrete``.
        scale: the value is what the register holds, times this.
        word_order: ``big`` if the highest word of several comes first, else ``little``.
        byte_order: ``big`` if the high byte of each word comes first, as the protocol demands; ``little`` for a device
            that swaps them.
        length: registers of a string, which has two characters in each.
        bits: of an unsigned number. 3 is the bit 3 alone, as a boolean; (4, 6) are the bits 4 to 6, as a number. Bit 0
            is the lowest.
        absent: what the register holds, before it is scaled, where the device has no value; the value is None then. So
            is a float that is not finite. Of a signed number, 0x8000 and -32768 are the same.
        optional: whether devices may lack it, such as other models or versions of the firmware. `Modbus.read` gives
            None then, instead of an error.
        sensor: what the value is, for discovery.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = (
        "absent",
        "address",
        "bits",
        "byte_order",
        "kind",
        "length",
        "optional",
        "scale",
        "sensor",
        "type",
        "word_order",
    )
    address: int
    type: str
    kind: Kind
    scale: float
    word_order: str
    byte_order: str
    length: int
    bits: int | tuple[int, int] | None
    absent: int | None
    optional: bool
    sensor: Sensor | None

    def __init__(
        self,
        address: int,
        type: str | None = None,  # noqa: A002  # the word of the file, too
        *,
        kind: Kind = "holding",
        scale: float = 1,
        word_order: str = "big",
        byte_order: str = "big",
        length: int = 1,
        bits: int | tuple[int, int] | None = None,
        absent: int | None = None,
        optional: bool = False,
        sensor: Sensor | None = None,
    ) -> None:
        _one_of("kind", kind, KINDS)
        is_bit = kind in BITS
        held = ("bool" if is_bit else "uint16") if type is None else type
        _one_of("type", held, TYPES)
        _one_of("word_order", word_order, _ORDERS)
        _one_of("byte_order", byte_order, _ORDERS)
        if is_bit != (held == "bool"):
            raise InvalidValue(f"type is {held!r} and kind is {kind!r}; coils and discrete inputs are bool, others not")
        for what, number in (("address", address), ("length", length)):
            if not _is_whole(number):
                raise InvalidType(f"{what} is {number!r}; write a whole number")
        if not 1 <= length <= MAX_REGISTERS or (length > 1 and held != "string"):
            raise InvalidValue(f"length is {length}; write 1 to {MAX_REGISTERS}, and only for a string")
        if isinstance(scale, bool) or not isinstance(scale, int | float):
            raise InvalidType(f"scale is {scale!r}; write a number")
        if not math.isfinite(scale) or scale == 0 or (scale != 1 and held not in _FORMATS):
            raise InvalidValue(f"scale is {scale!r}; write a number that is not 0, and only for numbers")
        if absent is not None and not _is_whole(absent):
            raise InvalidType(f"absent is {absent!r}; write a whole number")
        if absent is not None and (held not in _FORMATS or held in _FLOATS or bits is not None):
            raise InvalidValue("absent is for whole numbers; of a float, NaN is no value anyway")
        if not isinstance(optional, bool):
            raise InvalidType(f"optional is {optional!r}; write True or False")
        if sensor is not None and not isinstance(sensor, Sensor):
            raise InvalidType(f"sensor is {sensor!r}; write Sensor(…)")
        bits = _bits(bits, held, scale)
        self._hold(address=address, type=held, kind=kind, scale=scale, word_order=word_order, byte_order=byte_order)
        self._hold(length=length, bits=bits, absent=absent, optional=optional, sensor=sensor)
        if absent is not None and not -(1 << 16 * self.size - 1) <= absent < 1 << 16 * self.size:
            raise InvalidValue(f"absent is {absent}; a register of the type {held} never holds that")
        if not 0 <= address <= ADDRESSES - self.size:
            raise InvalidValue(
                f"address is {address}; write 0 to {ADDRESSES - self.size}, as it is sent: 0 where a manual calls it "
                "30001 or 40001"
            )

    @property
    def size(self) -> int:
        """Registers, or bits of a coil."""
        return struct.calcsize(f">{_FORMATS[self.type]}") // 2 if self.type in _FORMATS else self.length

    @property
    def value_type(self) -> object:
        """The type of its values, with its sensor."""
        kind: type = float if self.type in _FLOATS or not float(self.scale).is_integer() else int
        if self.type in ("bool", "string"):
            kind = bool if self.type == "bool" else str
        elif isinstance(self.bits, int):
            kind = bool
        nothing = self.optional or self.absent is not None or self.type in _FLOATS
        given: object = kind | None if nothing else kind
        return given if self.sensor is None else Annotated[given, self.sensor]

    def decode(self, data: bytes) -> RegisterValue:
        """The value of `data`, which has two bytes for each register, in the order in which they are sent. A coil is
        one byte.

        Raises:
            struct.error: `data` has another length.
        """
        if self.type == "bool":
            return data != b"\0"
        words = self._order(data)
        if self.type == "string":
            return words.split(b"\0")[0].decode("latin-1").strip()
        (number,) = struct.unpack(f">{_FORMATS[self.type]}", words)
        if not math.isfinite(number):
            return None
        if self.absent is not None and (number - self.absent) % (1 << 16 * self.size) == 0:
            return None
        if self.bits is not None:
            return _of_bits(number, self.bits)
        if self.type == "float32":
            number = _shortest(number)
        if self.scale == 1:
            return number  # type: ignore[no-any-return]  # struct has no types
        scaled = Decimal(str(self.scale)) * Decimal(str(number))
        if self.type not in _FLOATS and float(self.scale).is_integer():
            return int(scaled)
        return float(scaled) if math.isfinite(float(scaled)) else None

    def encode(self, value: object) -> bytes:
        """The bytes of a value, as `decode` takes them.

        Raises:
            PayloadError: the register cannot hold it.
            InvalidValue: some bits of a register are never written.
        """
        if self.bits is not None:
            raise InvalidValue("some bits of a register are not written; write a register of its own for the whole")
        if self.type == "bool":
            if not isinstance(value, bool):
                raise PayloadError(f"{value!r} is no boolean; write true or false")
            return b"\1" if value else b"\0"
        if self.type == "string":
            return self._order(_text(value, 2 * self.length))
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise PayloadError(f"{value!r} is no number")
        if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
            raise PayloadError(f"a number of {value.bit_length()} bits does not fit a register of the type {self.type}")
        number: float | Decimal = Decimal(str(value)) / Decimal(str(self.scale)) if self.scale != 1 else value
        try:
            whole = float(number) if self.type in _FLOATS else round(number)
            if not _is_finite(whole):
                raise OverflowError
            return self._order(struct.pack(f">{_FORMATS[self.type]}", whole))
        except (struct.error, OverflowError):
            raise PayloadError(f"{value!r} does not fit a register of the type {self.type}") from None

    def _order(self, data: bytes) -> bytes:
        """The bytes of `data` from the highest to the lowest, or back."""
        if self.word_order != self.byte_order:  # swapping each word, and then all bytes, swaps the words
            data = b"".join(data[at : at + 2][::-1] for at in range(0, len(data), 2))
        return data if self.word_order == "big" else data[::-1]


class Block(NamedTuple):
    """Registers that one request reads."""

    kind: Kind
    first: int
    size: int
    names: tuple[str, ...]
    """Of the table; what lies between them is read as well, and ignored."""


class Table(Value):
    """The registers of a device by name.

    Args:
        registers: by name: a letter, then letters, digits and ``_``; at most 64.
        name: of the device, for people.
        gap: how many addresses that the table does not name may be read along, to save a request. A device may refuse a
            request for addresses that it does not have, so 0 is the default.
        most: registers in one request, 1 to 125; some devices take less than the protocol.

    Raises:
        InvalidValue, InvalidType: at construction; also if registers overlap, unless they are bits of one register.
    """

    __slots__ = ("gap", "most", "name", "registers")
    registers: dict[str, Register]
    name: str
    gap: int
    most: int

    def __init__(
        self, registers: Mapping[str, Register], *, name: str = "", gap: int = 0, most: int = MAX_REGISTERS
    ) -> None:
        if not isinstance(registers, Mapping):
            raise InvalidType(f"registers is {registers!r}; write a mapping of names to Register(…)")
        if not registers:
            raise InvalidValue("the table has no registers; write at least one")
        if not isinstance(name, str):
            raise InvalidType(f"name is {name!r}; write text")
        for what, number, lowest, highest in (("gap", gap, 0, MAX_REGISTERS), ("most", most, 1, MAX_REGISTERS)):
            if not _is_whole(number):
                raise InvalidType(f"{what} is {number!r}; write a whole number")
            if not lowest <= number <= highest:
                raise InvalidValue(f"{what} is {number}; write {lowest} to {highest}")
        faults: list[ConfigurationError] = []
        for key, register in registers.items():
            with collect(faults):
                _check_entry(key, register, most)
        raise_together(faults)
        self._hold(registers=dict(registers), name=name, gap=gap, most=most)
        for kind in KINDS:
            _check_overlaps(self._sort(kind, registers))

    def __hash__(self) -> int:
        return hash((tuple(self.registers.items()), self.name, self.gap, self.most))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a table from a TOML file. `docs/how-to/modbus.md` has its keys.

        Raises:
            SettingsError: the file cannot be read, or is no TOML.
            ConfigurationError: something in it is wrong; one line for each fault, with the name of the register.
        """
        path = Path(path)
        values = toml_document(path, read_text(path)).values
        faults: list[ConfigurationError] = []
        for key in values:
            if key not in _TABLE_KEYS:
                faults.append(InvalidValue(f"{path}: there is no key {clean(key)!r}; {suggestion(key, _TABLE_KEYS)}"))
        entries = values.get("registers", {})
        if not isinstance(entries, dict):
            raise InvalidType(f"{path}: registers is {entries!r}; write [registers.volts] and its keys below")
        shared = {key: values[key] for key in _SHARED_KEYS if key in values}
        registers: dict[str, Register] = {}
        for key, entry in entries.items():
            with collect(faults), labelled(f"{path}: {clean(key)}"):
                registers[key] = _register(entry, shared)
        raise_together(faults)
        options = {key: values[key] for key in ("name", "gap", "most") if key in values}
        make: Callable[..., Self] = cls  # which checks what it is given
        with labelled(str(path)):
            return make(registers, **options)

    @property
    def reading(self) -> type:
        """The type of a reading with all values, for the annotation of a handler: discovery, the schema and the checks
        of each reading are made of it."""
        import typing_extensions  # the TypedDict of `typing` is not enough for pydantic before Python 3.12

        fields = {name: register.value_type for name, register in self.registers.items()}
        make = vars(typing_extensions)["TypedDict"]  # mypy takes one only if its fields stand in the text
        reading: type = make(re.sub(r"\W", "", self.name) or "Reading", fields)
        return reading

    def pick(self, names: Iterable[str]) -> dict[str, Register]:
        """Some registers.

        Raises:
            InvalidValue: one does not exist. The message has the nearest name.
            InvalidType: they are one text.
        """
        if isinstance(names, str):
            raise InvalidType(f"names is {clean(names)!r}; write a list of names")
        chosen = {}
        for name in names:
            if name not in self.registers:
                raise InvalidValue(
                    f"the table has no register {clean(str(name))!r}; {suggestion(str(name), self.registers)}"
                )
            chosen[name] = self.registers[name]
        return chosen

    def blocks(self, names: Iterable[str] | None = None) -> tuple[Block, ...]:
        """The fewest requests that read these registers, or all: within `most` and `gap`, and no value is split.
        Raises `InvalidValue`, as `pick`."""
        chosen = self.registers if names is None else self.pick(names)
        found: list[Block] = []
        for kind in KINDS:
            most = MAX_BITS if kind in BITS else self.most
            for name, register in self._sort(kind, chosen):
                end = register.address + register.size
                last = found[-1] if found and found[-1].kind == kind else None
                if last and register.address <= last.first + last.size + self.gap and end - last.first <= most:
                    size = max(last.size, end - last.first)
                    found[-1] = Block(kind, last.first, size, (*last.names, name))
                else:
                    found.append(Block(kind, register.address, register.size, (name,)))
        return tuple(found)

    def split(self, block: Block) -> tuple[Block, ...]:
        """The requests to make instead of one that a device refuses: those for what it must have and for what is
        optional, if the block has both; else those for either half. Empty if it reads one address alone, or one
        value."""
        needed = [name for name in block.names if not self.registers[name].optional]
        if 0 < len(needed) < len(block.names):
            halves = [needed, [name for name in block.names if name not in needed]]
        else:
            addresses = sorted({self.registers[name].address for name in block.names})
            if len(addresses) == 1:
                return ()
            middle = addresses[len(addresses) // 2]
            halves = [[], []]
            for name in block.names:
                halves[self.registers[name].address >= middle].append(name)
        return tuple(part for half in halves for part in self.blocks(half))

    def decode(self, block: Block, data: bytes) -> dict[str, RegisterValue]:
        """The values of what a request read."""
        found: dict[str, RegisterValue] = {}
        bits = unpacked(data, block.size) if block.kind in BITS else ()
        for name in block.names:
            register = self.registers[name]
            at = register.address - block.first
            found[name] = bits[at] if bits else register.decode(data[2 * at : 2 * (at + register.size)])
        return found

    @staticmethod
    def _sort(kind: Kind, registers: Mapping[str, Register]) -> list[tuple[str, Register]]:
        chosen = [(name, register) for name, register in registers.items() if register.kind == kind]
        return sorted(chosen, key=lambda each: each[1].address)


def _register(entry: object, shared: Mapping[str, object]) -> Register:
    if not isinstance(entry, dict):
        raise InvalidType(f"it is {entry!r}; write its address and type below it")
    values: dict[str, object] = {**shared, **entry}
    known = (*_REGISTER_KEYS, *_SENSOR_KEYS)
    for key in values:
        if key not in known:
            raise InvalidValue(f"there is no key {clean(key)!r}; {suggestion(key, known)}")
    if "address" not in values:
        raise InvalidValue("it has no address; write address = 0, as it is sent")
    if values.get("kind") in BITS and "type" not in entry:
        values.pop("type", None)  # that of the whole table is for registers
    bits = values.get("bits")
    if isinstance(bits, list):
        values["bits"] = tuple(bits)
    sensor = {key: values.pop(key) for key in _SENSOR_KEYS if key in values}
    described: Callable[..., Sensor] = Sensor
    make: Callable[..., Register] = Register  # both check what they are given
    return make(**values, sensor=described(**sensor) if sensor else None)


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise InvalidType(f"{what} is {value!r}; write one of {', '.join(known)}")
    if value not in known:
        raise InvalidValue(f"{what} is {clean(value)!r}; {suggestion(value, known)}")


def _bits(bits: object, held: str, scale: float) -> int | tuple[int, int] | None:
    if bits is None:
        return None
    pair = (bits, bits) if isinstance(bits, int) else bits
    if not isinstance(pair, tuple) or [*map(_is_whole, pair)] != [True, True]:
        raise InvalidType(f"bits is {bits!r}; write the number of one bit, or the first and the last of several")
    low, high = pair
    if not held.startswith("uint") or scale != 1:
        raise InvalidValue(f"bits is {bits!r} and type is {held!r}; bits are of an unsigned number without a scale")
    width = 8 * struct.calcsize(f">{_FORMATS[held]}")
    if not 0 <= low <= high < width:
        raise InvalidValue(f"bits is {bits!r}; write 0 to {width - 1}, the lower number first")
    return low if isinstance(bits, int) else (low, high)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def _of_bits(number: int, bits: int | tuple[int, int]) -> bool | int:
    if isinstance(bits, int):
        return bool(number >> bits & 1)
    low, high = bits
    return number >> low & (1 << (high - low + 1)) - 1


def _shortest(number: float) -> float:
    """The shortest decimal that is this single-precision float: 230.1 instead of 230.10000610351562."""
    packed = struct.pack(">f", number)
    for digits in range(6, 9):
        short = float(f"{number:.{digits}g}")
        if abs(short) <= _MAX_FLOAT32 and struct.pack(">f", short) == packed:
            return short
    return float(f"{number:.9g}")  # nine digits always do


_MAX_FLOAT32 = 3.4028234663852886e38
"""Of single precision (IEEE 754)."""


def _text(value: object, size: int) -> bytes:
    if not isinstance(value, str):
        raise PayloadError(f"{value!r} is no text")
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:
        raise PayloadError(f"{value!r} has characters that a register cannot hold") from None
    if len(data) > size:
        raise PayloadError(f"{value!r} has {len(data)} characters; the registers hold {size}")
    return data.ljust(size, b"\0")


def _check_entry(name: object, register: object, most: int) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidValue(f"a register is called {name!r}; write a letter, then letters, digits and _, at most 64")
    if not isinstance(register, Register):
        raise InvalidType(f"{name} is {register!r}; write Register(…)")
    if register.kind not in BITS and register.size > most:
        raise InvalidValue(f"{name} has {register.size} registers, and most is {most}; write a larger most")


def _check_overlaps(ordered: list[tuple[str, Register]]) -> None:
    """Two values must not share an address, unless they are different bits of one register."""
    open_until: tuple[int, str] = (0, "")
    at: dict[int, list[tuple[str, Register]]] = {}
    for name, register in ordered:
        sharing = at.setdefault(register.address, [])
        for other, there in sharing:
            if not _apart(register, there):
                raise _overlap(name, other, register)
        if not sharing and register.address < open_until[0]:
            raise _overlap(name, open_until[1], register)
        sharing.append((name, register))
        open_until = max(open_until, (register.address + register.size, name))


def _apart(one: Register, other: Register) -> bool:
    if one.bits is None or other.bits is None or _layout(one) != _layout(other):
        return False
    (low, high), (first, last) = (each if isinstance(each, tuple) else (each, each) for each in (one.bits, other.bits))
    return high < first or last < low


def _layout(register: Register) -> tuple[str, str, str]:
    return register.type, register.word_order, register.byte_order


def _overlap(name: str, other: str, register: Register) -> InvalidValue:
    return InvalidValue(
        f"{join_words(sorted((name, other)))} overlap: both have {nouns(register.kind)[:-1]} {register.address}; "
        "check their addresses and types, or give each its bits"
    )
