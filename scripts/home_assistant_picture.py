"""Make the picture of a device in Home Assistant in docs/pictures, with a real app, Home Assistant and Chromium.

Usage: ``python scripts/home_assistant_picture.py``, after ``scripts/home-assistant .venv-homeassistant``; it takes
about half a minute. The picture is never compared: other releases of Home Assistant look different.
"""

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from playwright.sync_api import Page
from pydantic import BaseModel, Field

from leadsman import App, CircuitBreaker, Sensor
from leadsman.testing import Mosquitto
from leadsman_rigs.browser import chromium
from leadsman_rigs.homeassistant import HomeAssistant, access_token

TARGET = Path(__file__).parent.parent / "docs" / "pictures" / "home-assistant-device.webp"
SIZE = {"width": 1000, "height": 1250}
SHOWN = {"x": 0, "y": 0, "width": 668, "height": 1244, "scale": 1}
"""The device fills two of three columns."""
Celsius = Sensor("°C", device_class="temperature", state_class="measurement", precision=1)
Mode = Literal["comfort", "eco", "off"]


class Room(BaseModel):
    temperature: Annotated[float, Celsius]
    humidity: Annotated[float, Sensor("%", device_class="humidity", state_class="measurement", precision=0)]
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement")]
    target: Annotated[float, Celsius]
    mode: Mode
    window: Annotated[bool, Sensor(device_class="window")]
    battery: Annotated[int, Sensor("%", device_class="battery", category="diagnostic")]


class Wish(BaseModel):
    target: Annotated[float | None, Field(ge=5, le=30), Celsius] = None
    mode: Mode | None = None


def house(broker: str) -> App:
    """The app of the picture."""
    app = App("house", version="1.4.2", mqtt=broker, discovery="homeassistant")

    @app.telemetry("kitchen", interval="2s", retry=2, circuit_breaker=CircuitBreaker(5))
    async def read() -> Room:
        return Room(temperature=21.4, humidity=47, co2=640, target=21, mode="comfort", window=False, battery=87)

    @app.command("kitchen")
    async def change(wish: Wish) -> None: ...

    return app


def screenshot(page: Page) -> bytes:
    """A picture of the page as WebP."""
    session = page.context.new_cdp_session(page)
    how = {"format": "webp", "quality": 85, "clip": SHOWN}
    return base64.b64decode(session.send("Page.captureScreenshot", how)["data"])


def take(home: HomeAssistant) -> None:
    """Make the picture."""
    address = f"http://127.0.0.1:{home.port}"
    signed_in = {"access_token": access_token(), "token_type": "Bearer", "expires_in": 1800, "refresh_token": ""}
    signed_in |= {"hassUrl": address, "clientId": f"{address}/", "expires": 4_102_444_800_000}
    kept = {"hassTokens": json.dumps(signed_in), "dockedSidebar": '"always_hidden"'}
    with chromium() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light", locale="en-GB")
        page.add_init_script(f"Object.assign(localStorage, {json.dumps(kept)})")
        page.goto(f"{address}/config/devices/device/{home.devices()['house--kitchen']['id']}")
        page.get_by_text("Poll now").wait_for(timeout=60_000)
        page.wait_for_timeout(3000)
        TARGET.write_bytes(screenshot(page))


def main() -> None:
    with Mosquitto() as broker, tempfile.TemporaryDirectory() as directory:
        running = subprocess.Popen([sys.executable, __file__, "serve", broker.url])
        try:
            with HomeAssistant(Path(directory) / "configuration", broker.port) as home:
                home.wait_for({"house--kitchen--temperature": "21.4", "house--kitchen--_status": "ok"})
                take(home)
        finally:
            running.terminate()
            running.wait()
    sys.stdout.write(f"wrote {TARGET}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        house(sys.argv[2]).run()
    else:
        main()
