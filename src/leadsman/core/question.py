"""Questions to what leadsman ships: who asks knows what it asks, and not who answers."""

from collections.abc import Collection
from importlib import import_module
from typing import Any, Generic, TypeVar

from leadsman.extensions import SHIPPED, Shipped

T = TypeVar("T")


class Question(Generic[T]):
    """What a tool, the kit for tests or another extension asks of an extension that may not be there. It has the type
    of the function that answers.

    Args:
        name: its name in the list of `leadsman.extensions`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def answer(self, on: Collection[str] | None = None) -> T | None:
        """The function that answers, imported; None if the extension is not there, or if none of its sections of the
        settings is among those that are on."""
        for each in SHIPPED:
            if self.name in each.answers and (on is None or not each.sections.keys().isdisjoint(on)):
                found: T = imported(each, each.answers[self.name])
                return found
        return None


def imported(shipped: Shipped, place: str) -> Any:
    """An object of what is shipped, by its place in a row of the list."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"{shipped.package}.{module}"), name)
