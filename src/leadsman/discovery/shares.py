"""Shares keys out among messages, where one message with all of them would be too long. Pure.

The place of a key follows from its own hash, as in extendible hashing (Fagin, Nievergelt, Pippenger and Strong,
doi:10.1145/320083.320092). So a new key moves no other one, unless a message becomes too long by it: then the keys of
that message alone are shared out anew, and those of one half stay where they are.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

FIRST = ""
"""The message that there always is."""


def shared_out(keys: Sequence[str], fits: Callable[[str, Sequence[str]], bool]) -> Mapping[str, Sequence[str]]:
    """The keys of each message, by the name of the message, which consists of ``0`` and ``1``.

    Args:
        keys: the keys, each once. Those of a message are in the same order.
        fits: whether the message of this name is short enough with these keys. It is asked again with fewer until it
            agrees, or until one key is left; the first message may be left without any.
    """
    return _shared_out(keys, fits, "")


def _shared_out(
    keys: Sequence[str], fits: Callable[[str, Sequence[str]], bool], prefix: str
) -> dict[str, Sequence[str]]:
    """The messages with the keys whose hashes begin with `prefix`. One half keeps the name of the whole: it has no more
    than the zeros at the end are."""
    name = prefix.rstrip("0")
    if not keys:
        return {FIRST: keys} if name == FIRST else {}
    if (len(keys) == 1 and name != FIRST) or fits(name, keys):
        return {name: keys}
    halves = {bit: [key for key in keys if _bit(key, len(prefix)) == bit] for bit in "01"}
    return _shared_out(halves["0"], fits, f"{prefix}0") | _shared_out(halves["1"], fits, f"{prefix}1")


def _bit(key: str, number: int) -> str:
    """One bit of the hash of a key. Beyond its end all are ones."""
    bits = f"{int.from_bytes(hashlib.sha256(key.encode(errors='surrogatepass')).digest()):0256b}"
    return bits[number : number + 1] or "1"
