"""Reads payloads that anybody may have published. Pure."""

import json

from leadsman.mqtt.answers import Json


def object_in(payload: bytes) -> dict[str, Json] | None:
    """The JSON object in a payload; None if it is none."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
