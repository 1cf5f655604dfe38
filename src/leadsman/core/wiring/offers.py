"""What the parts of an app offer each other: a typed map, which names none of them."""

from typing import Generic, TypeVar, cast

from leadsman.errors import ConfigurationError, two_parts

T = TypeVar("T")


class Kind(Generic[T]):
    """A kind of thing that one part of an app offers and others ask for. It has the type of the thing, and needs no
    import of it: an app without that part does not load what it would have offered.

    Args:
        noun: what it is, in errors.
        part: the module of the part that offers it, for who asks in vain.
    """

    __slots__ = ("noun", "part")

    def __init__(self, noun: str, part: str) -> None:
        self.noun = noun
        self.part = part


class Offers:
    """The things that parts offer. There is one of a kind at most."""

    def __init__(self) -> None:
        self.joining: str | None = None
        """The module of the part that joins the app just now; None if none does."""
        self._things: dict[object, object] = {}
        self._by: dict[object, str] = {}

    def offer(self, kind: Kind[T], thing: T) -> None:
        """Let other parts have `thing`: those below in the list when they join, and all of them once the app runs.

        Raises:
            ConfigurationError: another part offers one of this kind.
        """
        by = self.joining or kind.part
        if kind in self._things:
            raise two_parts(self._by[kind], by, f"offer {kind.noun}")
        self._things[kind] = thing
        self._by[kind] = by

    def find(self, kind: Kind[T]) -> T | None:
        """What is offered of a kind; None if nothing is."""
        return cast("T | None", self._things.get(kind))

    def of(self, kind: Kind[T]) -> T:
        """What is offered of a kind.

        Raises:
            ConfigurationError: nothing is, or not yet.
        """
        if kind not in self._things:
            later = "let it join" if self.joining is None else f"let {self.joining} join in a later phase, or below it"
            raise ConfigurationError(f"{kind.part} offers {kind.noun}, and has not joined the app; {later}")
        return cast("T", self._things[kind])
