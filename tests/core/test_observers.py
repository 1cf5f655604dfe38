"""Functions that parts of an app have called."""

import pytest

from leadsman.core.observers import Observers, guarded


def test_what_is_guarded_is_called_and_a_person_who_ends_the_process_does_so_there_too():
    def leave():
        raise KeyboardInterrupt

    assert guarded(print, "here", divmod, 7, 2) == (3, 1)
    with pytest.raises(KeyboardInterrupt):
        guarded(print, "here", leave)


def test_observers_are_called_in_their_order_and_one_that_raises_costs_no_other():
    faults, seen = [], []
    observers = Observers("a list", faults.append)
    assert not observers
    observers.add(lambda name, size: seen.append(("first", name, size)))
    observers.add(lambda name, size: 1 / 0)
    observers.add(lambda name, size: seen.append(("last", name, size)))

    observers("meter", size=3)

    assert observers
    assert seen == [("first", "meter", 3), ("last", "meter", 3)]
    (fault,) = faults
    assert fault.where.startswith(f"a list, {__name__}.test_observers_are_called")
    assert isinstance(fault.error, ZeroDivisionError)
