"""How fast framers are: megabytes and messages per second through `Stream.feed`, in pieces of 512 bytes as a port gives
them."""

import random
import statistics
import time

from leadsman.adapters.modbus.framing import ModbusRtuFramer
from leadsman.adapters.serial.checksums import crc16_arc, crc16_modbus, crc16_x25, sum8
from leadsman.adapters.serial.framing import (
    DelimiterFramer,
    FixedFramer,
    Framer,
    LengthPrefixedFramer,
    LineFramer,
    Stream,
)
from leadsman.adapters.serial.metering import MBusFramer, P1Framer, SmlFramer
from leadsman.adapters.serial.stuffing import CobsFramer, HdlcFramer, SlipFramer, cobs, hdlc, slip

SIZE = 1_000_000
PIECE = 512
PAYLOAD = random.Random(1).randbytes(128)
_MODBUS = b"\x01\x03\x80" + PAYLOAD
_SML = b"\x1b\x1b\x1b\x1b\x01\x01\x01\x01" + PAYLOAD.replace(b"\x1b", b"x") + b"\x1b\x1b\x1b\x1b\x1a\x00"
_TELEGRAM = b"/KMP5 1\r\n\r\n" + b"1-0:1.8.1(05160.303*kWh)\r\n" * 30 + b"!"

PLAIN: list[tuple[str, Framer, bytes]] = [
    ("lines of 26 bytes", LineFramer(), b"000001,temp=21.53,hum=40\r\n"),
    ("delimiters", DelimiterFramer(b"<", b">"), b"<" + b"x" * 126 + b">"),
    ("fixed length", FixedFramer(128, begin=b"\xaa"), b"\xaa" + b"x" * 127),
    ("length prefix", LengthPrefixedFramer(b"\x68"), b"\x68\x7e" + b"x" * 126),
    ("SLIP", SlipFramer(), slip(PAYLOAD)),
    ("COBS", CobsFramer(), cobs(PAYLOAD)),
]
CHECKED: list[tuple[str, Framer, bytes]] = [
    ("HDLC", HdlcFramer(), hdlc(PAYLOAD)),
    ("DSMR P1", P1Framer(), _TELEGRAM + f"{crc16_arc(_TELEGRAM):04X}\r\n".encode()),
    ("SML", SmlFramer(), _SML + crc16_x25(_SML).to_bytes(2, "little")),
    ("M-Bus", MBusFramer(), b"\x68\x80\x80\x68" + PAYLOAD + bytes((sum8(PAYLOAD), 0x16))),
    ("Modbus RTU", ModbusRtuFramer(), _MODBUS + crc16_modbus(_MODBUS).to_bytes(2, "little")),
]


def through(framer: Framer, frame: bytes, times: int) -> tuple[float, float]:
    """Megabytes and messages per second; the median of so many rounds."""
    data, taken = frame * (SIZE // len(frame)), []
    for _ in range(times):
        stream, messages, before = Stream(framer), 0, time.perf_counter()
        for at in range(0, len(data), PIECE):
            messages += len(stream.feed(data[at : at + PIECE]))
        taken.append(time.perf_counter() - before)
        assert messages == SIZE // len(frame)
    middle = statistics.median(taken)
    return len(data) / middle / 1e6, messages / middle
