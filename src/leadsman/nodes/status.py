"""Reads the retained status of an app, or of a node, as far as another node needs it."""

from leadsman.mqtt.answers import object_in


def is_online(payload: bytes) -> bool | None:
    """Whether a document at a topic ``status`` says that its sender is online; None if it says neither."""
    state = (object_in(payload) or {}).get("state")
    return state == "online" if state in ("online", "offline") else None
