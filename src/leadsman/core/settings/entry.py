"""One value of the settings, with its path and its origin."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from leadsman.core.settings.model import SettingPath
from leadsman.errors import ConfigurationError

RANKS = ("default", "file", ".env", "environment", "secret", "flag")
RETRY = "retry"
"""The section of policies and of families of operations."""
RETRY_PREFIX = "RETRY__"
KNOBS = ("max_attempts", "min_wait", "max_wait", "jitter")
"""The settings of a family of operations: ``RETRY__API_MAX_ATTEMPTS``."""

T = TypeVar("T")
FindLine = Callable[[SettingPath], int | None]


class SettingEntry(NamedTuple):
    """One value with its path in the settings and its origin."""

    path: SettingPath
    value: object
    rank: int
    """The position in `RANKS`. The highest rank wins."""
    source: str
    """The file, the variable or the flag."""
    text: bool = True
    """Whether the source has only text, which may stand for a number or for JSON. It has one case, and no dashes."""
    below: Mapping[SettingPath, "SettingEntry"] = {}
    """The entries of the values that it has inside, by their paths, where each has an origin of its own."""
    line: FindLine | None = None
    """Finds the line of a path in the source, where that has not been done. It takes a while."""

    @property
    def origin(self) -> str:
        """The source, and the line if it has lines. For messages about faults: to find the line takes a while."""
        return self.origin_at(self.path)

    def origin_at(self, path: SettingPath) -> str:
        """The same for the value at a path inside this entry."""
        line = None if self.line is None else self.line(path)
        return self.source if line is None else f"{self.source} line {line}"

    def read(self, check: Callable[[object], T]) -> T:
        """What `check` makes of the value. An error that it raises gets the name of the setting, and the origin of the
        value at fault."""
        try:
            return check(self.value)
        except ConfigurationError as error:
            raise self.fault(error) from None

    def fault(self, error: ConfigurationError) -> ConfigurationError:
        """An error about this setting, with its name, and the origin of the value at fault."""
        return type(error)(f"{'.'.join(self.path)}: {error}{self.from_inside(error.inside)}")

    def from_inside(self, keys: SettingPath) -> str:
        """The origin of the value that keys lead to inside this one, as the end of a message."""
        return told_origin((*self.path, *keys), self.below or {self.path: self})

    @property
    def flag(self) -> bool:
        """Whether it came from the command line."""
        return RANKS[self.rank] == "flag"

    @property
    def secret(self) -> bool:
        """Whether it came from a file of its own, as secrets do."""
        return RANKS[self.rank] == "secret"


Entries = Mapping[str, SettingEntry]
"""The entries of a section, by key."""
Origins = Mapping[SettingPath, SettingEntry]
"""The entries that values come from, by the paths of the values."""


def told_origin(path: SettingPath, origins: Origins) -> str:
    """The origin of a value, as the end of a message: its own, or those of all that is inside, else that of what it is
    inside of. Empty if nothing is known."""
    for length in range(len(path), 0, -1):
        here = path[:length]
        found = [origins[here]] if here in origins else [origins[each] for each in origins if each[:length] == here]
        if found:
            return f" (from {', '.join(dict.fromkeys(each.origin_at(path) for each in found))})"
    return ""


def retry_path(name: str) -> SettingPath:
    """The path that a variable such as ``RETRY__API_MAX_ATTEMPTS`` sets."""
    family = name.removeprefix(RETRY_PREFIX).lower()
    knob = next((knob for knob in KNOBS if family.endswith(f"_{knob}")), None)
    return (RETRY, family) if knob is None else (RETRY, family.removesuffix(f"_{knob}"), knob)
