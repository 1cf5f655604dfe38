"""The life of an app: what its parts do when it begins, while it runs, and when it ends.

A part adds what it does at a stage, as an observer subscribes to the event bus. `leadsman.wiring.run` goes through the
stages, and knows no part.
"""

from collections.abc import Awaitable, Callable

from leadsman.errors import Stopped


class Life:
    """The stages, in this order. At each, parts act in the order in which they were added."""

    __slots__ = ("beside", "closes", "ends", "fatal", "goodbyes", "joined", "leaves", "starts", "stops", "waits")

    def __init__(self) -> None:
        self.fatal: list[Stopped] = []
        """Why the app must end, if a device failed that must work, a person must fix something, or nothing works any
        more."""
        self.joined: list[Callable[[], object]] = []
        """Is called when all parts have joined: each event has all its observers."""
        self.beside: dict[str, Callable[[], Awaitable[object]]] = {}
        """Runs from the beginning until the goodbye, beside all else. If it fails, it is begun again; the key is what
        the log calls it."""
        self.waits: list[Callable[[], Awaitable[object]]] = []
        """Is waited for before anything touches a device."""
        self.starts: list[Callable[[], object]] = []
        """Is called when devices may be read: the lifespan is entered, and the adapters are being opened."""
        self.leaves: list[Callable[[], Awaitable[object]]] = []
        """Is waited for, one after the other, when the app is asked to stop and devices may still be read."""
        self.stops: list[Callable[[float], Awaitable[int]]] = []
        """Ends the calls of handlers, all at once, in as many seconds; returns how many did not end."""
        self.goodbyes: dict[str, Callable[[], object]] = {}
        """Puts the last messages into the outbox. A fault there is reported by the key, and costs no other."""
        self.closes: list[Callable[[], Awaitable[object]]] = []
        """Closes what needs no connection, while the last messages are sent."""
        self.ends: list[Callable[[bool], Awaitable[object]]] = []
        """Closes the rest, once the broker has all messages, or has had its time for that; whether it has them all is
        the argument."""
