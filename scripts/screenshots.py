"""Make the pictures of the page in docs/pictures, with a real app in a real Chromium.

Usage: ``python scripts/screenshots.py``; it takes about two minutes. The app is a small house in which things fail on
purpose. The pictures are never compared: the next ones show other values.
"""

import base64
import math
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from playwright.sync_api import Page
from pydantic import BaseModel, create_model

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, Every, ExponentialBackoff, OnChange, Sensor
from leadsman.errors import DeviceTimeout, GarbledData
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.browser import chromium

TARGET = Path(__file__).parent.parent / "docs" / "pictures"
WARM_UP = 100.0
"""Seconds before the first picture: until the lines are full, something has failed and recovered, and the boiler has
failed again for so long that its circuit is open."""
WIDTHS = {360: 760, 800: 900, 1280: 545}
"""Widths and heights of the screens. The widest one stands in the README, whose first screen it shares with the way to
install: it ends below the first device that is well."""
THEMES = ("light", "dark")
Fields = Mapping[str, tuple[float, float, float]]
"""The middle of each field, how far it swings, and for how many seconds."""
UNITS = {
    "outlet": "°C",
    "return": "°C",
    "bar": "bar",
    "watts": "W",
    "volts": "V",
    "kWh": "kWh",
    "celsius": "°C",
    "humidity": "%",
    "co2": "ppm",
    "rain": "mm",
    "litres": "L",
}


def sensor(fields: Fields, fault: Callable[[float], Exception | None] = lambda _: None) -> Callable[[], object]:
    """A handler whose values swing, and that fails when `fault` says so."""
    began = time.monotonic()
    model = create_model("Reading", **{name: (Annotated[float, Sensor(UNITS[name])], ...) for name in fields})

    async def read() -> BaseModel:
        at = time.monotonic() - began
        if (error := fault(at)) is not None:
            raise error
        values = {
            name: round(middle + swing * (math.sin(at / period) + random.gauss(0, 0.1)), 2)
            for name, (middle, swing, period) in fields.items()
        }
        return model(**values)

    read.__annotations__["return"] = model
    return read


def house(broker: str) -> App:
    """The app of the pictures."""
    app = App("house", version="1.4.2", mqtt=broker)
    add = app.add_telemetry
    silent = DeviceTimeout("no message from /dev/ttyUSB0 within 3s")
    short = GarbledData("4 bytes were expected, and 0 came")
    lost = DeviceTimeout("3 of 3 frames were lost; is the battery empty?")
    quick = ExponentialBackoff("300ms")
    breaker = CircuitBreaker(3, recovery="12s")
    add(
        "boiler",
        sensor(
            {"outlet": (58, 6, 9), "return": (42, 5, 11), "bar": (1.6, 0.1, 20)},
            lambda at: silent if 18 < at < 34 or at > WARM_UP - 12 else None,
        ),
        interval="2s",
        retry=1,
        backoff=quick,
        circuit_breaker=breaker,
    )
    add(
        "meter",
        sensor({"watts": (412, 120, 7), "volts": (231, 2, 13), "kWh": (8123.4, 0.1, 100)}),
        interval="2s",
        retry=3,
        publish=OnChange(0.5) | Every("10s"),
    )
    add("kitchen", sensor({"celsius": (21.4, 0.4, 15), "humidity": (47, 3, 20)}), interval="3s", retry=2)
    add(
        "living-room",
        sensor({"celsius": (22.1, 0.4, 17), "humidity": (44, 3, 22), "co2": (640, 120, 12)}),
        interval="3s",
    )
    add(
        "cellar",
        sensor({"celsius": (12.3, 0.2, 30), "humidity": (71, 2, 25)}, lambda at: short if at % 12 > 10.6 else None),
        interval="3s",
        retry=2,
        backoff=ExponentialBackoff("500ms"),
    )
    add(
        "garden",
        sensor({"celsius": (9.8, 1, 19), "rain": (0.2, 0.1, 20)}, lambda at: lost if at > 40 else None),
        interval="4s",
        retry=1,
        backoff=quick,
        on_failure="hold",
    )
    add("solar", sensor({"watts": (2310, 300, 12), "kWh": (11.2, 0.1, 50)}), interval="4s", retry=UNTIL_NEXT_POLL)
    add("water", sensor({"litres": (182312, 3, 5)}), interval="10s", retry=UNTIL_NEXT_POLL)
    return app


def screenshot(page: Page) -> bytes:
    """A picture of the page as WebP, which takes a third of the bytes of PNG."""
    session = page.context.new_cdp_session(page)
    return base64.b64decode(session.send("Page.captureScreenshot", {"format": "webp", "quality": 85})["data"])


def take(address: str) -> int:
    """Make the pictures. Returns how many."""
    made = 0
    views = [("devices", "#/", width) for width in WIDTHS] + [("device", "#/device/boiler", 1280)]
    with chromium() as browser:
        for theme in THEMES:
            for name, view, width in views:
                size = {"width": width, "height": 1000 if name == "device" else WIDTHS[width]}
                with browser.new_context(viewport=size, color_scheme=theme, locale="en-GB") as context:
                    page = context.new_page()
                    page.goto(f"{address}/{view}")
                    page.wait_for_selector("body[data-connection=live]")
                    page.wait_for_timeout(1500)
                    (TARGET / f"page-{name}-{width}-{theme}.webp").write_bytes(screenshot(page))
                    made += 1
    return made


def main() -> None:
    port = free_port()
    with Mosquitto() as broker:
        environment = {**os.environ, "HTTP__BIND": f"127.0.0.1:{port}"}
        running = subprocess.Popen([sys.executable, __file__, "serve", broker.url], env=environment)
        try:
            time.sleep(WARM_UP)
            with socket.create_connection(("127.0.0.1", port)):
                pass
            made = take(f"http://127.0.0.1:{port}")
        finally:
            running.terminate()
            running.wait()
    sys.stdout.write(f"wrote {made} pictures to {TARGET}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        house(sys.argv[2]).run()
    else:
        main()
