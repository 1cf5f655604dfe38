"""What the author of an app declares, and the checks of it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from leadsman.adapters.adapter import Adapter
from leadsman.errors import InvalidType
from leadsman.mqtt.broker import Brokers
from leadsman.mqtt.topics import Topics

if TYPE_CHECKING:
    from pydantic import BaseModel

    from leadsman.settings.discovery import Discovery

Adapters = Sequence[Adapter] | Mapping[str, Adapter]
MakeAdapters = Callable[[Any], Adapters]
"""Makes adapters from the settings."""
AdapterSource = Adapters | MakeAdapters
MakeRedaction = Callable[..., Sequence[str]]
"""Makes the patterns of what is hidden from the settings."""


class Declaration(NamedTuple):
    """What the author of an app declared, checked. It never changes."""

    name: str
    topics: Topics
    instance: str
    """The end of the client id."""
    brokers: Brokers | None
    """None: the settings say which."""
    adapters: AdapterSource
    """The adapters, or a function that makes them from the settings."""
    model: "type[BaseModel] | None"
    """The class of the settings."""
    settings: "BaseModel | None"
    """Settings that are filled already."""
    twins: MakeAdapters | None
    discovery: "str | Discovery | None" = None
    """As its author wrote it."""
    redact: MakeRedaction | None = None
    """What is hidden besides, if the settings decide it."""


def check_discovery(given: object) -> "Discovery | None":
    """What `App` was given as `discovery`. Raises `InvalidType`, `InvalidValue`."""
    if given in (None, "off"):
        return None
    from leadsman.settings.discovery import as_discovery  # only apps with discovery pay for it

    return as_discovery(given)


def check_settings(given: object) -> "tuple[type[BaseModel] | None, BaseModel | None]":
    """The model that `App` was given as `settings`, and the settings themselves if they are filled already. Raises
    `InvalidType`."""
    if given is None:
        return None, None
    model: Any = given if isinstance(given, type) else type(given)
    if not hasattr(model, "model_fields"):
        raise InvalidType(f"settings is {given!r}; write a pydantic model: class Settings(BaseModel): …")
    return model, None if isinstance(given, type) else cast("BaseModel", given)
