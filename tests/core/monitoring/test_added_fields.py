"""Fields that functions add to a document: what one of them does wrong costs neither the document nor the others."""

import asyncio
import functools
import re
import sys

import pytest

from leadsman.core.monitoring.added_fields import MAX_BYTES, AddedFields
from leadsman.errors import InvalidType

TAKEN = {"state": "online", "mqtt": {}}
"""What the document has."""


class Adds:
    """Can be called, with nothing."""

    def __call__(self):
        """Adds nothing."""


def loop_of_lists():
    found = []
    found.append(found)
    return found


def fails(error):
    def function(fields):
        fields["before"] = 1
        raise error

    return function


def adds(fields):
    return lambda added: added.update(fields)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fails(ZeroDivisionError("of mine")), "of mine"),
        (fails(SystemExit(3)), "3"),
        (fails(asyncio.CancelledError()), ""),
        (fails(GeneratorExit()), ""),
        (lambda: None, "takes 0 positional arguments but 1 was given"),
        (adds({"state": "offline"}), "'state' is a field of leadsman; choose another name"),
        (adds({"x": object()}), "'x' is <object object at .* JSON cannot have"),
        (adds({"x": float("nan")}), "'x' is nan, which JSON cannot have"),
        (adds({"x": {1, 2}}), "'x' is {1, 2}, which JSON cannot have"),
        (adds({"x": {(1, 2): 3}}), "'x' is {.*}, which JSON cannot have"),
        (adds({"x": loop_of_lists()}), "JSON cannot have"),
        (adds({("x", 1): 2}), r"\('x', 1\) is no name of a field; write text"),
        (adds({"x": "y" * MAX_BYTES}), f"'x' has {MAX_BYTES + 2:,} bytes; add {MAX_BYTES:,} at most"),
    ],
)
def test_what_one_function_does_wrong_costs_only_what_it_adds(function, said):
    faults, document = [], dict(TAKEN)
    fields = AddedFields("a section", faults.append)
    fields.add(adds({"first": 1}))
    fields.add(function)
    fields.add(adds({"last": 2}))

    fields.to(document)

    assert document == TAKEN | {"first": 1, "last": 2}
    (fault,) = faults
    assert fault.where.startswith("a section, ")
    assert re.search(said, str(fault.error))


def test_each_function_gets_what_the_document_is_about_and_an_empty_dict():
    seen = []
    fields = AddedFields("a section", seen.append)
    fields.add(lambda device, added: seen.append((device, dict(added))))

    fields.to(dict(TAKEN), "boiler")

    assert seen == [("boiler", {})]


def test_a_person_who_ends_the_process_does_so_in_a_function_too():
    fields = AddedFields("a section", print)
    fields.add(fails(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        fields.to({})


async def late(fields):
    pass


@pytest.mark.parametrize(
    ("given", "said"),
    [(5, "a section: 5 is no function; give one"), (late, "late is async, and nobody awaits it; write a plain def")],
)
def test_what_cannot_be_called_at_once_is_refused(given, said):
    with pytest.raises(InvalidType, match=said):
        AddedFields("a section", print).add(given)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (fails, f"{__name__}.fails"),
        (functools.partial(adds, {}), f"{__name__}.adds"),
        (Adds(), f"{__name__}.Adds"),
        (sys.exit, "sys.exit"),
        ((1).__add__, "builtins.int.__add__"),
    ],
)
def test_a_fault_names_the_function(function, name):
    faults = []
    fields = AddedFields("a section", faults.append)
    fields.add(function)

    fields.to({}, "a", "b", "c")

    assert [each.where for each in faults] == [f"a section, {name}"]
