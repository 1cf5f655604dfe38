"""The public API in use. Never run; `make check` type-checks it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, assert_type

from pydantic import BaseModel

from leadsman import (
    App,
    BackoffStrategy,
    Broker,
    CircuitBreaker,
    Cron,
    Delivery,
    Every,
    ExponentialBackoff,
    FixedBackoff,
    LinearBackoff,
    OnChange,
)
from leadsman.adapters.framing import DelimiterFramer, FixedFramer, LengthPrefixedFramer, LineFramer
from leadsman.adapters.serial import SerialPort
from leadsman.testing import Harness, Outages, Scripted, fail, hang

app = App(
    "house",
    version="1.0",
    prefix="home/house",
    mqtt=Broker("broker.lan", 8883, "mqtts", username="ann", password="secret"),
    adapters={"boiler": SerialPort("/dev/boiler", 4800, parity="E"), "meter": SerialPort("socket://gateway:2000")},
    heartbeat="1m",
    instance="a",
)


class Air(BaseModel):
    co2: int


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
    circuit_breaker=CircuitBreaker(threshold=3, probes=1, successes=2, ignore=KeyError),
    overrun="finish",
    timeout=timedelta(seconds=20),
    publish=OnChange(0.5, fields={"co2": 50}) & Every("1m") | Every(n=10),
    delivery=Delivery(qos=1, retain=True, expiry="1h", taken_at="payload"),
    group="bus",
    spread="10s",
    stale_after="20m",
    enabled=True,
)
async def boiler(port: Annotated[SerialPort, "boiler"]) -> dict[str, float]:
    reply = await port.request(b"?", timeout="500ms")
    assert_type(reply, bytes)
    return {"flow": float(reply)}


@app.telemetry("air", schedule=Cron("*/10 * * * *", zone="Europe/Berlin", at_start=True), backoff=FixedBackoff("5s"))
def air() -> Air | None:
    return Air(co2=400)


app.add_telemetry("power", lambda: Power(42.0), interval=30, backoff=LinearBackoff(2, 10), timeout=None)
app.add_telemetry("golden", air, schedule="0 * * * *", backoff=strategy)

SerialPort("/dev/a", framer=LineFramer(b"\r"))
SerialPort("/dev/b", framer=DelimiterFramer(b"/", b"!", trailer=4))
SerialPort("/dev/c", framer=FixedFramer(8, begin=b"\x7e", check=lambda message: message[-1] == 0x7E))
SerialPort("/dev/d", framer=LengthPrefixedFramer(b"\x68", length_size=2, byteorder="little"))


def test_it() -> None:
    with Harness(app) as harness:
        harness.at("1m", harness.broker.stop)
        harness.run("2h")
        assert harness.states("air")
    app.add_telemetry("script", Scripted(fail(2), hang("1m"), {"t": 1}), interval=1)
    app.add_telemetry("outages", Outages({"t": 1}, [("1m", "2m")]), interval=1)


if __name__ == "__main__":
    app.run()
