from hypothesis import assume, given
from hypothesis import strategies as st

from leadsman.extensions.discovery.homeassistant import MAIN_MESSAGE, split_keys

sizes = st.dictionaries(st.text(), st.integers(1, 60), max_size=40)


def shared(keys, most=100, first=40):
    """The messages for keys with sizes; `first` is the size of the first one without keys."""
    return split_keys(list(keys), lambda name, some: size(keys, name, some, first) <= most)


def size(keys, name, some, first=40):
    return sum(keys[each] for each in some) + (first if name == MAIN_MESSAGE else 0)


@given(sizes)
def test_each_key_is_in_one_message_and_the_first_message_is_always_there(keys):
    found = shared(keys)

    assert MAIN_MESSAGE in found
    assert sorted(key for some in found.values() for key in some) == sorted(keys)
    assert all(some for name, some in found.items() if name != MAIN_MESSAGE)


@given(sizes)
def test_a_message_is_short_enough_or_has_no_more_than_one_key(keys):
    for name, some in shared(keys).items():
        assert size(keys, name, some) <= 100 or len(some) <= (0 if name == MAIN_MESSAGE else 1)


@given(sizes)
def test_what_fits_into_one_message_is_in_one(keys):
    assert len(shared(keys, most=40 + 60 * 40)) == 1


@given(sizes, st.randoms())
def test_the_order_of_the_keys_moves_none(keys, random):
    other = list(keys.items())
    random.shuffle(other)

    assert placed(shared(keys)) == placed(shared(dict(other)))


@given(sizes, st.text(), st.integers(1, 60))
def test_a_new_key_moves_keys_of_at_most_one_message_and_only_to_new_ones(keys, key, length):
    assume(key not in keys)
    before, after = shared(keys), shared({**keys, key: length})

    moved = {each for each, name in placed(before).items() if placed(after)[each] != name}
    assert len({placed(before)[each] for each in moved}) <= 1
    assert not {placed(after)[each] for each in moved} & before.keys()


def placed(messages):
    return {key: name for name, keys in messages.items() for key in keys}
