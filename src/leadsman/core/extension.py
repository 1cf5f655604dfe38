"""What extends an app: a class to derive from, and the phases in which its work begins."""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from leadsman.core.extension_tools import Place, Topic


class JoinPhase(IntEnum):
    """When a function joins an app. In each phase what every app has comes first, then what leadsman ships, then what
    a user gave, in the order of his list."""

    BEFORE_DEVICES = 0
    """No device is made: what takes their readings, and what counts them."""
    DEVICES = 1
    """The devices, and what their handlers use."""
    STATE = 2
    """What survives the app. What reports of the devices comes later, and finds them as they were."""
    OBSERVERS = 3
    """What observes the devices, such as the heartbeat."""
    DOORS = 4
    """What people and other programs read, and what they request."""


Join = tuple[JoinPhase, Callable[..., object]]
"""A phase, and a function that joins the app then. It is called with the `Core`, and may be a coroutine function."""


class Documents(NamedTuple):
    """What an extension adds to the documents of an app, for their schemas and for people. Each type is a `TypedDict`
    of ``typing_extensions``; a text below a field says what it means. What it adds while the app runs, it adds to
    `Core.documents` and to the heartbeat."""

    status: type | None = None
    """Fields of the heartbeat, each `NotRequired`."""
    app: type | None = None
    """Fields of the section of the app in introspection, each `NotRequired`."""
    runtime: type | None = None
    """Fields of the state of a device in introspection, each `NotRequired`."""
    sections: type | None = None
    """Sections of introspection that a request must name, a field for each; with ``total=False``."""
    absent: Mapping[str, str] = MappingProxyType({})
    """Why an app that runs does not have one of these sections, and what to do; by its name."""
    of_device: Mapping[str, type] = MappingProxyType({})
    """The message at a topic of each device that is read, by the last level of the topic."""
    of_app: Callable[[Any, bool], Mapping[str, Mapping[str, object]]] | None = None
    """Gives the JSON Schemas of further messages, by topic. It is called with the `Topics` of the app, and whether
    several nodes share it."""


class Extension:
    """What a user or a package adds to an app. Derive a class, override what you need, and give an object of it to
    ``App(extensions=[…])``. Each member has a default that adds nothing."""

    name: ClassVar[str] = ""
    """A word of lower-case letters, digits and ``_``, such as ``alarm``: the name of its section of the settings, and
    what errors call it. It begins with a letter."""
    settings: ClassVar[type | None] = None
    """The class of its section: a NamedTuple whose annotations have what reads each value, or a pydantic model. None:
    it has no section."""
    options: ClassVar[Mapping[str, type]] = {}
    """Further options of decorators: a `TypedDict` by the kind of the decorator, which is ``"telemetry"``,
    ``"periodic"``, ``"source"``, ``"event"`` or ``"command"``. Beside each type is an `Option`; `own_options` reads
    the values."""
    commands: ClassVar["Mapping[str, Place]"] = {}
    """Commands of the command line, by name: each names a `leadsman.extension.Command`, which is imported when it is
    typed: ``leadsman alarms house:app``, or ``house alarms`` where the app is a program of its own. One that has the
    name of a command of leadsman is reached there only."""
    checks: ClassVar[Mapping[str, Callable[..., object]]] = {}
    """Checks of ``leadsman doctor``, by name: each is called with the `leadsman.extension.Plan`, and gives one
    `leadsman.extension.CheckResult` or several. A plain function runs in a thread, and may block for eight seconds; one
    that is ``async def`` may take as long. What it raises is shown as a failure of the check."""
    documents: ClassVar[Documents] = Documents()
    """What it adds to the documents of the app."""

    def joins(self, plan: Any) -> Iterable[Join]:
        """What it does when the app is made. Called before each start. What it raises ends the start.

        Args:
            plan: what the author and the settings have decided, a `leadsman.extension.Plan`.
        """
        return ()

    def topics(self, plan: Any) -> "Iterable[Topic]":
        """The topics that it publishes or subscribes to, for ``leadsman acl``, ``leadsman schema`` and
        ``leadsman doctor``. No subscription of the app may cover one that it publishes to.

        Args:
            plan: what the author and the settings have decided, a `leadsman.extension.Plan`.
        """
        return ()
