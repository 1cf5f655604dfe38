"""The protocol of adapters, and the protocols of what an adapter may be able to do besides.

Each ability is a protocol with one member. An adapter has an ability if it has that member; it inherits from nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from leadsman.core.adapters.resource import Resource


@runtime_checkable
class Adapter(Protocol):
    """An async context manager that handlers ask for by its type. It may have abilities as well: `SupportsProbe`,
    `SupportsReset`, `ReportsHealth`, `ChecksInstallation`, `DeclaresTransientErrors`, `LimitsRetries` and
    `DeclaresResource`."""

    async def __aenter__(self) -> object:
        """Open the adapter and return the object that handlers get. It may raise any exception; opening is then
        tried again."""
        ...

    async def __aexit__(self, *exc_info: object) -> bool | None:
        """Close the adapter."""
        ...


CANNOT_OPEN = "cannot_open"
"""The key in the health of an adapter under which it says why it could not open what it needs, until it can."""


@runtime_checkable
class SupportsProbe(Protocol):
    """An adapter that can check itself. While its probe passes, it is not reopened because polls fail."""

    async def probe(self) -> None:
        """Return if the adapter itself works; raise any exception if it does not."""
        ...


@runtime_checkable
class SupportsReset(Protocol):
    """An adapter that can discard its client, where closing and opening did not help; see
    `leadsman.core.runtime.adapter_recovery`."""

    async def reset(self) -> None:
        """Discard the client. Called between closing and opening."""
        ...


@runtime_checkable
class ReportsHealth(Protocol):
    """An adapter that shows values of its own in introspection."""

    @property
    def health(self) -> Mapping[str, object]:
        """Names mapped to numbers, text or None. Reading it must neither wait nor change anything. One that opens what
        it needs at the first call says under ``cannot_open`` why it could not, until it can: then it is not open."""
        ...


@runtime_checkable
class ChecksInstallation(Protocol):
    """An adapter that needs a library, and checks whether it is installed before the app starts."""

    def check_installed(self) -> None:
        """Raise `NotInstalled` if a library that opening needs is missing."""
        ...


@runtime_checkable
class DeclaresTransientErrors(Protocol):
    """An adapter that raises exceptions of its library that are worth a retry."""

    @property
    def transient_errors(self) -> Sequence[type[Exception]]:
        """Exception classes. They are added to the default of ``retry_on``."""
        ...


@runtime_checkable
class LimitsRetries(Protocol):
    """An adapter that limits the retries of all its handlers together. Each retry takes a token, and a poll whose first
    call succeeds returns one."""

    @property
    def retry_tokens(self) -> int | None:
        """The number of tokens, 1 or more; None: no limit."""
        ...


@runtime_checkable
class DeclaresResource(Protocol):
    """An adapter that declares what it needs, so that ``leadsman doctor`` can look at it without opening the
    adapter."""

    @property
    def resource(self) -> "Resource":
        """What it needs. Reading it must neither wait nor change anything."""
        ...
