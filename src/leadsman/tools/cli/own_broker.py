"""A broker of our own, for the demo and for the ``--demo`` of an app: mosquitto if it is installed, else an embedded
one that is suitable for nothing else."""

import contextlib
from collections.abc import Iterator

from leadsman.mqtt.broker import Broker
from leadsman.process import ended_by_sigterm
from leadsman.testing.embedded import embedded_broker
from leadsman.testing.mosquitto import Mosquitto, executable


def watching(broker: Broker, prefix: str) -> str:
    """What to type to see all messages below a prefix."""
    return f"mosquitto_sub -h {broker.host} -p {broker.port} -t '{prefix}/#' -v"


@contextlib.contextmanager
def demo_broker() -> Iterator[tuple[str, str, Mosquitto | None]]:
    """Run a broker. Gives its URL, a description, and mosquitto if that is what runs.

    Raises:
        LeadsmanError: neither mosquitto nor amqtt is installed.
    """
    with ended_by_sigterm(), contextlib.ExitStack() as stack:  # at a SIGTERM too, the broker ends with the demo
        if executable() is not None:
            mosquitto = stack.enter_context(Mosquitto())
            yield mosquitto.url, "a mosquitto of its own", mosquitto
        else:
            port = stack.enter_context(embedded_broker())
            description = "an embedded broker (amqtt, MQTT 3.1.1; for this demo only)"
            yield f"mqtt://127.0.0.1:{port}?protocol=3.1.1", description, None
