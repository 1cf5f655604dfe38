"""Documents of JSON as anybody may have published them: valid, cut, huge, deep, or with values that lie."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

DEEP = 200_000
"""Levels of nesting, beyond what a parser of JSON goes down to."""
LONG = 10_000_000
"""Characters of a text that is too long."""
LIES = (
    *(None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 10**4300 - 1, 0.5, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
    *("", "x", "+", "#", "a/+/b", "a/#", "$SYS/x", "\0", "\x1b[2J", "\ud800", "é", "1e999", "NaN", "online"),
    *("2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "x" * 5000),
)
"""Values that a field does not expect."""


class Payload(bytes):
    """Bytes that are shown in short."""

    def __repr__(self) -> str:
        return bytes.__repr__(self) if len(self) <= SHOWN else f"{bytes(self[:SHOWN])!r}… {len(self)} bytes"


SHOWN = 2000
"""Bytes of a payload that a failed test shows."""
BOMBS = (
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b'"' + b"x" * LONG + b'"',
    b'{"devices":"' + b"x" * LONG + b'"}',
    b"9" * 10_000,
    b'{"devices":' + b"9" * 10_000 + b"}",
    b"\xff\xfe",
    b"",
    b"null",
    b"NaN",
    b'{"a":1,"a":2}',
)
"""Payloads as they are."""


def values() -> st.SearchStrategy[Any]:
    """Any value of JSON, and the numbers that Python writes as JSON although they are none."""
    leaves = st.sampled_from(LIES) | st.integers() | st.floats() | st.text(max_size=8)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    )


@st.composite
def documents(draw: st.DrawFn, *samples: Any) -> Any:
    """One of the samples with some of its values replaced, keys renamed, or members left out."""
    found = copy.deepcopy(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 3))):
        holders = [each for each in _inside(found) if each]
        if not holders:
            break
        holder = draw(st.sampled_from(holders))
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        match draw(st.sampled_from(["replace", "rename", "drop"])):
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from([each for each in LIES if isinstance(each, str)]))] = holder.pop(key)
            case "drop":
                del holder[key]
            case _:
                holder[key] = draw(values())
    return found


@st.composite
def payloads(draw: st.DrawFn, *samples: Any) -> bytes:
    """The bytes of `documents`, of any value, cut somewhere, or a bomb."""
    if draw(st.integers(0, 20)) == 0:
        return Payload(draw(st.sampled_from(range(len(BOMBS))).map(BOMBS.__getitem__).map(Payload)))
    whole = json.dumps(draw(documents(*samples) | values() if draw(st.booleans()) else documents(*samples))).encode()
    return Payload(whole[: draw(st.integers(0, len(whole)))] if draw(st.integers(0, 9)) == 0 else whole)


def _inside(value: Any) -> list[Any]:
    """The objects and arrays in a value, itself included."""
    if not isinstance(value, dict | list):
        return []
    members = value.values() if isinstance(value, dict) else value
    return [value, *(found for each in members for found in _inside(each))]
