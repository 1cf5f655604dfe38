"""What parts of an app add to its documents while it runs. Nothing of it is called before somebody asks."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.events import AppFault
from leadsman.core.monitoring.added_fields import AddedFields
from leadsman.errors import InvalidValue, two_parts

if TYPE_CHECKING:
    from leadsman.core.introspection.added_measures import AddedMeasures
    from leadsman.core.introspection.requests import Query

Member = tuple[str | None, object]
"""A member of a section: its key and its value; the key is None in a list."""


class AddedSection(NamedTuple):
    """A section of introspection that a request must name."""

    members: "Callable[[Query], Iterable[Member]]"
    """Makes the members that a request asks for, one by one."""
    is_list: bool = False
    """Whether it is a list of its members, and no object."""
    large: bool = False
    """Whether an answer with it is a large one, of which few are made at a time."""


class AddedDocuments:
    """What is added.

    Args:
        emit: takes the faults of what adds something.
        joining: the module that joins the app just now, None if none does; and the extension of a user, or "".
    """

    def __init__(
        self, emit: Callable[[AppFault], None], joining: Callable[[], tuple[str | None, str]] = lambda: (None, "")
    ) -> None:
        self.emit = emit
        """Takes the faults of what adds something."""
        self.app = AddedFields("a section of the app", emit)
        """Called with each section of the app, to add fields to it."""
        self.runtime = AddedFields("a section of a device", emit)
        """Called with the name of a device and each document of its state, to add fields to it."""
        self._joining = joining
        self._by: dict[str, str] = {}
        self.sections: dict[str, AddedSection] = {}
        """The further sections; see `add_section`."""
        self.measures: list[Callable[[], AddedMeasures]] = []
        """Called by each who measures: gives further families."""
        self.topics: set[str] = set()
        """The last levels of further retained topics that each device has."""

    def add_section(self, name: str, section: AddedSection) -> None:
        """Answer requests for one more section.

        Raises:
            ConfigurationError: there is one of this name, of another part or in every app.
        """
        module, guest = self._joining()
        if guest:
            from leadsman.core.introspection.requests import FIELDS, SECTIONS  # few apps need them as they start

            if name in (*SECTIONS, FIELDS):
                raise InvalidValue(f"{guest}: {name!r} is a section of leadsman; choose another name")
        by = guest or module or name
        if name in self.sections:
            raise two_parts(self._by[name], by, f"answer for the section {name}")
        self.sections[name] = section
        self._by[name] = by
