"""The public API in use. Never run; `make check` type-checks it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated, assert_type

from pydantic import BaseModel

from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    BackoffStrategy,
    Broker,
    Buffer,
    CircuitBreaker,
    Climate,
    Context,
    Cron,
    Delivery,
    Device,
    Every,
    ExponentialBackoff,
    FixedBackoff,
    Light,
    LinearBackoff,
    OnChange,
    RetryRequested,
    Router,
    Sensor,
    execute_with_retry,
    exponential,
    immediate,
    is_a,
    prop,
    retrying,
    sequence,
)
from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.framing import DelimiterFramer, FixedFramer, LengthPrefixedFramer, LineFramer
from leadsman.testing import Harness, Outages, Scripted, SerialTwin, fail, hang


class Room(BaseModel):
    address: int
    every: str = "1m"


class Settings(BaseModel):
    rooms: dict[str, Room] = {}


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    yield


app = App(
    "house",
    version="1.0",
    prefix="home/house",
    mqtt=Broker("broker.lan", 8883, "mqtts", username="ann", password="secret"),
    adapters={"boiler": SerialPort("/dev/boiler", 4800, parity="E"), "meter": SerialPort("socket://gateway:2000")},
    heartbeat="1m",
    instance="a",
    keep_state=True,
    settings=Settings,
    lifespan=lifespan,
)


class Air(BaseModel):
    co2: Annotated[
        int, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement", precision=0, icon="mdi:x")
    ]


@dataclass
class Power:
    watts: float


class Golden:
    def delay(self, attempt: int) -> float:
        return 1.618**attempt


strategy: BackoffStrategy = Golden()


@app.telemetry(
    "boiler",
    interval="5m",
    retry=3,
    retry_on=(OSError, ValueError),
    backoff=ExponentialBackoff("500ms", "1m", factor=3, jitter=0.1),
    circuit_breaker=CircuitBreaker(threshold=3, ignore=KeyError),
    overrun="finish",
    timeout=timedelta(seconds=20),
    publish=OnChange(0.5, fields={"co2": 50}) & Every("1m") | OnChange({"co2": "1 %"}) | Every(n=10),
    delivery=Delivery(qos=1, retain=True, expiry="1h", taken_at="payload", keep="all", history="7d"),
    group="bus",
    spread="10s",
    stale_after="20m",
    throttle="5s",
    request="degrees",
    enabled=True,
)
async def boiler(port: Annotated[SerialPort, "boiler"], degrees: int = 20) -> dict[str, float]:
    reply = await port.request(b"?", timeout="500ms")
    assert_type(reply, bytes)
    return {"flow": float(reply)}


@app.telemetry("air", schedule=Cron("*/10 * * * *", zone="Europe/Berlin", at_start=True), backoff=FixedBackoff("5s"))
def air() -> Air | None:
    return Air(co2=400)


app.add_telemetry("power", lambda: Power(42.0), interval=30, backoff=LinearBackoff(2, 10), timeout=None)
app.add_telemetry("golden", air, schedule="0 * * * *", backoff=strategy)


def devices(settings: Settings) -> dict[str, Device]:
    return {name: Device(room, interval=room.every) for name, room in settings.rooms.items()}


upstairs = Router("upstairs")


@upstairs.telemetry(devices, retry=1)
async def climate(room: Room, settings: Settings, context: Context) -> dict[str, float]:
    context.store["reads"] = context.store.get("reads", 0) + 1
    context.logger.info("%s: attempt %d", context.name, context.attempts)
    context.publish("raw", b"\x00", qos=0, retain=False)
    await context.sleep("1s")
    await context.sleep_until(time(6, 30), "Europe/Berlin")
    return {"address": room.address}


adverts: Buffer[float] = Buffer(100, "drop-newest")


@upstairs.source("radio", stale_after="10m", silence=None, publish=Every("1m"), circuit_breaker=CircuitBreaker(3))
async def radio() -> AsyncIterator[dict[str, float]]:
    async for advert in adverts:
        yield {"t": advert}


@app.command("lamp")
async def lamp(payload: Annotated[Air, Light(on="on", brightness="brightness")]) -> None: ...


@app.command("thermostat")
async def thermostat(payload: Annotated[Air, Climate(target="target", mode="mode", current="celsius")]) -> None: ...


@app.command("boiler", timeout="10s", queue=4, when_full="drop-oldest", group="bus")
async def target(target: Room, port: Annotated[SerialPort, "boiler"]) -> dict[str, int]:
    return {"address": target.address}


@app.periodic("cleanup", schedule="0 3 * * *")
def cleanup() -> None: ...


@app.on_wedged_adapter
async def power_cycle(adapter: str, failures: int) -> None: ...


async def last_known(error: BaseException) -> dict[str, float] | None:
    return {"t": 20.0}


rate_limited = exponential("2s", 3, "5m").jitter(0.1, "add").only_when(prop("status-code") == 429)
app.retry_policy("limited", rate_limited | sequence(["1s", 5], then="stop"), priority=5, predicate=is_a(OSError))


@app.telemetry(
    "forecast",
    interval="1h",
    retry=UNTIL_NEXT_POLL,
    budget="10m",
    within=1800,
    on_failure=last_known,
    circuit_breaker=CircuitBreaker(3, recovery="10m", shared="web"),
)
async def forecast(context: Context) -> dict[str, int]:
    raise RetryRequested(delay="30s", reason="asked too soon")


@app.telemetry("rain", interval="1h", policy=immediate().max_retries(1) >> rate_limited, on_failure="hold")
@retrying("http", max_attempts=3, min_wait="1s")
async def rain() -> dict[str, int]:
    with app.retrying("serial", ["rain"]):
        return await execute_with_retry(forecast, Context, retry="api")


app.include(upstairs)
app.include(upstairs, prefix="east")

SerialPort("/dev/a", framer=LineFramer(b"\r"))
SerialPort("/dev/b", framer=DelimiterFramer(b"/", b"!", trailer=4))
SerialPort("/dev/c", framer=FixedFramer(8, begin=b"\x7e", check=lambda message: message[-1] == 0x7E))
SerialPort("/dev/d", framer=LengthPrefixedFramer(b"\x68", length_size=2, byteorder="little"))


def test_it_with_parts_of_the_test(tmp_path: Path) -> None:
    twin = SerialTwin(lambda request: b"1\n")
    for twins in (True, (twin,), {"boiler": twin}, lambda settings: (twin,)):
        with Harness(app, settings={"port": "x"}, twins=twins, state_directory=tmp_path) as harness:
            assert_type(harness.adapter(SerialPort), SerialPort)
            harness.kill()
    with Harness(app, adapters=(SerialPort("/dev/x"),), environment={"TZ": "UTC"}, dry_run=False) as harness:
        assert_type(harness.adapter(SerialPort, "boiler"), SerialPort)


def test_it() -> None:
    with Harness(app) as harness:
        harness.at("1m", harness.broker.stop)
        harness.run("2h")
        assert harness.states("air")
    app.add_telemetry("script", Scripted(fail(2), hang("1m"), {"t": 1}), interval=1)
    app.add_telemetry("outages", Outages({"t": 1}, [("1m", "2m")]), interval=1)


if __name__ == "__main__":
    app.run()
