"""The turns of one line: several units share it, one is asked at a time, and some of them are silent.

A line is whatever serves one call after another: a serial line, a gateway, a bus, a radio. Who wants it asks for a
turn, waits, has its turn, and gives it back. Without silent units the turns go in the order in which they were asked
for.

A unit is **silent** if its last turn ended with an error after more than a short look, and if another unit has had a
turn: one that has the line to itself costs nobody anything. Silent units go last, and their turns are **looks**:

* A look begins once the line has been quiet for as long as a usual answer takes: so it is not between two requests of
  one handler, nor before units that are due at the same moment.
* It is *short*, `SHORT_LOOK_ANSWERS` usual answers, as long as somebody who is not silent waits. A look that has lasted
  longer is cut when such a unit asks. So a healthy unit waits for one short look at most, whatever is dead.
* Looks that fail take at most a fifth (`SHARE`) of the time of the line, also while it is not wanted otherwise. What is
  left of this share becomes longer looks, each twice as long as the last one, so that a unit that answers slower than
  the others is read, too.
* If the line is never quiet, a silent unit has its short look when it has waited for `1 / SHARE` of one since the last.

A unit that has never been asked has an ordinary turn, which may be cut after a part of its timeout, `FIRST_TURN_SHARE`,
while others wait: at the start nobody knows who is silent.

How long an answer takes is learned from turns that succeed: of the line, and of each unit. A unit that is slower than
its line has longer looks.

Pure: `now` is monotonic seconds.
"""

import math
from collections import deque
from collections.abc import Hashable

SHARE = 0.2
"""The part of the line's time that looks at silent units may take when they fail."""
SHORT_LOOK_ANSWERS = 4
"""A short look is this many usual answers. Modbus leaves the turnaround to the user, 1 s for serial lines as a rule
(Modbus over serial line 1.02, 2.4.1), which is some fifty usual answers; units answer within one or two."""
MIN_LOOK_SECONDS = 0.02
"""Seconds: the shortest look. The latency timer of an FTDI converter alone is 16 ms (FTDI AN232B-04)."""
FIRST_TURN_SHARE = 0.3
"""The part of its timeout that the first turn of a unit lasts at least, while others wait. So a device with a timeout
of 1 s must answer in 0.3 s to be read at once, and one with 30 s has 9 s."""
MAX_SAVED_SECONDS = 5.0
"""Seconds: the longest time for looks that a line saves."""
LEARN = 0.2
"""The weight of the newest answer in what is usual."""


class Unit:
    """What a line knows of one unit."""

    __slots__ = ("silent", "usual", "wanted")

    def __init__(self) -> None:
        self.usual: float | None = None
        """Seconds that an answer of it takes; None if there was none."""
        self.silent = False
        self.wanted = 0.0
        """Seconds that its next look should last, if there is time."""


class Turn:
    """A turn that was asked for.

    Args:
        who: the unit; None for a turn of nobody, which is never cut, and teaches nothing.
        asked: when, monotonic seconds.
        look: whether it may be a look: not if a person waits for it.
        first: seconds that it lasts at least, if the unit has never been asked.
    """

    __slots__ = ("asked", "began", "cut_from", "first", "is_look", "until", "who")

    def __init__(self, who: Hashable | None, asked: float, *, look: bool, first: float) -> None:
        self.who = who
        self.asked = asked
        self.first = first
        self.is_look = look
        """Before it has begun: whether it may be one."""
        self.began = math.inf
        """When it began, monotonic seconds; infinity before that, and while the line is being opened."""
        self.until = math.inf
        """When it is over, whether there is an answer or not, monotonic seconds."""
        self.cut_from = math.inf
        """From when on it may be cut if somebody waits, monotonic seconds."""


def _learned(usual: float | None, took: float) -> float:
    return took if usual is None else usual + LEARN * (took - usual)


