"""Shards: groups of devices that one node polls, and that move from node to node together.

There is a lease for each shard and not for each device, so that the upkeep does not grow with the devices. Which shard
a device belongs to depends on its name, on what it needs of a node, and on the number of shards; every node computes
the same.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

ANY = "any"
"""The pool of the devices that every node can poll."""
_DIGITS = 8
"""Of the hash that names a pool: 32 bits, which two of a hundred sets of labels share once in a million clusters."""


class Shard(NamedTuple):
    """Devices that need the same of a node."""

    pool: str
    """What stands for `needs` in a key: `ANY`, or eight hexadecimal digits."""
    number: int
    """0 to the number of shards less one."""
    needs: frozenset[str]
    """The labels that a node must have to poll them."""

    @property
    def key(self) -> str:
        """The key of its lease: ``any.17``."""
        return f"{self.pool}.{self.number}"


def shard_of(device: str, needs: Collection[str], shards: int) -> Shard:
    """The shard of a device.

    Args:
        device: the name of the device.
        needs: the labels that a node must have to poll it, such as ``ble``. The devices of one set of labels share
            their shards among the nodes that have these labels.
        shards: how many shards each set of labels has, at least 1.
    """
    number = int.from_bytes(_digest(device), "big") % shards
    return Shard(pool_of(needs), number, frozenset(needs))


def pool_of(needs: Collection[str]) -> str:
    """What stands for a set of labels in the keys of its shards."""
    if not needs:
        return ANY
    return _digest("\0".join(sorted(needs))).hex()[:_DIGITS]


def devices_of(devices: Mapping[str, Collection[str]], shards: int) -> dict[Shard, tuple[str, ...]]:
    """The devices of each shard that has any.

    Args:
        devices: what each device needs, by its name.
        shards: see `shard_of`.
    """
    found: dict[Shard, list[str]] = {}
    for device, needs in devices.items():
        found.setdefault(shard_of(device, needs, shards), []).append(device)
    return {shard: tuple(sorted(names)) for shard, names in found.items()}


class Pool(NamedTuple):
    """The shards of the devices that need the same of a node."""

    name: str
    """See `Shard.pool`."""
    needs: frozenset[str]
    """See `Shard.needs`."""
    keys: tuple[str, ...]
    """Of its shards, in their order."""


def pools_of(shards: Iterable[Shard]) -> tuple[Pool, ...]:
    """The pools of shards, by name."""
    pools: dict[tuple[str, frozenset[str]], list[str]] = {}
    for shard in sorted(shards, key=lambda shard: (shard.pool, shard.number)):
        pools.setdefault((shard.pool, shard.needs), []).append(shard.key)
    return tuple(Pool(name, needs, tuple(keys)) for (name, needs), keys in pools.items())


def missing_labels(pools: Iterable[Pool], nodes: Iterable[Collection[str]]) -> tuple[Pool, ...]:
    """The pools that no node can poll, since none has all the labels that their devices need."""
    held = [frozenset(labels) for labels in nodes]
    return tuple(pool for pool in pools if not any(pool.needs <= labels for labels in held))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
