"""An MQTT broker for demos and tests where mosquitto is missing: amqtt in a process of its own.

It only speaks MQTT 3.1.1. amqtt leaves the streams of clients that vanish to the garbage collector, which warns of each
one. In a process of its own these warnings do not reach a test, and its event loop and ours do not delay each other.
"""

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from leadsman.errors import LeadsmanError, missing
from leadsman.testing.mosquitto import free_port

START_TIMEOUT = 60.0
"""Seconds."""
_PROGRAM = Path(__file__).with_name("embedded_process.py")


@contextlib.contextmanager
def embedded_broker(
    plugins: Mapping[str, Mapping[str, object]] | None = None, port: int | None = None
) -> Iterator[int]:
    """Run amqtt on a port of the loopback interface, and return the port. Every client is accepted.

    Args:
        plugins: plugins of amqtt by name, with their options.
        port: the port to listen on; None takes a free one.

    Raises:
        LeadsmanError: amqtt is not installed, or did not start.
    """
    if find_spec("amqtt") is None:
        raise LeadsmanError(f"{missing('brokers in Python', 'amqtt', 'demo')}; or type: apt-get install mosquitto")
    port = port or free_port()
    # -P: the folder of the program is no place to import from. -W: amqtt's warnings concern nobody here.
    command = [sys.executable, "-P", "-W", "ignore", str(_PROGRAM), str(port), json.dumps(plugins or {})]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # the process ends when this pipe closes, also when we are killed
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us; the broker lives until we have disconnected from it
    ) as process:
        try:
            if not _started(process):
                raise LeadsmanError("the embedded broker did not start; install mosquitto instead")
            yield port
        finally:
            process.kill()


def _started(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the line that the process writes when it listens; False if it ended, or writes none."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_TIMEOUT)
    return bool(readable and process.stdout.readline())
