"""Runs one handler's calls under its guards, and repeats a failed call as its policy decides.

The guards of a call are composed once, when the handler is registered. Each takes a call and gives a call::

    admit ─▶ run ─ retry ─┬─ bus lock ─ deadline ─ call
    (circuit guard)       ╰─ sleep, without the bus lock

**The fast path.** `Execution` remembers whether a success would change anything. While `calm` is True, all of the
following hold: the handler shares no guards with others, its circuit is closed and counts no failure, `_pass` is a
permit of it, there is no `FailureStreak`, and no deferral is in effect. A success then changes nothing. So `admit` need
not be asked, `run` does not call `succeed`, and a successful call costs two reads of this attribute.

Whatever ends one of these conditions calls `_disturbed`: a failure, a request of a person about the circuit, a restored
state. A cycle that is under way has the permit `_pass` from then on. Only `succeed` sets `calm` to True again. With
shared guards it is never True.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from leadsman.core.events import AppFault, AttemptFailed
from leadsman.core.loop.durations import NEVER
from leadsman.core.loop.tasks import forget_cancellations
from leadsman.core.resilience import overrides
from leadsman.core.resilience.backoff import wait_of
from leadsman.core.resilience.breaker import CycleOutcome, Permit, unchanging
from leadsman.core.resilience.circuit import PASS, CircuitGuard
from leadsman.core.resilience.deadline import CANCEL_SECONDS
from leadsman.core.resilience.decision import Decision, Document, FailureStreak, decide, give_up, streak_from_json
from leadsman.core.resilience.environment import Caller, Environment, GuardSpec, Snapshot
from leadsman.core.resilience.failure import Failure, RetryRequested, sift
from leadsman.core.resilience.guards import NO_SHARED_GUARDS, BusLock, SharedGuards, ThreadGuard, guard_call
from leadsman.core.resilience.policy import GiveUp, Policy, Verdict
from leadsman.core.resilience.turns import LineUser
from leadsman.errors import Abandoned

T = TypeVar("T", covariant=True)

_LEASE = 60.0
"""Seconds that a probe may hold its permit, if its calls have no timeout."""


class Execution(Generic[T]):
    """Runs one handler's calls, and holds the state of their retries. One cycle at a time.

    Args:
        name: the entity, for events.
        call: the call to guard; a coroutine function without arguments.
        guards: how to guard it.
        environment: timers, clock and events.
        bus_lock: the lock of the bus that the call shares with others, if any.
        thread: waits for the thread of a plain ``def`` handler.
        caller: has the handler, and is notified of a call that does not end.
        shared: the guards that the handler shares with others.
    """

    __slots__ = (
        "_bus_lock",
        "_call",
        "_called_at",
        "_caller",
        "_environment",
        "_guards",
        "_pass",
        "_permit",
        "_reported",
        "_shared",
        "_streak",
        "attempts",
        "calm",
        "circuit",
        "gave_up",
        "name",
        "resumes_at",
    )

    def __init__(
        self,
        name: str,
        call: Callable[[], Awaitable[Any]],
        guards: GuardSpec,
        environment: Environment,
        *,
        bus_lock: BusLock | None = None,
        thread: ThreadGuard | None = None,
        caller: Caller | None = None,
        shared: SharedGuards = NO_SHARED_GUARDS,
    ) -> None:
        self.name = name
        self.circuit = CircuitGuard(name, guards.breaker, environment, shared.circuit, caller)
        """Admits cycles and counts their outcomes."""
        self.attempts = 0
        """Calls made in the current cycle, or in the last one that failed."""
        self.resumes_at = NEVER
        """When the next retry is due, monotonic seconds."""
        self.gave_up = ""
        """Why the last failed cycle was not retried further."""
        self._guards = guards
        self._environment = environment
        self._bus_lock = bus_lock
        self._caller = caller
        self._shared = shared
        self._streak: FailureStreak | None = None
        self._pass = PASS
        self._permit: Permit | None = None
        self._called_at = math.inf  # when the call under way began; infinity once it has shown that the device works
        self.calm = shared is NO_SHARED_GUARDS
        """Whether a success would change nothing: the fast path is open. Others read it only."""
        self._reported: tuple[str, ...] = ()
        lines = None
        if guards.adapters or bus_lock is not None:
            lines = LineUser(name, looks=thread is None)
        self._call = guard_call(
            call, self, environment, timeout=guards.timeout, bus_lock=bus_lock, thread=thread, lines=lines
        )

    def snapshot(self) -> Snapshot:
        """The current state. Reading it changes nothing."""
        return self.circuit.snapshot(self.attempts, self.retries())

    def retries(self) -> int:
        """Retries since the last success."""
        return 0 if self._streak is None else self._streak.waits

    def context_attempts(self) -> int:
        """The retries that the handler is shown: those since the last success, or since it last gave up."""
        return 0 if self._streak is None else self._streak.attempts

    def to_json(self) -> dict[str, object]:
        """The state as JSON-compatible values, for `restore` after a restart; empty if there is nothing to keep."""
        now, streak = self._environment.clock.monotonic(), self._streak
        if streak is None:
            return self.circuit.to_json(now)
        return {"streak": streak.to_json(now), "pending": max(0.0, self.resumes_at - now)} | self.circuit.to_json(now)

    def restore(self, document: Document, away: float) -> float:
        """Go on with the state that `to_json` returned `away` seconds ago.

        Returns:
            Seconds until the pending retry.

        Raises:
            KeyError, TypeError, ValueError: the document was not made by `to_json`.
        """
        now, pending = self._environment.clock.monotonic(), float(document.get("pending", 0.0))
        kept = document.get("streak")
        found = None if kept is None else streak_from_json(kept, self._guards.policy, now, away)
        if document:
            self._disturbed()
        self.circuit.restore(document, now, away)
        self._streak = found
        return max(0.0, pending - away)

    def isolate(self) -> None:
        """Admit no cycle until `close` or `disable` is called, because a person works at the device."""
        self._disturbed()
        self.circuit.isolate()

    def close(self) -> None:
        """Close the circuit and reset all counters. The outage lasts until a success."""
        self._disturbed()
        if self._streak is not None:
            state = self._streak.policy.start()
            self._streak = self._streak._replace(
                state=state, waits=0, resumed=False, others=(), asked=False, given_up=0
            )
        self.circuit.close()

    def disable(self) -> None:
        """Admit every cycle, whatever fails, until `close` or `isolate` is called."""
        self._disturbed()
        self.circuit.disable()

    def admit(self) -> bool:
        """Ask for permission to run a cycle. After True, `run` must follow. While `calm` is True, so may `run` at
        once."""
        if self.calm:
            return True
        self._permit = self.circuit.admit((self._guards.timeout or _LEASE) + CANCEL_SECONDS)
        return self._permit is not None

    async def run(self, now: float | None = None) -> T:
        """Run one cycle of calls and return the result of the successful call.

        Args:
            now: monotonic seconds. None reads the clock.

        Raises:
            Exception: the error of the last call, once no more retries are due.
            CancelledError: passed through, also when the handler's clean-up turned it into another error.
        """
        self._called_at = self._environment.clock.monotonic() if now is None else now
        try:
            result = await self._call()
            taken: T = result if self._caller is None else self._caller.taken(result)
        except Exception as error:
            failed = error
        except BaseException:
            self._settle(CycleOutcome.NEUTRAL)
            raise
        else:
            if not self.calm:
                if self._shared.tokens is not None:
                    self._shared.tokens.give_back()
                self.succeed()
            return taken
        try:
            return await self._recover(failed)  # not above, where each later error would name this one as its context
        finally:
            del failed  # its traceback holds this frame

    async def _recover(self, error: Exception) -> T:
        self.attempts = 1
        clock = self._environment.clock
        if self._streak is not None:
            self._streak = self._streak._replace(cycle=self._streak.cycle + 1)
        try:
            while True:
                self._disturbed()
                if self._streak is None:  # the first failure, or a source has given readings since the last one
                    self._streak = self._begun()
                policies, error = overrides.take(error), sift(error)
                verdict = self._judge(error, self._streak, policies)
                if isinstance(verdict, GiveUp):
                    raise error
                error.__traceback__ = None  # it was reported; it holds the frames, and grows if it is raised again
                self.resumes_at = clock.monotonic() + verdict.delay
                await self._environment.timers.sleep(verdict.delay)
                if self.circuit.isolated:
                    self.gave_up = "isolated"
                    raise error
                self.attempts += 1
                self._called_at = clock.monotonic()
                try:
                    result = await self._call()
                    taken: T = result if self._caller is None else self._caller.taken(result)
                except Exception as again:
                    error = again
                else:
                    self.succeed()
                    return taken
        except BaseException as final:
            if isinstance(final, Exception) and not isinstance(final, RetryRequested) and self._streak is not None:
                self._streak = self._streak.end()
            self._settle(self.circuit.outcome_of(final))
            raise

    def _begun(self) -> FailureStreak:
        """The state of an outage that begins with the call that has just failed."""
        clock, policy = self._environment.clock, self._guards.policy
        now = clock.monotonic()
        since = min(self._called_at, now)
        return FailureStreak(policy, policy.start(), 0, 0, now, since, clock.wall() - (now - since))

    def _judge(self, error: Exception, streak: FailureStreak, policies: tuple[Policy, ...]) -> Verdict:
        """Decide about a failed call, and report it with the decision."""
        if self._environment.stopping.is_set():  # clean-up in the handler must not turn a cancellation into a retry
            raise asyncio.CancelledError from error
        forget_cancellations()
        if isinstance(error, Abandoned):  # it was reported and counted when it was abandoned
            raise error
        now = self._environment.clock.monotonic()
        self._streak, verdict, deferred = self._decide(error, streak, now, policies)
        if deferred is not None:
            self.circuit.deferred_until = now + deferred
        delay, reason = (None, verdict.reason) if isinstance(verdict, GiveUp) else (verdict.delay, "retry")
        self.gave_up, request = reason, isinstance(error, RetryRequested)
        if request:
            self._streak = self._streak._replace(asked=True)
        outage, circuit, first = (
            (streak.cycle, streak.began, streak.wall),
            self.circuit.name,
            streak.began - streak.since,
        )
        event = AttemptFailed(self.name, error, self.attempts, delay, reason, *outage, circuit, request, first=first)
        self._environment.events.emit(event)
        return verdict

    def _decide(self, error: Exception, streak: FailureStreak, now: float, policies: tuple[Policy, ...]) -> Decision:
        facts = {} if self._caller is None else {**self._caller.facts(), "breaker": self.circuit.name}
        age, report = now - streak.began, self.on_strategy_error
        wall = self._environment.clock.wall()
        failure = Failure(error, facts, streak.cycle, age, streak.waits, streak.resumed, report, wall)
        if self.circuit.isolated:
            return Decision(streak, GiveUp("isolated"))
        horizon = math.inf if self._caller is None else self._caller.horizon()
        if self._permit is not None and self._permit.probe:
            return give_up(streak, failure, "probe", horizon - now)
        asked, tokens = (*policies, *self._environment.overriding(self.name)), self._shared.tokens
        return decide(failure, streak, asked, now, horizon, tokens, random.random)

    def wait(self, attempt: int) -> float:
        """Ask the backoff for a wait. An exception in a user's strategy is reported once, and the default is used
        instead."""
        return wait_of(self._guards.policy.strategy, attempt, random.random, self.on_strategy_error)

    def on_strategy_error(self, strategy: object, error: Exception) -> None:
        """Report that a user's strategy or policy raised an exception: once for each kind."""
        rule = self._guards.breaker
        recovery = rule is not None and strategy is rule.recovery
        what = "policy" if isinstance(strategy, Policy) else "recovery" if recovery else "backoff"
        if what not in self._reported:
            self._reported = (*self._reported, what)
            instead = "there are no retries" if what == "policy" else "the default is used instead"
            self._environment.events.emit(AppFault(f"{what} of {self.name}; {instead}", error))

    def succeed(self) -> None:
        """Reset the counters: the current call has shown that the device works."""
        self._called_at = math.inf
        if not self.calm:
            self._streak = None
            self.circuit.deferred_until = NEVER
            self._settle(CycleOutcome.SUCCEEDED)
            if self._shared is NO_SHARED_GUARDS and (permit := unchanging(self.circuit.state)) is not None:
                self._pass, self.calm = permit, True

    def _disturbed(self) -> None:
        """A success would change something from now on."""
        if self.calm:
            self.calm, self._permit = False, self._pass

    def _settle(self, outcome: CycleOutcome) -> None:
        """Report the outcome of the cycle, once."""
        permit, self._permit = self._permit, None
        if permit is not None:
            self.circuit.settle(permit, outcome, self.on_strategy_error)

    def abandoned(self, error: Abandoned) -> None:
        """The call does not end: count the cycle as failed, and let others use the bus."""
        self._disturbed()
        self._settle(CycleOutcome.FAILED)
        if self._bus_lock is not None:
            self._bus_lock.give_back(self)
        if self._caller is not None:
            self._caller.abandoned(error)
