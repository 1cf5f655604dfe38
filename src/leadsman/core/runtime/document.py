"""The types of what runners count; see `leadsman.core.introspection.document`."""

from typing_extensions import TypedDict


class Commands(TypedDict):
    """The commands of a device since the start of the app."""

    done: int
    """Executed, with those that failed."""
    failed: int
    """Executed, and their handler failed."""
    refused: int
    """Not executed: wrong, too late, or one too many."""
    waiting: int
    """Waiting for their turn."""
    last_error: str | None
    """Why the last one failed or was refused; null if it did what was asked."""


class Counted(TypedDict, total=False):
    """The counts that only some kinds of runners have, for the introspection document."""

    busy: bool
    """True while a poll runs, or the thread of an earlier one. Present only for what is polled."""
    restarts: int
    """How often the generator of a source was started again. Present only for a source."""
    commands: Commands
    """Its commands. Present only if it takes some."""
    found: int
    """The devices that a handler has found and that are not forgotten. Present only if it may find some."""
    refused: int
    """How often a device that it found was refused: there were too many, or its name was wrong or that of another.
    Present only if it may find some."""
