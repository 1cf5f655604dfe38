"""Fields that parts of an app add to its documents. Nothing that one of them adds can cost the document, or what
another one adds."""

import functools
from collections.abc import Callable, MutableMapping
from typing import Concatenate

from leadsman.core.events import AppFault
from leadsman.core.mqtt.topics import encode
from leadsman.core.observers import Observers, check_observer
from leadsman.core.text import clean
from leadsman.errors import InvalidValue

MAX_BYTES = 64 * 1024
"""Bytes of what one function may add to a document. A heartbeat that lists all devices is as long at most."""


class AddedFields:
    """Functions that add fields, in the order in which they were added. Each gets an empty dict for them.

    Args:
        what: what the log calls them.
        emit: takes the faults: what a function raises, and fields that JSON cannot have, that the document has already,
            or that are too long.
    """

    __slots__ = ("_what", "to")

    def __init__(self, what: str, emit: Callable[[AppFault], None]) -> None:
        self._what = what
        self.to: Observers[Concatenate[MutableMapping[str, object], ...]] = Observers(what, emit)
        """Called with a document, to add to it, and with what it is about."""

    def add(self, function: Callable[..., object]) -> None:
        """Call `function` for each document from now on, with a dict for the fields that it adds; before it, with the
        name of the device, if the document is about one.

        Raises:
            InvalidType: it is no function, or it is async.
        """
        check_observer(self._what, function)

        @functools.wraps(function)
        def add(document: MutableMapping[str, object], *about: str) -> None:
            found: dict[str, object] = {}
            function(*about, found)
            _check(found, document)
            document.update(found)

        self.to.add(add)


def _check(found: dict[str, object], document: MutableMapping[str, object]) -> None:
    """Raises `InvalidValue`."""
    names: list[object] = [*found]
    if wrong := [clean(repr(each)) for each in names if not isinstance(each, str)]:
        raise InvalidValue(f"{wrong[0]} is no name of a field; write text")
    if taken := sorted(found.keys() & document.keys()):
        raise InvalidValue(f"{taken[0]!r} is a field of leadsman; choose another name")
    for name, value in found.items():
        try:
            size = len(encode(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(
                f"{clean(name)!r} is {clean(repr(value))[:100]}, which JSON cannot have: {error}"
            ) from None
        if size > MAX_BYTES:
            raise InvalidValue(f"{clean(name)!r} has {size:,} bytes; add {MAX_BYTES:,} at most")
