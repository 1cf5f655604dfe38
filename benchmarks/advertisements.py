"""What decoding costs: 2,000 advertisements a second through the radio of a twin, from more addresses than are kept."""

import asyncio
import contextlib
import gc
import random
import statistics
import time
from collections.abc import Iterator

import psutil

from benchmarks.rows import NONE, Row, note
from leadsman.adapters.ble import Advertisement, Decoders
from leadsman.adapters.ble.decoders import MAX_SENSORS, load
from leadsman.testing import BleTwin

RATE, BURST, SECONDS = 2000, 200, 10
OTHERS = 50_000
_RUUVI = bytes.fromhex("0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F")
_BTHOME = "0000fcd2-0000-1000-8000-00805f9b34fb"
_DICE = random.Random(1)


def sensors(first: int, number: int) -> Iterator[Advertisement]:
    """Of three makes in turn, each with an address of its own."""
    for each in range(first, first + number):
        name, manufacturer, service_data = [
            (
                "GVH5075_1234",
                {0xEC88: b"\x00" + _DICE.randrange(200_000, 290_000).to_bytes(3, "big") + b"\x64\x00"},
                {},
            ),
            (None, {0x0499: _RUUVI}, {}),
            (None, {}, {_BTHOME: b"\x40\x02" + _DICE.randbytes(2) + b"\x03\x26\x17"}),
        ][each % 3]
        yield Advertisement(_address(each), name, -60, (), manufacturer, service_data)


def phones(first: int, number: int) -> Iterator[Advertisement]:
    """Of devices that no decoder knows, each with an address of its own."""
    for each in range(first, first + number):
        yield Advertisement(_address(each), None, -80, (), {0x004C: _DICE.randbytes(20)}, {})


def _address(number: int) -> str:
    return ":".join(f"{byte:02X}" for byte in number.to_bytes(6, "big"))


async def share_of_a_core() -> float:
    """The CPU of what hears and decodes at `RATE`, half of it sensors. The time of this side is small beside it."""
    heard = [*sensors(0, RATE * SECONDS // 2), *phones(1 << 40, RATE * SECONDS // 2)]
    _DICE.shuffle(heard)
    decoded = 0

    async def listen(radio: BleTwin, decoders: Decoders) -> None:
        nonlocal decoded
        async with contextlib.aclosing(decoders.measurements(radio)) as measurements:
            async for _ in measurements:
                decoded += 1

    async with BleTwin() as radio, Decoders() as decoders:
        listening = asyncio.create_task(listen(radio, decoders))
        await asyncio.sleep(1)
        cpu = time.process_time()
        for at in range(0, len(heard), BURST):
            for each in heard[at : at + BURST]:
                radio._scanner._on_advertisement(each, None)
            await asyncio.sleep(BURST / RATE)
        cpu = time.process_time() - cpu
        listening.cancel()
    assert decoded == RATE * SECONDS // 2, f"{decoded} were decoded"
    return cpu / SECONDS


def memory() -> tuple[float, float, int]:
    """MiB for as many sensors as are kept; what as many others and `OTHERS` more devices add; and the sensors kept."""
    decoders, process = Decoders(), psutil.Process()
    gc.collect()
    steps = [process.memory_info().rss]
    for group in ((sensors(0, MAX_SENSORS),), (sensors(1 << 32, MAX_SENSORS), phones(1 << 40, OTHERS))):
        for each in (each for part in group for each in part):
            decoders.decode(each, 1.0)
        gc.collect()
        steps.append(process.memory_info().rss)
    return (steps[1] - steps[0]) / 2**20, (steps[2] - steps[1]) / 2**20, int(str(decoders.health["sensors"]))


def advertisements(times: int) -> list[Row]:
    note("advertisements")
    before = time.process_time()
    load()
    imported = time.process_time() - before
    full, more, kept = memory()
    share = statistics.median(asyncio.run(share_of_a_core()) for _ in range(times))
    return [
        Row("decoders: import, CPU", NONE, f"{imported * 1e3:.0f} ms"),
        Row(f"{RATE:,} advertisements a second, half of sensors: CPU", NONE, f"{share:.1%}", wanted="≤ 50 %"),
        Row(f"… memory of {kept:,} sensors", NONE, f"{full:.0f} MiB", wanted="≤ 100 MiB"),
        Row("… as many other sensors and 50,000 devices more", NONE, f"+{more:.1f} MiB", wanted="≤ 10 MiB"),
    ]
