"""An MQTT broker inside the process: amqtt in a thread. It only speaks MQTT 3.1.1, and is only meant for demos and
tests."""

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from leadsman.errors import LeadsmanError
from leadsman.testing.mosquitto import free_port

START_TIMEOUT = 10.0
"""Seconds."""
_SETTLE = 0.1
"""Seconds for it to notice clients that have just gone: it would leave their streams unclosed."""
_ANONYMOUS = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}


@contextlib.contextmanager
def embedded_broker(plugins: dict[str, Any] | None = None) -> Iterator[int]:
    """Run amqtt on a free port of the loopback interface, and return the port. Every client is accepted.

    Args:
        plugins: plugins of amqtt by name, with their options.

    Raises:
        LeadsmanError: amqtt is not installed, or did not start.
    """
    try:
        from amqtt.broker import Broker
    except ImportError as error:
        raise LeadsmanError("the embedded broker needs amqtt; install leadsman[demo], or install mosquitto") from error
    port, ready, loop = free_port(), threading.Event(), asyncio.new_event_loop()
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    config = {"listeners": {"default": listener}, "plugins": _ANONYMOUS | (plugins or {})}

    def run() -> None:
        asyncio.set_event_loop(loop)
        broker = Broker(config, loop)
        loop.run_until_complete(broker.start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(asyncio.sleep(_SETTLE))
        loop.run_until_complete(broker.shutdown())
        loop.close()
        del broker
        with warnings.catch_warnings():  # it leaves the streams of clients that were killed to the collector
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    thread = threading.Thread(target=run, name="embedded broker", daemon=True)
    thread.start()
    if not ready.wait(START_TIMEOUT):
        raise LeadsmanError("the embedded broker did not start; install mosquitto instead")
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_TIMEOUT)
