"""Notices another app that publishes below the same prefix."""

import asyncio

from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.topics import encode
from leadsman.core.text import clean
from leadsman.core.wiring.core import Core

GONE_SECONDS = 120.0
"""Seconds without a heartbeat after which the other app is gone. A heartbeat is due every 30 s, unless the app is
configured otherwise."""
MAX_APPS = 16
"""Other apps that are remembered."""
_HEAD_BYTES = 4096
"""Bytes from the beginning of a document that contain its client id."""


def join(core: Core) -> None:
    """Hear the heartbeats below this prefix. The nodes of a cluster hear only those of an app that is no node."""
    hears = core.plan.own_filters["alone" if core.node.shared else "status"]
    core.link.listen(hears, PrefixWatch(core).received)


class PrefixWatch:
    """Notices another app that publishes below our prefix, by its heartbeats.

    Each app hears what is published at ``{prefix}/status``, its own documents included. One with another client id that
    shows ``online``, and that the broker passes on just now, proves that the other app is alive. A retained document
    proves nothing: it may be what an app left behind. The other app hears us in the same way, and answers with a
    heartbeat within a second; if that comes before the broker has our subscription, the next heartbeat proves it.

    Args:
        core: the app, whose link is told of the other one, and when that is gone.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._own = encode({"client_id": core.plan.identity.client_id})[1:-1]
        self._heard: dict[str, asyncio.TimerHandle] = {}

    def received(self, message: Received) -> None:
        """Take a message at the topic of the status."""
        if message.retain or message.redelivered or self._own in message.payload[:_HEAD_BYTES]:
            return
        status = object_in(message.payload) or {}
        other = status.get("client_id")
        if not isinstance(other, str) or other == self._core.plan.identity.client_id:
            return  # a will, or what is no heartbeat
        if status.get("state") != "online":
            self._left(other)
        elif other in self._heard or len(self._heard) < MAX_APPS:
            if other in self._heard:
                self._heard[other].cancel()
            self._heard[other] = asyncio.get_running_loop().call_later(GONE_SECONDS, self._left, other)
            self._name()

    def _left(self, other: str) -> None:
        timer = self._heard.pop(other, None)
        if timer is not None:
            timer.cancel()
            self._name()

    def _name(self) -> None:
        """Name the app that has been there the longest. A status names the app too, and the others answer it with
        theirs: the name must not follow the app that was heard last."""
        named, reason = next(iter(self._heard), None), None
        if named is not None:
            prefix = self._core.plan.topics.prefix
            reason = (
                f"another app publishes below {prefix + '/'!r}: its client id is {clean(named)!r}. "
                "Stop one of them, or run one with another prefix: --prefix, or MQTT__TOPIC_PREFIX"
            )
        self._core.link.report_conflict("app", reason)
