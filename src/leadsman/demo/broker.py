"""The broker of the demo: mosquitto when it is installed, else an embedded one that is good for nothing but this."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator

from leadsman.errors import LeadsmanError
from leadsman.testing.mosquitto import Mosquitto, executable, free_port

START_TIMEOUT = 10.0


@contextlib.contextmanager
def demo_broker() -> Iterator[tuple[str, str, Mosquitto | None]]:
    """Run a broker. Gives its URL, what it is in words, and mosquitto where that is what runs.

    Raises:
        LeadsmanError: neither mosquitto nor amqtt is installed.
    """
    if executable() is not None:
        with Mosquitto() as mosquitto:
            yield mosquitto.url, "a mosquitto of its own", mosquitto
        return
    with _embedded() as url:
        yield url, "an embedded broker (amqtt, MQTT 3.1.1; for this demo only)", None


@contextlib.contextmanager
def _embedded() -> Iterator[str]:
    try:
        from amqtt.broker import Broker
    except ImportError as error:
        raise LeadsmanError("no broker: install mosquitto, or leadsman[demo], or name one with --broker") from error
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    port, ready, loop = free_port(), threading.Event(), asyncio.new_event_loop()
    config = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }

    def run() -> None:
        asyncio.set_event_loop(loop)
        broker = Broker(config, loop)
        loop.run_until_complete(broker.start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(broker.shutdown())

    thread = threading.Thread(target=run, name="embedded broker", daemon=True)
    thread.start()
    if not ready.wait(START_TIMEOUT):
        raise LeadsmanError("the embedded broker did not start; install mosquitto, or name a broker with --broker")
    try:
        yield f"mqtt://127.0.0.1:{port}?protocol=3.1.1"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2.0)
