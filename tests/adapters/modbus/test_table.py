import math
import re
import struct
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman import Sensor
from leadsman.adapters.modbus import Register, Table
from leadsman.adapters.modbus.table import TYPES, _register
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, PayloadError, SettingsError

WHOLE = {"int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
ORDERS = st.sampled_from(["big", "little"])


@given(st.sampled_from([*WHOLE]), ORDERS, ORDERS, st.data())
def test_a_whole_number_comes_back_as_it_was_written(kind, order, byte_order, data):
    bits = WHOLE[kind]
    low, high = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    number = data.draw(st.integers(low, high))
    register = Register(0, kind, word_order=order, byte_order=byte_order)

    assert register.decode(register.encode(number)) == number
    assert len(register.encode(number)) == 2 * register.size
    for outside in (low - 1, high + 1):
        with pytest.raises(PayloadError, match="does not fit"):
            register.encode(outside)


def digits(number):
    return len(Decimal(repr(number)).normalize().as_tuple().digits)


@example(99999997952.0, "big")
@given(st.floats(width=32, allow_nan=False, allow_infinity=False), ORDERS)
def test_a_float_is_the_shortest_number_that_is_the_same(number, order):
    register = Register(0, "float32", word_order=order)

    found = register.decode(register.encode(number))

    assert struct.pack(">f", found) == struct.pack(">f", number)
    assert digits(found) <= digits(number)


@given(st.floats(allow_nan=False, allow_infinity=False), ORDERS)
def test_a_double_comes_back(number, order):
    register = Register(0, "float64", word_order=order)

    assert register.decode(register.encode(number)) == number


@given(st.integers(-30_000, 30_000), st.sampled_from([0.1, 0.01, 0.5, 10, -1, 1000.0]))
def test_a_scaled_number_is_exact(raw, scale):
    register = Register(0, "int16", scale=scale)

    value = register.decode(struct.pack(">h", raw))

    assert value == pytest.approx(raw * scale)
    assert len(str(abs(value))) <= 9  # 230.1, and not 230.10000000000002
    assert register.encode(value) == struct.pack(">h", raw)


@pytest.mark.parametrize(
    ("register", "data", "value"),
    [
        (Register(0, "uint32"), "0001 0002", 0x10002),
        (Register(0, "uint32", word_order="little"), "0001 0002", 0x20001),
        (Register(0, "int32", scale=0.1, word_order="little"), "08fd 0000", 230.1),
        (Register(0, "float32"), "4366 199a", 230.1),
        (Register(0, "float32", scale=0.001), "4366 199a", 0.2301),
        (Register(0, "float32"), "7fc0 0000", None),
        (Register(0, "float32"), "7f80 0000", None),
        (Register(0, "float64", scale=1e300), "7fe0 0000 0000 0000", None),
        (Register(0, "int16", absent=-32768), "8000", None),
        (Register(0, "int16", absent=0x8000), "8000", None),
        (Register(0, "int32", absent=0xFFFFFFFF, word_order="little"), "ffff ffff", None),
        (Register(0, "int16", absent=0x8000), "7fff", 0x7FFF),
        (Register(0, "uint32", absent=0x7FFFFFFF), "7fff ffff", None),
        (Register(0, "uint16", bits=3), "0008", True),
        (Register(0, "uint16", bits=3), "fff7", False),
        (Register(0, "uint16", bits=(4, 6)), "ffaf", 2),
        (Register(0, "string", length=3), "5344 4d31 3200", "SDM12"),
        (Register(0, "string", length=2, word_order="little"), "4d31 5344", "SDM1"),
        (Register(0, "string", length=4, byte_order="little"), "5a56 4c4c 322d 3031", "VZLL-210"),
        (Register(0, "uint16", byte_order="little"), "fd08", 2301),
        (Register(0, "uint32", byte_order="little"), "0100 0200", 0x10002),
        (Register(0, "uint32", byte_order="little", word_order="little"), "0100 0200", 0x20001),
        (Register(0, "float32", byte_order="little"), "6643 9a19", 230.1),
        (Register(0, "int16", absent=-32768, byte_order="little"), "0080", None),
        (Register(0, "uint16", bits=3, byte_order="little"), "0800", True),
        (Register(0, kind="coil"), "01", True),
    ],
)
def test_a_register_is_decoded(register, data, value):
    found = register.decode(bytes.fromhex(data))

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("register", "value", "error"),
    [
        (Register(0), 1.0e300, PayloadError),
        (Register(0), math.nan, PayloadError),
        (Register(0, "float32"), math.inf, PayloadError),
        (Register(0, "float32"), 1e39, PayloadError),
        (Register(0, "float64", scale=1e-300), 1e300, PayloadError),
        (Register(0), "12", PayloadError),
        (Register(0), True, PayloadError),
        (Register(0), None, PayloadError),
        (Register(0), 2**200, PayloadError),
        (Register(0, "uint16", scale=0.1), -0.1, PayloadError),
        (Register(0, "string", length=1), "abc", PayloadError),
        (Register(0, "string", length=9), "\N{SNOWMAN}", PayloadError),
        (Register(0, "string"), 7, PayloadError),
        (Register(0, kind="coil"), 1, PayloadError),
        (Register(0, bits=1), True, InvalidValue),
    ],
)
def test_a_value_that_a_register_cannot_hold_is_a_named_error(register, value, error):
    with pytest.raises(error):
        register.encode(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": 65536}, "address is 65536; write 0 to 65535, as it is sent: 0 where a manual calls it"),
        ({"address": 65535, "type": "float32"}, "write 0 to 65534"),
        ({"address": -1}, "address is -1"),
        ({"address": "0x10"}, "address is '0x10'; write a whole number"),
        ({"address": True}, "address is True"),
        ({"type": "flaot32"}, "type is 'flaot32'; did you mean 'float32'"),
        ({"type": 7}, "type is 7; write one of int16"),
        ({"kind": "holdin"}, "did you mean 'holding'"),
        ({"kind": 7}, "kind is 7; write one of holding"),
        ({"word_order": "middle"}, "write one of big, little"),
        ({"type": "bool"}, "coils and discrete inputs are bool"),
        ({"kind": "coil", "type": "int16"}, "coils and discrete inputs are bool"),
        ({"length": 2}, "only for a string"),
        ({"type": "string", "length": 126}, "write 1 to 125"),
        ({"scale": 0}, "scale is 0"),
        ({"scale": math.nan}, "scale is nan"),
        ({"scale": "x"}, "scale is 'x'; write a number"),
        ({"type": "string", "scale": 2}, "only for numbers"),
        ({"bits": 16}, "write 0 to 15"),
        ({"bits": (5, 4)}, "the lower number first"),
        ({"bits": (1, 2, 3)}, "write the number of one bit"),
        ({"bits": "3"}, "write the number of one bit"),
        ({"bits": 3, "type": "int16"}, "unsigned"),
        ({"bits": 3, "scale": 2}, "unsigned number without a scale"),
        ({"absent": 1.5}, "absent is 1.5; write a whole number"),
        ({"absent": 1, "type": "float32"}, "absent is for whole numbers"),
        (
            {"absent": 0x7FFFFFFF, "type": "int16"},
            "absent is 2147483647; a register of the type int16 never holds that",
        ),
        ({"absent": -32769, "type": "int16"}, "never holds that"),
        ({"sensor": "V"}, "write Sensor"),
    ],
)
def test_a_wrong_register_is_a_named_error(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Register(**{"address": 0, **arguments})


@pytest.mark.parametrize(
    ("registers", "options", "message"),
    [
        ({"a": Register(0, "float32"), "b": Register(1)}, {}, "a and b overlap: both have holding register 1"),
        ({"a": Register(0), "b": Register(0)}, {}, "a and b overlap"),
        ({"a": Register(0, bits=(0, 3)), "b": Register(0, bits=3)}, {}, "a and b overlap"),
        ({"a": Register(0, "uint32", bits=0), "b": Register(0, bits=1)}, {}, "a and b overlap"),
        ({"a": Register(0, "int64"), "b": Register(2, bits=1), "c": Register(2, bits=2)}, {}, "a and b overlap"),
        ({}, {}, "no registers"),
        ([], {}, "write a mapping"),
        ({"a b": Register(0)}, {}, "called 'a b'"),
        ({"a": 7}, {}, "a is 7; write Register"),
        ({"a": Register(0)}, {"gap": -1}, "gap is -1"),
        ({"a": Register(0)}, {"most": 126}, "most is 126; write 1 to 125"),
        ({"a": Register(0)}, {"most": 1.5}, "most is 1.5"),
        ({"a": Register(0, "float64")}, {"most": 3}, "a has 4 registers, and most is 3"),
    ],
)
def test_a_wrong_table_is_a_named_error(registers, options, message):
    with pytest.raises(ConfigurationError, match=message):
        Table(registers, **options)


def test_bits_of_one_register_and_addresses_of_two_kinds_do_not_overlap():
    table = Table(
        {
            "alarm": Register(0, bits=0),
            "state": Register(0, bits=(1, 3)),
            "input": Register(0, kind="input"),
            "pump": Register(0, kind="coil"),
            "door": Register(0, kind="discrete"),
        }
    )

    blocks = [(block.kind, block.names) for block in table.blocks()]

    assert blocks == [
        ("holding", ("alarm", "state")),
        ("input", ("input",)),
        ("coil", ("pump",)),
        ("discrete", ("door",)),
    ]


@st.composite
def tables(draw):
    at, registers = 0, {}
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.integers(0, 12))
        register = Register(at, draw(st.sampled_from(["uint16", "float32", "int64"])))
        registers[f"r{number}"] = register
        at += register.size
    return Table(registers, gap=draw(st.integers(0, 10)), most=draw(st.integers(4, 20)))


