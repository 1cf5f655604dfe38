"""Faults of a cluster as functions of time: what a node, its network, its clock or the engine suffers, and when. All
times are seconds of the loop's clock, which is zero at the start of a virtual loop."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Partition(NamedTuple):
    """A node and the engine do not reach each other."""

    node: str
    start: float
    end: float
    answers_only: bool = False
    """The engine gets what the node sends, and only the answers are lost."""


class Pause(NamedTuple):
    """The process of a node is stopped, as by SIGSTOP or by a virtual machine that is moved."""

    node: str
    start: float
    end: float


class EngineAway(NamedTuple):
    """The engine is down, and comes back with all that it had."""

    start: float
    end: float


class ClockStep(NamedTuple):
    """A wall clock is set, forward or, when negative, back."""

    at: float
    by: float
    """Seconds."""
    node: str = ""
    """The node whose clock it is; that of the engine without one."""


Fault = Partition | Pause | EngineAway | ClockStep


class Script:
    """A list of faults, asked by time."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = tuple(faults)

    def request_lost(self, node: str, now: float) -> bool:
        """Whether what the node sends now does not arrive."""
        return any(isinstance(fault, EngineAway) or not fault.answers_only for fault in self._cuts(node, now))

    def answer_lost(self, node: str, now: float) -> bool:
        """Whether what the engine sends to the node now does not arrive."""
        return next(iter(self._cuts(node, now)), None) is not None

    def resumes_at(self, node: str, now: float) -> float:
        """When the process of the node goes on; `now` unless it is stopped."""
        goes_on = now
        for fault in sorted(fault for fault in self._faults if isinstance(fault, Pause)):
            if fault.node == node and fault.start <= goes_on < fault.end:
                goes_on = fault.end
        return goes_on

    def clock_offset(self, node: str, now: float) -> float:
        """By how many seconds the wall clock of a node was set until now; that of the engine for the empty string."""
        steps = (fault for fault in self._faults if isinstance(fault, ClockStep))
        return sum(fault.by for fault in steps if fault.node == node and fault.at <= now)

    def _cuts(self, node: str, now: float) -> Iterator[Partition | EngineAway]:
        for fault in self._faults:
            if isinstance(fault, ClockStep | Pause) or not fault.start <= now < fault.end:
                continue
            if isinstance(fault, EngineAway) or fault.node == node:
                yield fault
