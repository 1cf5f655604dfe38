"""The type of the message at ``{prefix}/{device}/health``, which is published while discovery for Home
Assistant is on."""

from typing_extensions import TypedDict

from leadsman.introspection.document import CircuitWord, StatusWord


class DeviceHealth(TypedDict):
    """How a device is."""

    status: StatusWord
    circuit: CircuitWord
    consecutive_failures: int
    last_success_at: str | None
    """As it was when this was written. It alone is renewed once a minute."""
