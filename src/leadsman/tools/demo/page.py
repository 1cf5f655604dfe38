"""The page of the demo's app: where it is, and what the app answers there, whether its broker lives or not."""

import asyncio
import http.client
import json
import socket
from collections.abc import Callable

from leadsman.mqtt.answers import Json
from leadsman.settings.sections import DEFAULT_PORT
from leadsman.testing.mosquitto import free_port

ASK_EVERY = 0.5
"""Seconds between two questions."""
_TIMEOUT = 2.0
_QUESTION = "/introspect?sections=mqtt&sections=devices&sections=recent&sections=fields"


def page_port() -> int:
    """The port of the page: the usual one, or a free one if another program has that."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return free_port()
    return DEFAULT_PORT


async def keep_asking(page: str, show: Callable[[dict[str, Json]], None]) -> None:
    """Ask the app how it is doing until cancelled, and pass on each answer.

    Args:
        page: host and port.
        show: is called with each document of introspection.
    """
    while True:
        document = await asyncio.to_thread(_ask, page)
        if document is not None:
            show(document)
        await asyncio.sleep(ASK_EVERY)


def _ask(page: str) -> dict[str, Json] | None:
    """The document of introspection; None if the app does not answer, as before it has started."""
    connection = http.client.HTTPConnection(page, timeout=_TIMEOUT)
    try:
        connection.request("GET", _QUESTION)
        answer = connection.getresponse()
        document: dict[str, Json] | None = json.load(answer) if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    else:
        return document
    finally:
        connection.close()
