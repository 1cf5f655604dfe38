"""What a process holds: counted where it was allocated, since an allocator keeps pages that it may need again."""

import ctypes
import ctypes.util
import json
import linecache
import signal
import sys
from typing import Any, NamedTuple

from benchmarks.account import Account
from leadsman.extensions.ledger.ledger import Ledger

BLOCKS_OF_A_GAP = 4
"""The gap, its two times, and its slots."""


class Held(NamedTuple):
    """What the process of an app holds at one time."""

    waiting: int
    """Messages in the memory of the outbox."""
    blocks: int
    """Pieces of memory up to 512 bytes that Python has handed out (`sys.getallocatedblocks`)."""
    malloc: int
    """Bytes of larger ones, and of all that libraries in C have, SQLite for one (``mallinfo2`` of glibc)."""
    gaps: int
    """Gaps in all ledgers, 50 of each device at most."""
    lines: int
    """Lines of source files that `linecache` keeps since a traceback had a frame there: no more than all code has.
    Each of them is one block."""

    @property
    def rest(self) -> int:
        """The blocks that are nothing of both."""
        return self.blocks - BLOCKS_OF_A_GAP * self.gaps - self.lines


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2``, see mallinfo(3). glibc 2.33 has it, and later ones."""

    _fields_ = [  # ctypes wants this
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def answer(account: Account) -> None:
    """On SIGUSR1, print what this process holds, as JSON. It must be called before the app runs, since it replaces a
    method of `Ledger`."""
    mallinfo = ctypes.CDLL(ctypes.util.find_library("c")).mallinfo2
    mallinfo.restype = _Mallinfo
    ledgers: list[Ledger] = []
    begin = Ledger.__init__

    def followed_begin(ledger: Ledger, *arguments: Any) -> None:
        begin(ledger, *arguments)
        ledgers.append(ledger)

    def show(*_: object) -> None:
        found = mallinfo()
        gaps = sum(len(each.gaps()) for each in ledgers)
        lines = sum(len(each[2]) for each in linecache.cache.values() if len(each) > 1)  # others are not read yet
        held = Held(account.waiting, sys.getallocatedblocks(), found.uordblks + found.hblkhd, gaps, lines)
        print(json.dumps(held), flush=True)

    Ledger.__init__ = followed_begin  # type: ignore[method-assign,assignment]
    signal.signal(signal.SIGUSR1, show)
