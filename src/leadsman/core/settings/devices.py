"""The settings of single devices: ``[devices.boiler]``, and ``[devices."room-*"]`` for several of them.

A section whose key is the name of a device is about that device. In the key of another one, ``*`` stands for any
characters and ``?`` for one, and the section is about each device whose whole name matches. Each option is taken by
itself. Of several sections that set it, the name wins over a pattern, and of two patterns the one with more characters
that are no wildcards; of two equal ones, the one that is written later. Within one section the usual ranks hold:
flag, secret, environment, ``.env``, file.

A variable has only capitals, digits and underscores: ``DEVICES__LIVING_ROOM__INTERVAL`` is about ``living-room``, and
about ``living_room``.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from leadsman.core.settings.entry import Entries, SettingEntry
from leadsman.core.text import join_words
from leadsman.core.text.suggestion import suggestion

WILDCARDS = "*?"


class Layer(NamedTuple):
    """The entries that one section has for a device, from sources of one rank."""

    section: str
    entries: Entries
    """By the names of their options."""


class _Section(NamedTuple):
    """One section, with its entries by rank."""

    name: str
    number: int
    """Its place among all sections."""
    pattern: re.Pattern[str]
    specificity: int
    ranks: Mapping[int, Layer]
    folded: bool
    """Whether it came from sources that have only one case, and no dashes."""


class DeviceSections:
    """The sections about devices.

    Args:
        sections: the entries of each, by its key and the option.
    """

    def __init__(self, sections: Mapping[str, Entries]) -> None:
        self._names = {name: _section(name, number, each) for number, (name, each) in enumerate(sections.items())}
        self._folded = {name: each for name, each in self._names.items() if each.folded}
        self._patterns: dict[str, list[_Section]] = {}
        """By what stands before the first wildcard."""
        for each in self._names.values():
            if is_pattern(each.name):
                self._patterns.setdefault(re.split(r"[*?]", each.name)[0], []).append(each)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def of(self, name: str) -> list[Layer]:
        """The layers of settings for a device; of several that set an option, the last one counts."""
        patterns = sorted(self._matching(name), key=lambda each: (each.specificity, each.number))
        layers = [layer for each in patterns for _, layer in sorted(each.ranks.items())]
        own = [each for each in (self._folded.get(fold(name)), self._names.get(name)) if each is not None]
        if len(own) == 2 and own[0] is own[1]:
            own = own[:1]
        ranked = sorted((rank, number) for number, each in enumerate(own) for rank in each.ranks)
        return layers + [own[number].ranks[rank] for rank, number in ranked]

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """The sections that are about none of these devices."""
        left = dict(self._names)
        for name in names:
            left.pop(name, None)
            if (folded := fold(name)) in self._folded:
                left.pop(folded, None)
            for each in self._matching(name):
                left.pop(each.name, None)
        return list(left)

    def _matching(self, name: str) -> list[_Section]:
        """The patterns that match a name. The name itself does not count as a pattern."""
        begin = (self._patterns.get(name[:length], ()) for length in range(len(name) + 1))
        return [each for some in begin for each in some if each.name != name and each.pattern.fullmatch(name)]


def closest(keys: Iterable[str], name: str) -> str | None:
    """The key that counts for a device, by the same rule: its name, else the most specific pattern; None if none
    matches."""
    found = [key for key in keys if key == name or (is_pattern(key) and _regex(key).fullmatch(name))]
    ranked = {key: (key == name, _specificity(key), number) for number, key in enumerate(found)}
    return max(ranked, key=ranked.__getitem__, default=None)


def no_device(key: str, names: Collection[str]) -> str:
    """That no device of these names has this name, or matches this pattern, and which one may be meant."""
    what = "no device matches" if is_pattern(key) else "there is no device of that name"
    others = f"the app has {join_words(sorted(names)[:10]) or 'none'}"
    return f"{what}; {suggestion(key, names, others)}"


def is_pattern(key: str) -> bool:
    """Whether the key of a section has a wildcard."""
    return any(wildcard in key for wildcard in WILDCARDS)


def fold(name: str) -> str:
    """A name as a variable has it, in lower case."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def _section(name: str, number: int, entries: Entries) -> _Section:
    ranks: dict[int, dict[str, SettingEntry]] = {}
    for option, entry in entries.items():
        ranks.setdefault(entry.rank, {})[option] = entry
    return _Section(
        name,
        number,
        _regex(name),
        _specificity(name),
        {rank: Layer(name, each) for rank, each in ranks.items()},
        bool(entries) and all(entry.text for entry in entries.values()),
    )


def _regex(key: str) -> re.Pattern[str]:
    return re.compile("".join(".*" if each == "*" else "." if each == "?" else re.escape(each) for each in key), re.S)


def _specificity(key: str) -> int:
    return sum(each not in WILDCARDS for each in key)