class Turns:
    """Who has the line, and who waits for it. After each `ask`, `end` and `leave`, and at the time that it returned
    last, `step` is called; it may give the line to one that waits."""

    def __init__(self) -> None:
        self.holder: Turn | None = None
        self.usual: float | None = None
        """Seconds that an answer on this line takes; None before the first one."""
        self._units: dict[Hashable, Unit] = {}
        self._waiting: deque[Turn] = deque()
        self._silent: deque[Turn] = deque()  # those of silent units
        self._credit = 0.0  # seconds that looks may take
        self._credited = -math.inf
        self._quiet_since = -math.inf
        self._looked_at = -math.inf  # when the last look ended

    def short(self, who: Hashable) -> float:
        """Seconds of a short look at a unit."""
        unit = self._units.get(who)
        own = None if unit is None else unit.usual
        return max(MIN_LOOK_SECONDS, SHORT_LOOK_ANSWERS * max(self.usual or 0.0, own or 0.0))

    def is_silent(self, who: Hashable | None) -> bool:
        """Whether the last turn of a unit got no answer, on a line on which some have answered: if nobody ever has,
        answers may take long. A unit that has its line to itself never counts as silent."""
        unit = self._units.get(who)
        return unit is not None and unit.silent and self.usual is not None and len(self._units) > 1

    def ask(self, who: Hashable | None, now: float, *, look: bool = True, first: float = math.inf) -> Turn:
        """Ask for a turn; the arguments are those of `Turn`."""
        turn = Turn(who, now, look=look and who is not None, first=first)
        (self._silent if turn.is_look and self.is_silent(who) else self._waiting).append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """Whoever waited for a turn waits no longer."""
        for queue in (self._waiting, self._silent):
            if turn in queue:
                queue.remove(turn)

    def step(self, now: float) -> float:
        """Give the line to the next one, or say when the turn under way is over. Returns when to call it again,
        monotonic seconds; infinity: only after something has happened."""
        holder = self.holder
        if holder is not None:
            if self._waiting:
                holder.until = min(holder.until, max(now, holder.cut_from))
            return holder.until
        if self._waiting and not self._overdue(now):
            self._begin(self._waiting.popleft(), now)
        elif self._silent:
            at = self._look_at(now)
            if at > now:
                return at
            self._begin(self._silent.popleft(), now)
        return math.inf if self.holder is None else self.step(now)

    def opening(self) -> None:
        """The line is being opened in the turn under way: that is no time of the unit."""
        if self.holder is not None:
            self.holder.began = self.holder.until = self.holder.cut_from = math.inf

    def begin(self, now: float) -> None:
        """The line is open now: the turn under way begins again."""
        if self.holder is not None:
            self._time(self.holder, now)

    def end(self, turn: Turn, now: float, *, answered: bool | None) -> None:
        """The turn is over. `answered`: whether it succeeded; None: that says nothing about the unit, such as a turn in
        which nothing was asked."""
        if self.holder is not turn:
            return
        self.holder = None
        self._quiet_since = now
        took = now - turn.began
        if turn.who is None or took < 0 or answered is None:
            return
        unit = self._units.setdefault(turn.who, Unit())
        if answered:
            unit.silent, unit.wanted = False, 0.0
            unit.usual, self.usual = _learned(unit.usual, took), _learned(self.usual, took)
            return
        if turn.is_look and self.is_silent(turn.who):
            self._credit -= took
            self._looked_at = now
            if now >= turn.until and took >= unit.wanted:  # no answer came; one that takes longer may
                unit.wanted = 2 * took
            elif now < turn.until:  # whoever asked gave up
                unit.wanted = 0.0
        elif took >= self.short(turn.who):
            unit.silent = True
            unit.wanted = 2 * took if now >= turn.until else 0.0

    def _overdue(self, now: float) -> bool:
        """Whether the first silent unit goes before those that wait."""
        if not self._silent:
            return False
        first = self._silent[0]
        short = self.short(first.who)
        waits_since = max(first.asked, self._looked_at)
        return waits_since + short / SHARE <= now and self._saved(now) >= short

    def _look_at(self, now: float) -> float:
        """When the first silent unit has its look, if nobody else asks before that."""
        short, saved = self.short(self._silent[0].who), self._saved(now)
        wait = 0.0 if saved >= short else (short - saved) / SHARE + MIN_LOOK_SECONDS / SHORT_LOOK_ANSWERS
        return max(now + wait, self._quiet_since + (self.usual or 0.0))

    def _saved(self, now: float) -> float:
        """Seconds that looks may take now."""
        if now > self._credited:
            passed = now - self._credited if math.isfinite(self._credited) else 0.0
            self._credit, self._credited = min(MAX_SAVED_SECONDS, self._credit + SHARE * passed), now
        return self._credit

    def _begin(self, turn: Turn, now: float) -> None:
        self.holder = turn
        self._time(turn, now)

    def _time(self, turn: Turn, now: float) -> None:
        turn.began = now
        if not turn.is_look:
            return
        unit = self._units.get(turn.who)
        if unit is None or self.usual is None:
            turn.cut_from = now + max(turn.first, self.short(turn.who))
        elif self.is_silent(turn.who):
            short = self.short(turn.who)
            turn.cut_from = now + short
            share = self._saved(now) / (len(self._silent) + 1)
            turn.until = now + max(short, unit.wanted if unit.wanted <= share else 0.0)