def fewest(table):
    """How many requests are necessary, by trying all ways to divide the registers."""
    ordered = sorted(table.registers.values(), key=lambda each: each.address)

    @lru_cache
    def of(begin):
        if begin == len(ordered):
            return 0
        found = []
        for end in range(begin + 1, len(ordered) + 1):
            part = ordered[begin:end]
            gaps = [b.address - a.address - a.size for a, b in pairwise(part)]
            if part[-1].address + part[-1].size - part[0].address <= table.most and max(gaps, default=0) <= table.gap:
                found.append(1 + of(end))
        return min(found)

    return of(0)


@given(tables())
def test_each_register_is_read_once_in_as_few_requests_as_the_gaps_allow(table):
    blocks = table.blocks()

    assert sorted(name for block in blocks for name in block.names) == sorted(table.registers)
    for block in blocks:
        assert 1 <= block.size <= table.most
        for name in block.names:
            register = table.registers[name]
            assert block.first <= register.address
            assert register.address + register.size <= block.first + block.size
    assert len(blocks) == fewest(table)


def test_a_hundred_registers_that_lie_together_are_one_request_and_250_are_two():
    assert [block.size for block in Table({f"r{n}": Register(n) for n in range(100)}).blocks()] == [100]
    assert [block.size for block in Table({f"r{n}": Register(n) for n in range(250)}).blocks()] == [125, 125]
    floats = Table({f"r{n}": Register(2 * n, "float32") for n in range(100)})
    assert [block.size for block in floats.blocks()] == [124, 76]  # no value is split


