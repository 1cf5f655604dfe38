import copy
import pickle

import pytest

from leadsman import CircuitBreaker, Delivery, Every, ExponentialBackoff, OnChange
from leadsman.adapters.serial.framing import LineFramer

VALUES = [ExponentialBackoff(), CircuitBreaker(3), OnChange(0.5) | Every("5m"), Delivery(), LineFramer()]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_cannot_be_changed(value):
    name = value._names[0]

    with pytest.raises(AttributeError, match="make another one"):
        setattr(value, name, 1)
    with pytest.raises(AttributeError, match="make another one"):
        delattr(value, name)


def test_values_that_hold_the_same_are_equal_and_hash_the_same():
    assert OnChange(0.5) | Every("5m") == OnChange(0.5) | Every(seconds=300)
    assert len({OnChange(), OnChange(0), Every(n=2), Every(n=3)}) == 3
    assert OnChange() | Every(n=2) != OnChange() & Every(n=2)
    assert OnChange() != Every(n=2)
    assert OnChange() != 0.0


def test_a_value_shows_what_it_holds():
    assert repr(OnChange(0.5) | Every(n=2)) == (
        "AnyOf(left=OnChange(deadband=0.5, fields=()), right=Every(n=2, seconds=None))"
    )


def test_a_copy_of_a_value_is_the_value_itself():
    value = OnChange(0.5)

    assert copy.copy(value) is value
    assert copy.deepcopy([value])[0] is value


def test_pickling_a_value_is_refused_with_what_to_do():
    with pytest.raises(TypeError, match="construct it again where it is needed"):
        pickle.dumps(OnChange())
