"""How fast adapters are against the real libraries: bleak over a bus with GATT servers in the air, caldav on a server's
reply, pyserial on a pseudo-terminal. The rigs are those of the tests."""

import asyncio
import contextlib
import statistics
import time
from typing import Any

from leadsman.adapters.ble.radio import BleRadio
from leadsman.adapters.caldav.calendar import CalDav
from leadsman.adapters.serial.port import SerialPort
from leadsman.testing import PtyDevice
from leadsman_rigs.bluez import Air, GattServer, Scripted
from leadsman_rigs.dav import Proxy, event, multistatus

WAVE, PLAIN = "F0:11:22:33:44:55", "F0:11:22:33:44:66"
VALUES = {"2a6e": b"\x66\x08", "2a6f": b"\x94\x11", "2a19": b"\x63", "2a6d": b"\xcd\x76\x0f\x00"}
SERIES = 300


def radio(times: int) -> tuple[float, float, float]:
    """Seconds: connect, read four characteristics and hang up; 200 notifications over the air; 2,000 over the bus."""
    with Air() as air:
        server = air.place(GattServer(WAVE, "wave", {"181a": VALUES}))
        peer = air.place(Scripted(PLAIN, "plain", {"181a": VALUES}))

        async def over_the_air() -> None:
            for number in range(200):
                await server.notify("2a6e", number.to_bytes(2, "little"))

        async def over_the_bus() -> None:
            for number in range(2000):
                peer.record.notify("2a6e", number.to_bytes(2, "little"))
                if number % 50 == 49:
                    await air.daemon.settle()

        async def run() -> tuple[float, float, float]:
            async with BleRadio() as radio:
                reads = []
                for _ in range(times):
                    radio._scanner.known.clear()
                    before = time.perf_counter()
                    await radio.read(WAVE, *VALUES)
                    reads.append(time.perf_counter() - before)
                air_time = [await heard(radio, WAVE, 200, over_the_air) for _ in range(times)]
                bus_time = [await heard(radio, PLAIN, 2000, over_the_bus) for _ in range(times)]
            return statistics.median(reads), statistics.median(air_time), statistics.median(bus_time)

        async def heard(radio: BleRadio, address: str, count: int, speak: Any) -> float:
            async with (
                radio.session(address) as device,
                contextlib.aclosing(device.notifications("2a6e")) as notifications,
            ):
                first = asyncio.ensure_future(anext(notifications))
                await asyncio.sleep(0.3)
                before = time.perf_counter()
                speaking = asyncio.run_coroutine_threadsafe(speak(), air.loop)
                found = [await first] + [await anext(notifications) for _ in range(count - 1)]
                assert found == [number.to_bytes(2, "little") for number in range(count)]
                await asyncio.wrap_future(speaking)
                return time.perf_counter() - before

        return asyncio.run(run())


def calendars(times: int) -> tuple[float, float]:
    """Seconds to read 300 weekly series and expand two weeks of them; and the longest time that the loop was
    blocked."""
    lines = "RRULE:FREQ=WEEKLY;COUNT=60"
    texts = [
        event(f"s{n}", f"SUMMARY:{n}", f"DTSTART:2026{1 + n % 9:02d}{1 + n % 28:02d}T100000Z", lines)
        for n in range(SERIES)
    ]

    async def run(url: str) -> tuple[float, float]:
        longest, watching = 0.0, True

        async def watch() -> None:
            nonlocal longest
            while watching:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - before - 0.001)

        taken = []
        async with CalDav(url, "ann", "secret", zone="Europe/Berlin") as calendars:
            await calendars.events("ann/home/")
            watcher = asyncio.create_task(watch())
            for _ in range(times):
                calendars._answers.clear()
                before = time.perf_counter()
                await calendars.events("ann/home/")
                taken.append(time.perf_counter() - before)
            watching = False
            await watcher
        return statistics.median(taken), longest

    with Proxy(0) as proxy:
        proxy.fault = multistatus(*texts).encode()
        return asyncio.run(run(proxy.url))


def replug(times: int) -> float:
    """Seconds from a port that is back to the first message read from it."""

    async def run(device: PtyDevice) -> float:
        async with SerialPort(device.path, 115200, timeout=1.0) as port:
            await port.probe()
            device.unplug()
            with contextlib.suppress(ConnectionError):
                await port.read()
            device.plug()
            before = time.perf_counter()
            reading = asyncio.create_task(port.read())
            while not reading.done():
                await asyncio.sleep(0.01)
                device.send(b"back\n")
            assert await reading == b"back"
            return time.perf_counter() - before

    def once() -> float:
        with PtyDevice() as device:
            return asyncio.run(run(device))

    return statistics.median(once() for _ in range(times))