def test_some_registers_are_read_alone_and_a_wrong_name_is_named():
    table = Table({"volts": Register(0), "watts": Register(9)}, gap=8)

    assert table.blocks(["watts"])[0][:3] == ("holding", 9, 1)
    with pytest.raises(InvalidValue, match="no register 'wats'; did you mean 'watts'"):
        table.blocks(["wats"])
    with pytest.raises(InvalidType, match="names is 'watts'; write a list of names"):
        table.blocks("watts")


FILE = """
name = "A meter"
source = "its manual"
kind = "input"
type = "float32"
gap = 10
most = 80

[registers.volts]
address = 0x0C
unit = "V"
device_class = "voltage"
precision = 1

[registers.state]
address = 40
kind = "holding"
type = "uint16"
bits = [4, 6]

[registers.pump]
address = 3
kind = "coil"
"""


def test_a_file_is_a_table(tmp_path):
    (tmp_path / "meter.toml").write_text(FILE)

    table = Table.load(tmp_path / "meter.toml")

    assert table == Table(
        {
            "volts": Register(12, "float32", kind="input", sensor=Sensor("V", device_class="voltage", precision=1)),
            "state": Register(40, bits=(4, 6)),
            "pump": Register(3, kind="coil"),
        },
        name="A meter",
        gap=10,
        most=80,
    )
    assert hash(table) == hash(Table.load(str(tmp_path / "meter.toml")))
    hints = get_type_hints(table.reading)
    assert hints == {"volts": float | None, "state": int, "pump": bool}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gap = 1", "no registers"),
        ("registers = 7", r"write \[registers.volts\]"),
        ("[registers]\nvolts = 7", "volts: it is 7; write its address"),
        ("[registers.volts]\nunit = 'V'", "volts: it has no address"),
        ("[registers.volts]\naddress = 0\nscael = 0.1", "volts: there is no key 'scael'; did you mean 'scale'"),
        ("[registers.volts]\naddress = 0\ntype = 'flaot32'", "volts: type is 'flaot32'; did you mean 'float32'"),
        ("[registers.volts]\naddress = 70000", "volts: address is 70000"),
        ("[registers.volts]\naddress = 0\nunit = 'kV'\ndevice_class = 'volage'", "volts: .*voltage"),
        ("[registers.volts]\naddress = 0\nscale = nan", "volts: scale is nan"),
        ("register = 1\n[registers.volts]\naddress = 0", "there is no key 'register'; did you mean 'registers'"),
        ("gap = 'x'\n[registers.volts]\naddress = 0", "gap is 'x'"),
        ("[registers.a]\naddress = 0\n[registers.b]\naddress = 0", "a and b overlap"),
        ("[registers.'a b']\naddress = 0", "called 'a b'"),
        ("[registers.volts\n", "is not TOML"),
        ("name = 7\n[registers.volts]\naddress = 0", "name is 7"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_name_and_that_of_the_register(tmp_path, text, message):
    (tmp_path / "meter.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=message) as raised:
        Table.load(tmp_path / "meter.toml")

    assert "meter.toml" in str(raised.value)


def test_all_faults_of_a_file_are_named_together(tmp_path):
    (tmp_path / "meter.toml").write_text("[registers.a]\naddress = -1\n[registers.b]\naddress = 0\ntype = 'x'")

    with pytest.raises(ConfigurationError) as raised:
        Table.load(tmp_path / "meter.toml")

    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == ["a", "b"]


def test_a_file_that_is_not_there_is_a_named_error(tmp_path):
    with pytest.raises(SettingsError, match=r"cannot be read: .*; correct the path"):
        Table.load(tmp_path / "none.toml")


def test_the_types_are_those_of_the_page():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "modbus.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `type` |")]

    assert {*re.findall("`([a-z]+[0-9]*)`", row)} == {"type", *TYPES}


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=30),
    st.lists(st.integers(0, 20), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([*TYPES, "big", "little", "holding", "coil", "V", "voltage", "measurement"]),
)
WORDS = ["address", "type", "kind", "scale", "word_order", "length", "bits", "absent", "unit", "device_class", "x"]


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6), st.integers(0, 10), st.binary(max_size=16), VALUES)
def test_whatever_stands_in_a_file_is_a_register_or_a_named_error(entry, address, data, value):
    words = {"address": address, **entry}
    try:
        register = _register(words, {})
    except ConfigurationError:
        return

    sent = data.ljust(2 * register.size, b"\0")[: 1 if register.type == "bool" else 2 * register.size]
    found = register.decode(sent)
    assert found is None or isinstance(found, bool | int | float | str)
    assert not isinstance(found, float) or math.isfinite(found)
    try:
        written = register.encode(value)
    except (PayloadError, InvalidValue):
        return
    again = register.decode(written)
    assert again is None or not isinstance(again, float) or math.isfinite(again)


