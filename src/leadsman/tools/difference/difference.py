"""What two pictures of an app do not have in common. Pure."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from leadsman.tools.difference.picture import PictureNode

How = Literal["appears", "disappears", "type", "value"]
SWAPPED: dict[How, How] = {"appears": "disappears", "disappears": "appears", "type": "type", "value": "value"}
"""What each is if the sides are exchanged."""

CONTAINERS = {"object", "list"}
"""Types of places with something below them."""


class Change(NamedTuple):
    """A place at which two pictures differ. What is below a place that appears or disappears is no further change, nor
    is the value of one that has another type."""

    path: tuple[str, ...]
    how: How
    before: object
    """The type, or the value; null where there is none, or where the first that differ are not in a picture."""
    after: object


def changes(before: PictureNode, after: PictureNode, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """What differs below a place that both have, in the order of the names.

    Args:
        before: as it is.
        after: as it will be.
        path: the names of the places that lead there.
    """
    if before["types"] != after["types"]:
        yield Change(path, "type", _type(before), _type(after))
    elif None not in (before["digest"], after["digest"]) and before["digest"] != after["digest"]:
        yield Change(path, "value", *_first_different(before["values"], after["values"]))
    if CONTAINERS & {*before["types"]} != CONTAINERS & {*after["types"]}:
        return
    was, will = before["fields"], after["fields"]
    for name in sorted({*was, *will}):
        below = (*path, name)
        if name not in was:
            yield Change(below, "appears", None, _type(will[name]))
        elif name not in will:
            yield Change(below, "disappears", _type(was[name]), None)
        else:
            yield from changes(was[name], will[name], below)


def unsteady(node: PictureNode) -> int:
    """At how many places the values differ from run to run, and cannot be compared."""
    return (node["digest"] is None) + sum(map(unsteady, node["fields"].values()))


def _type(node: PictureNode) -> str:
    return " or ".join(node["types"])


def _first_different(before: list[object], after: list[object]) -> tuple[object, object]:
    for one, other in zip(before, after, strict=False):
        if one != other or type(one) is not type(other):
            return one, other
    length = min(len(before), len(after))
    return next(iter(before[length:]), None), next(iter(after[length:]), None)
