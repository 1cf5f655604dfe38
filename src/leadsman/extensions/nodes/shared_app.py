"""The app that several nodes share, as each of them sees it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.mqtt.topics import Identity, Topics

if TYPE_CHECKING:
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.source import Source
    from leadsman.core.registration.telemetry import Telemetry
    from leadsman.core.settings.sections import Sections


class SharedApp(Protocol):
    """The registrations of an app, and how the nodes share them. The plan of an app is one."""

    @property
    def identity(self) -> Identity: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def keep_state(self) -> bool:
        """Whether the failure state of devices is kept, and shared among the nodes."""

    @property
    def sections(self) -> "Sections":
        """How this node is set, among others."""

    @property
    def adapters(self) -> tuple[ManagedAdapter, ...]: ...

    @property
    def handlers(self) -> "Sequence[Telemetry | Source | Command]":
        """Everything that is enabled."""

    @property
    def readers(self) -> "Sequence[Telemetry | Source]":
        """The telemetries and sources that are enabled."""

    @property
    def jobs(self) -> frozenset[str]:
        """The side jobs, which have no topics."""

    def devices(self) -> frozenset[str]:
        """The devices that are enabled, without side jobs."""