def test_all_four_orders_are_those_that_other_programs_name_by_letters():
    """Telegraf's ABCD, CDAB, BADC and DCBA."""
    orders = {"ABCD": {}, "CDAB": {"word_order": "little"}, "BADC": {"byte_order": "little"}}
    orders["DCBA"] = {"word_order": "little", "byte_order": "little"}
    sent = dict(zip("ABCD", bytes.fromhex("00010002"), strict=True))

    for letters, order in orders.items():
        register = Register(0, "uint32", **order)
        assert register.encode(0x10002) == bytes(sent[each] for each in letters)
        assert register.decode(bytes(sent[each] for each in letters)) == 0x10002


def test_a_register_that_is_optional_may_be_nothing():
    table = Table({"volts": Register(0, optional=True), "pump": Register(0, kind="coil", optional=True)})

    assert get_type_hints(table.reading) == {"volts": int | None, "pump": bool | None}


def test_a_file_says_what_is_optional_and_the_order_of_bytes_for_one_register_or_all(tmp_path):
    path = tmp_path / "meter.toml"
    path.write_text(
        'byte_order = "little"\noptional = true\n[registers.volts]\naddress = 0\noptional = false\n'
        '[registers.watts]\naddress = 1\nbyte_order = "big"\n'
    )

    assert Table.load(path).registers == {
        "volts": Register(0, byte_order="little"),
        "watts": Register(1, optional=True),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optional": 1}, "optional is 1; write True or False"),
        ({"byte_order": "litle"}, "byte_order is 'litle'; did you mean 'little'"),
        ({"byte_order": True}, "byte_order is True; write one of big, little"),
    ],
)
def test_a_wrong_word_of_a_register_is_named(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Register(0, **options)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=30), st.integers(0, 5))
def test_dividing_a_request_ends_at_single_addresses_and_loses_no_name(drawn, gap):
    registers, at = {}, 0
    for number, (skip, optional, bits) in enumerate(drawn):
        at += skip + 1
        names = [f"r{number}_{bit}" for bit in range(3)] if bits else [f"r{number}"]
        registers |= {n: Register(at, bits=b if bits else None, optional=optional) for b, n in enumerate(names)}
    table = Table(registers, gap=gap)
    waiting, ended = [*table.blocks()], []

    while waiting:
        block = waiting.pop()
        parts = table.split(block)
        assert sorted(name for part in parts for name in part.names) == (sorted(block.names) if parts else [])
        waiting.extend(parts)
        ended += [] if parts else [block]

    assert sorted(name for block in ended for name in block.names) == sorted(registers)
    assert all(block.size == 1 for block in ended)
