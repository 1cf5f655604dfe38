"""The types of the registry: the devices of an app, with their topics."""

from typing import (
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict


class RegistryDevice(TypedDict):
    """A device in the registry."""

    kinds: list[Literal["telemetry", "source", "command"]]
    topics: dict[str, str]
    retained: list[Literal["state", "availability", "ledger", "health"]]
    """Which of these topics the broker keeps."""
    others: NotRequired[list[str]]
    """Further retained topics of the device."""
    found_by: NotRequired[str]
    """The handler that has found the device at run time."""
    enabled: NotRequired[Literal[False]]
    """Present only if the device is not enabled: nothing is published but its availability, ``offline``."""


class RegistryHead(TypedDict):
    """What each page of the registry begins with."""

    app: str
    version: str
    leadsman: str
    client_id: str
    introspect: str
    status: str
    root: NotRequired[str]
    """The name of the root device, whose topics have no level for the device. Present only if there is one."""


class Registry(RegistryHead):
    """The message at ``{prefix}/registry``, for tools that search for apps. The devices of a large app are on several
    pages; page 2 is at ``{prefix}/registry/2``."""

    devices: dict[str, RegistryDevice]
    others: NotRequired[list[str]]
    """Retained topics that belong to no device, besides the status and this registry; also those of removed devices
    that the broker has not forgotten yet."""
    page: NotRequired[int]
    """The number of this page, from 1. Left out if there is one page."""
    pages: NotRequired[int]
    """The number of pages. Pages with higher numbers are left from an earlier run."""
