"""What a file of SML says, read by pysml."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.serial.framing import Stream
from leadsman.adapters.serial.metering import SmlFramer
from leadsman.adapters.serial.sml import SmlMeter, values_of
from leadsman.errors import GarbledData, InvalidType
from leadsman.testing import SerialTwin
from leadsman_rigs.sml_files import VOLT, WATT, WATT_HOUR, content_of, entry, file_of

ENTRIES = [
    entry("1-0:1.8.0*255", 52_185_782, WATT_HOUR, -1),
    entry("1-0:16.7.0*255", -1234, WATT, 0, 4),
    entry("1-0:32.7.0*255", 2301, VOLT, -1, 2),
    entry("1-0:96.5.0*255", 0x001C8104, None, 0, 4),
    entry("1-0:2.8.0*255", 3, WATT_HOUR, 2, 1),
]
VALUES = [
    ("1-0:1.8.0*255", 5_218_578.2, "Wh"),
    ("1-0:16.7.0*255", -1234, "W"),
    ("1-0:32.7.0*255", 230.1, "V"),
    ("1-0:96.5.0*255", 0x001C8104, None),
    ("1-0:2.8.0*255", 300, "Wh"),
]


def test_each_value_has_its_code_and_its_unit():
    (file,) = Stream(SmlFramer()).feed(file_of(content_of(*ENTRIES)))

    assert values_of(file) == VALUES


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=8))
def test_whatever_number_a_meter_says_it_is_read(given_):
    entries = [entry(f"1-0:{code}.7.0*255", value, WATT, 0, 4) for code, value in given_]
    (file,) = Stream(SmlFramer()).feed(file_of(content_of(*entries)))

    assert values_of(file) == [(f"1-0:{code}.7.0*255", value, "W") for code, value in given_]


@given(st.one_of(st.binary(max_size=60), st.integers(0, 250).map(lambda at: content_of(*ENTRIES)[:at])))
def test_a_file_that_cannot_be_read_is_a_named_error(file):
    found = []
    with contextlib.suppress(GarbledData):
        found = values_of(file)

    assert all(isinstance(each.code, str) for each in found)


def test_a_message_with_a_wrong_checksum_is_a_named_error():
    file = bytearray(content_of(*ENTRIES))
    file[file.index((52_185_782).to_bytes(8, "big"))] ^= 1

    with pytest.raises(GarbledData, match="^a file of SML that cannot be read: SmlParserError: CRC16 mismatch"):
        values_of(bytes(file))


def test_a_meter_gives_the_values_of_each_file_as_it_comes(loop):
    files = iter(range(100))

    async def scenario():
        twin = SerialTwin(
            says=lambda: (2.0, file_of(content_of(entry("1-0:1.8.0*255", next(files), WATT_HOUR)))), framer=SmlFramer()
        )
        found = []
        async with SmlMeter(twin) as meter:
            meter.check_installed()
            async with contextlib.aclosing(meter.files()) as coming:
                async for values in coming:
                    found += values
                    if len(found) == 3:
                        break
            await twin.close()
            await asyncio.sleep(2)  # the twin ends
        return found

    assert loop.run_until_complete(scenario()) == [("1-0:1.8.0*255", number, "Wh") for number in range(3)]


def test_a_port_with_another_framer_is_refused():
    with pytest.raises(InvalidType, match="SmlFramer"):
        SmlMeter(SerialTwin())
