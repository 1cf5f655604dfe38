"""Shards: which devices move together."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from leadsman.extensions.nodes.cluster.placement import ANY, missing_labels, pool_of, pools_of, shard_of

NAMES = st.text(min_size=1, max_size=20)
LABELS = st.frozensets(st.sampled_from(["ble", "serial:/dev/ttyUSB0", "küche", "a b"]), max_size=3)


@given(NAMES, LABELS, st.integers(1, 1000))
def test_a_device_is_in_one_shard_of_its_pool_which_is_a_valid_key_everywhere(name, needs, shards):
    shard = shard_of(name, needs, shards)
    assert 0 <= shard.number < shards
    assert shard.needs == needs
    assert shard == shard_of(name, sorted(needs), shards)
    pool, _, index = shard.key.partition(".")
    assert pool.isascii()
    assert pool.isalnum()
    assert index.isdecimal()


@given(st.dictionaries(NAMES, LABELS, max_size=50), st.integers(1, 64))
def test_each_shard_has_a_key_of_its_own(devices, shards):
    found = {shard_of(name, needs, shards) for name, needs in devices.items()}
    assert len({shard.key for shard in found}) == len(found)


def test_devices_lie_evenly_in_the_shards():
    sizes = sorted(Counter(shard_of(f"meter-{number}", (), 256) for number in range(10_000)).values())
    assert len(sizes) == 256
    assert sizes[0] > 15  # 39 each, with a standard deviation of 6
    assert sizes[-1] < 70


def test_a_set_of_labels_has_a_pool_of_its_own():
    assert pool_of([]) == ANY
    assert pool_of(["a", "b"]) == pool_of(["b", "a"])
    assert len({pool_of(["a", "b"]), pool_of(["ab"]), pool_of(["a"]), ANY}) == 4


def test_a_label_that_no_node_has_is_named_with_what_waits_for_it():
    pools = pools_of(
        {
            shard_of("a", ["ble"], 16),
            shard_of("b", ["lora"], 16),
            shard_of("c", ["lora", "ble"], 16),
            shard_of("d", [], 16),
        }
    )
    missing = missing_labels(pools, [["ble"], ["wifi"]])
    assert {(pool.needs, len(pool.keys)) for pool in missing} == {
        (frozenset(["lora"]), 1),
        (frozenset(["ble", "lora"]), 1),
    }
    assert missing_labels(pools, [["ble", "lora"]]) == ()
