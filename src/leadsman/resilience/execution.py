"""Runs one handler's calls under its guards: timeout, bus lock, retry policy and circuit breaker.

::

    run ─ retry ─┬─ bus lock ─ timeout ─ call      circuit breaker: `admit` before `run`, once per cycle
                 ╰─ sleep, without the bus lock

**The fast path.** While `_calm` is True, all of the following hold: the handler shares no guards with others, its
circuit is
`CLOSED`, there is no `FailureStreak`, no deferral is in effect, and the call under way was not slow. A success then
changes
nothing. So `admit` returns at once, `run` skips `succeed`, and a successful call costs two reads of this attribute.

Whatever ends one of these conditions sets `_calm` to False: a failure, a circuit that moves, a slow call, a restored
state.
Only `succeed` sets it to True again. With shared guards it is never True.

This is the only module of the package that awaits calls and reads a clock, apart from `leadsman.resilience.adhoc`.
"""

import asyncio
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from leadsman.errors import Abandoned, DeviceTimeout
from leadsman.events import AppFault, AttemptFailed, CircuitMoved
from leadsman.resilience import breaker, scope
from leadsman.resilience.breaker import (
    CLOSED,
    Circuit,
    CircuitBreaker,
    Closed,
    Disabled,
    Isolated,
    Open,
    Outcome,
    Permit,
)
from leadsman.resilience.environment import Caller, Environment, FailureStreak, GuardSpec, Snapshot
from leadsman.resilience.failure import Failure, RetryRequested, matches, sifted
from leadsman.resilience.policy import GiveUp, Policy, Verdict, as_state, wait_of
from leadsman.resilience.sharing import NO_SHARED_GUARDS, SharedGuards
from leadsman.tasks import forget_cancellations
from leadsman.timing.durations import human

GRACE = 5.0
"""Seconds that a call may take to end after its timeout cancelled it. After that it is abandoned."""

Call = Callable[[], Awaitable[Any]]
_PASS = Permit(0, 0, probe=False)
_COUNTING = CircuitBreaker(2**31)
"""The breaker of handlers without one, while a person has isolated or disabled their circuit: it never opens by
itself."""


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def _known_as(policy: Policy) -> str:
    """The text that identifies a policy after a restart. A user's own strategy may have no text but its address,
    which is removed."""
    return _ADDRESS.sub("", repr(policy))


class BusLock:
    """A lock for a shared bus: one call at a time, in the order of the requests."""

    __slots__ = ("_holder", "_lock")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: object | None = None

    async def take(self, who: object) -> None:
        """Wait for the lock."""
        await self._lock.acquire()
        self._holder = who

    def give_back(self, who: object) -> None:
        """Release the lock. Nothing happens if `who` does not hold it, or no longer holds it."""
        if self._holder is who:
            self._holder = None
            self._lock.release()


class Execution:
    """Runs one handler's calls, and holds the state of their retry policy and circuit breaker. One cycle at a time.

    Args:
        name: the entity, for events.
        call: the call to guard; a coroutine function without arguments.
        guards: how to guard it.
        environment: timers, clock and events.
        bus_lock: the lock of the bus that the call shares with others, if any.
        caller: the `Caller`, which knows the handler.
        shared: the guards that it shares with other handlers.
    """

    __slots__ = (
        "_abandoned",
        "_bus_lock",
        "_call",
        "_caller",
        "_calm",
        "_circuit",
        "_environment",
        "_faulted",
        "_guarded",
        "_permit",
        "_shared",
        "_slot",
        "_slow",
        "_streak",
        "_task",
        "attempts",
        "deferred_until",
        "fired",
        "gave_up",
        "guards",
        "held",
        "horizon",
        "name",
        "resumes_at",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        call: Call,
        guards: GuardSpec,
        environment: Environment,
        *,
        bus_lock: BusLock | None = None,
        caller: Caller | None = None,
        shared: SharedGuards = NO_SHARED_GUARDS,
    ) -> None:
        self.name = name
        self.guards = guards
        self.attempts = 0
        """Calls made in the current cycle, or in the last one that failed."""
        self.fired = False
        """Whether the timeout of the current call has expired."""
        self.deferred_until = -math.inf
        """No cycle is admitted before this time, because the device asked for a pause; monotonic seconds."""
        self.resumes_at = -math.inf
        """When the next retry is due, monotonic seconds."""
        self.horizon = math.inf
        """When the next poll is due, monotonic seconds. A retry at or after it is dropped. It is moved later if
        that poll was missed because a call of this cycle was still running."""
        self.gave_up = ""
        """Why the last failed cycle was not retried further."""
        self.held = False
        """Whether the handler is held: no cycle is requested until a person releases it."""
        self._call = call
        self._environment = environment
        self._bus_lock = bus_lock
        self._caller = caller
        self._guarded: Call = call if guards.timeout is None else self._timed
        if bus_lock is not None:
            self._guarded = self._in_turn
        if guards.breaker is not None and guards.breaker.slow is not None:
            self._guarded = self._watched
        self._streak: FailureStreak | None = None
        self._circuit: Circuit = CLOSED
        self._shared = shared
        self._calm = shared is NO_SHARED_GUARDS
        self._slow = False
        if shared.circuit is not None:
            shared.circuit.members.append(self)
        self._permit: Permit | None = None
        self._task: asyncio.Task[Any] | None = None
        self._slot = 0
        self._abandoned = False
        self._faulted: tuple[str, ...] = ()

    def snapshot(self) -> Snapshot:
        """The current state. Reading it changes nothing."""
        circuit = self._circuit
        opened_at, until, opens, refusals = None, None, 0, 0
        if not isinstance(circuit, Closed | Disabled):
            opened_at, opens = circuit.since, circuit.opens
        if isinstance(circuit, Open):
            refusals = circuit.refusals if self._shared.circuit is None else self._shared.circuit.refusals(self)
            until = circuit.until if math.isfinite(circuit.until) else None
        name = breaker.name_of(circuit)
        deferred = self.deferred_until if self.deferred_until > self._environment.clock.monotonic() else None
        return Snapshot(
            name, circuit.failures, opened_at, until, opens, refusals, self.attempts, self.retries(), deferred
        )

    def retries(self) -> int:
        """Retries since the last success."""
        return 0 if self._streak is None else self._streak.waits

    def admit(self) -> bool:
        """Ask for permission to run a cycle. After True, `run` must follow."""
        if self._calm:
            self._permit = _PASS
            return True
        now = self._environment.clock.monotonic()
        if now < self.deferred_until:
            return False
        if self._circuit is CLOSED:
            self._permit = _PASS
            return True
        lease = (self.guards.timeout or 60.0) + GRACE
        if self._shared.circuit is not None:
            self._permit = self._shared.circuit.admit(self, now, lease)
        else:
            circuit, self._permit = breaker.admit(self.guards.breaker or _COUNTING, self._circuit, now, lease)
            self.moved(circuit)
        return self._permit is not None

    def to_json(self) -> dict[str, Any]:
        """The state as JSON-compatible values, for `restore` after a restart; empty if there is nothing to keep."""
        now, streak, found = self._environment.clock.monotonic(), self._streak, dict[str, Any]()
        circuit = self._circuit
        if isinstance(circuit, Open) and self._shared.circuit is not None:
            circuit = circuit._replace(refusals=self._shared.circuit.refusals(self))
        if streak is not None:
            found["streak"] = {
                "policy": _known_as(streak.policy),
                "state": streak.state,
                "waits": streak.waits,
                "cycle": streak.cycle,
                "elapsed": now - streak.began,
                "wall": streak.wall,
            }
            found["pending"] = max(0.0, self.resumes_at - now)
        if (kept := breaker.to_json(circuit, now)) is not None:
            found["circuit"] = kept
        if self.deferred_until > now:
            found["deferred"] = self.deferred_until - now
        return found

    def restore(self, found: Mapping[str, Any], away: float) -> float:
        """Restore the state that `to_json` returned `away` seconds ago.

        Returns:
            Seconds until the pending retry.

        Raises:
            KeyError, TypeError, ValueError: it is not what `to_json` returned.
        """
        now, streak = self._environment.clock.monotonic(), self._restored_streak(found.get("streak"), away)
        circuit = breaker.from_json(found["circuit"], now, away) if "circuit" in found else None
        self._streak = streak
        if circuit is not None:
            if self._shared.circuit is not None:
                self._shared.circuit.restore(self, circuit)
            else:
                self.moved(circuit)
        if "deferred" in found:
            self.deferred_until = now + float(found["deferred"]) - away
        self._calm = self._calm and not found
        return max(0.0, float(found.get("pending", 0.0)) - away)

    def is_polled(self, now: float) -> bool:
        """Whether its polls would reach the device now if the circuit were closed."""
        return not self.held and now >= self.deferred_until

    def _restored_streak(self, found: Mapping[str, Any] | None, away: float) -> FailureStreak | None:
        if found is None:
            return None
        policy, elapsed = self.guards.policy, float(found["elapsed"]) + away
        state = policy.start()
        if found["policy"] == _known_as(policy):
            state = as_state(found["state"])
            policy.step(state, Failure(OSError()), random.random)  # an invalid state raises here
        began = self._environment.clock.monotonic() - elapsed
        waits, cycle, wall = int(found["waits"]), int(found["cycle"]), float(found["wall"])
        return FailureStreak(policy, state, waits, cycle, began, wall, resumed=True)

    def isolate(self) -> None:
        """Admit no cycle until `close` or `disable` is called, because a person works at the device."""
        self._set(breaker.isolated(self._circuit, self._environment.clock.monotonic()))

    def close(self) -> None:
        """Close the circuit and reset all counters. The outage lasts until a success."""
        streak = self._streak
        if streak is not None:
            self._streak = streak._replace(state=streak.policy.start(), waits=0, resumed=False, others=())
        self.deferred_until = -math.inf
        self._set(breaker.closed(self._circuit))

    def disable(self) -> None:
        """Admit every cycle, whatever fails, until `close` or `isolate` is called."""
        self._set(breaker.disabled(self._circuit))

    def _set(self, circuit: Circuit) -> None:
        if self._shared.circuit is not None:
            self._shared.circuit.move(circuit)
        else:
            self.moved(circuit)

    async def run(self, horizon: float = math.inf) -> Any:
        """Run one cycle of calls and return the result of the successful call.

        Args:
            horizon: when the next poll is due, monotonic seconds. A retry at or after it is dropped.

        Raises:
            Exception: the error of the last call, once no more retries are due.
            CancelledError: passed through, also when the handler's clean-up turned it into another error.
        """
        self.horizon = horizon
        try:
            result = await self._guarded()
        except Exception as error:
            failed = error
        except BaseException:
            self._settle(Outcome.ABANDONED)
            raise
        else:
            if not self._calm:
                if self._shared.tokens is not None:
                    self._shared.tokens.give_back()
                self.succeed()
            return result
        try:
            return await self._recover(failed)  # not above, where each later error would name this one as its context
        finally:
            del failed  # its traceback holds this frame

    async def _recover(self, error: Exception) -> Any:
        self.attempts = 1
        clock, policy = self._environment.clock, self.guards.policy
        if self._streak is not None:
            self._streak = self._streak._replace(cycle=self._streak.cycle + 1)
        try:
            while True:
                self._calm = False
                if self._streak is None:  # the first failure, or a source has given readings since the last one
                    self._streak = FailureStreak(policy, policy.start(), 0, 0, clock.monotonic(), clock.wall())
                policies, error = scope.taken(error), sifted(error)
                verdict = self._judge(error, policies)
                if isinstance(verdict, GiveUp):
                    raise error
                error.__traceback__ = (
                    None  # told by now; it holds the frames, and grows where one error is raised again
                )
                self.resumes_at = self._environment.clock.monotonic() + verdict.delay
                await self._environment.timers.sleep(verdict.delay)
                if self.isolated:
                    self.gave_up = "isolated"
                    raise error
                self.attempts += 1
                try:
                    result = await self._guarded()
                except Exception as again:
                    error = again
                else:
                    self.succeed()
                    return result
        except BaseException as final:
            self._settle(self._outcome(final))
            raise

    @property
    def isolated(self) -> bool:
        """Whether the circuit is isolated."""
        return isinstance(self._circuit, Isolated)

    def _asked(
        self, streak: FailureStreak, failure: Failure, policies: tuple[Policy, ...]
    ) -> tuple[FailureStreak, Verdict]:
        """Ask the policies about this failure, those attached to the error first. Returns the new streak and the
        verdict."""
        overriding = (
            policy for names, policy in reversed(self._environment.overrides) if names is None or self.name in names
        )
        state, others, verdict = scope.step(
            (*policies, *overriding), streak.policy, streak.state, streak.others, failure, random.random
        )
        return streak._replace(state=state, others=others), verdict

    def _judge(self, error: Exception, policies: tuple[Policy, ...]) -> Verdict:
        if self._environment.stopping.is_set():  # clean-up in the handler must not turn a cancellation into a retry
            raise asyncio.CancelledError from error
        forget_cancellations()
        if self._abandoned:
            self._abandoned = False
            raise Abandoned("it ended at last, after it was abandoned") from error
        verdict = self._verdict(error, self._environment.clock.monotonic(), policies)
        delay, reason = (None, verdict.reason) if isinstance(verdict, GiveUp) else (verdict.delay, "retry")
        self.gave_up = reason
        streak = self._streak
        assert streak is not None  # made by _recover
        circuit = breaker.name_of(self._circuit)
        event = AttemptFailed(
            self.name, error, self.attempts, delay, reason, streak.cycle, streak.began, streak.wall, circuit,
            isinstance(error, RetryRequested),
        )  # fmt: skip
        self._environment.events.emit(event)
        return verdict

    def _verdict(self, error: Exception, now: float, policies: tuple[Policy, ...]) -> Verdict:
        streak = self._streak
        assert streak is not None  # made by _recover
        asked = error.delay if isinstance(error, RetryRequested) else None
        if self.isolated:
            return GiveUp("isolated")
        if self._permit is not None and self._permit.probe:
            self._defer(asked, now)
            return GiveUp("probe")
        failure = Failure(
            error,
            {} if self._caller is None else {**self._caller.facts(), "breaker": breaker.name_of(self._circuit)},
            streak.cycle,
            now - streak.began,
            streak.waits,
            streak.resumed,
            self.on_strategy_error,
        )
        try:
            after, verdict = self._asked(streak, failure, policies)
        except Exception as fault:
            self.on_strategy_error(streak.policy, fault)
            return GiveUp("fault")
        if isinstance(verdict, GiveUp):
            self._streak = after
            self._defer(asked, now)  # a request that is refused ends the retries, and keeps the polls away all the same
            return verdict
        if now + verdict.delay >= self.horizon:
            if asked is None:
                return GiveUp("next-poll")
            self._streak = after  # the wait is kept, so it counts
            self._defer(asked, now)
            return GiveUp("deferred")
        tokens = self._shared.tokens
        if tokens is not None and not isinstance(error, RetryRequested) and not tokens.take():
            return GiveUp("tokens")
        self._streak = after._replace(waits=streak.waits + 1)
        return verdict

    def _defer(self, asked: float | None, now: float) -> None:
        """Admit no cycle for as long as the device asked. The next cycle is then the retry."""
        if asked is not None and self._streak is not None:
            self.deferred_until = now + asked
            self._streak = self._streak._replace(waits=self._streak.waits + 1)

    def wait(self, attempt: int) -> float:
        """Ask the backoff for a wait. An exception in a user's strategy is reported once, and the default is used
        instead."""
        return wait_of(self.guards.policy.strategy, attempt, random.random, self.on_strategy_error)

    def on_strategy_error(self, strategy: object, error: Exception) -> None:
        """Report that a user's strategy or policy raised an exception: once for each kind."""
        rule = self.guards.breaker
        recovery = rule is not None and strategy is rule.recovery
        what = "policy" if isinstance(strategy, Policy) else "recovery" if recovery else "backoff"
        if what not in self._faulted:
            self._faulted = (*self._faulted, what)
            instead = "there are no retries" if what == "policy" else "the default is used instead"
            self._environment.events.emit(AppFault(f"{what} of {self.name}; {instead}", error))

    def succeed(self) -> None:
        """Reset the counters: the current call has shown that the device works."""
        if not self._calm:
            self._streak = None
            self.deferred_until = -math.inf
            slow, self._slow = self._slow, False
            self._settle(Outcome.FAILED if slow else Outcome.SUCCEEDED)
            self._calm = self._circuit is CLOSED and self._shared is NO_SHARED_GUARDS

    def _outcome(self, error: BaseException) -> Outcome:
        rule = self.guards.breaker
        if not isinstance(error, Exception) or isinstance(error, RetryRequested):
            return Outcome.ABANDONED
        return Outcome.ABANDONED if rule is not None and matches(error, rule.ignore) else Outcome.FAILED

    def _settle(self, outcome: Outcome) -> None:
        permit, self._permit = self._permit, None
        rule = self.guards.breaker
        if permit is None or (rule is None and self._circuit is CLOSED):
            return
        now = self._environment.clock.monotonic()
        if self._shared.circuit is not None:
            self._shared.circuit.settle(self, permit, outcome, now)
        else:
            self.moved(breaker.settle(rule or _COUNTING, self._circuit, permit, outcome, now, self.on_strategy_error))

    def moved(self, circuit: Circuit) -> None:
        """Store the new circuit, and emit an event if its state changed."""
        before, self._circuit = self._circuit, circuit
        self._calm = self._calm and circuit is CLOSED
        if type(before) is not type(circuit):
            self._environment.events.emit(CircuitMoved(self.name, breaker.name_of(circuit), circuit.failures))
            if self.isolated and self._caller is not None:
                self._caller.isolated()

    async def _watched(self) -> Any:
        rule = self.guards.breaker
        assert rule is not None  # chosen in __init__
        began = self._environment.clock.monotonic()
        result = (
            await (self._call() if self.guards.timeout is None else self._timed())
            if self._bus_lock is None
            else await self._in_turn()
        )
        if rule.slow is not None and self._environment.clock.monotonic() - began > rule.slow:
            self._slow, self._calm = True, False
        return result

    async def _in_turn(self) -> Any:
        assert self._bus_lock is not None  # chosen in __init__
        await self._bus_lock.take(self)
        try:
            return await (self._call() if self.guards.timeout is None else self._timed())
        finally:
            self._bus_lock.give_back(self)

    async def _timed(self) -> Any:
        """Limit the time of one call. Like `asyncio.timeout`, but the deadline is an entry in the heap that all
        calls share."""
        timers, timeout = self._environment.timers, self.guards.timeout
        assert timeout is not None  # chosen in __init__
        self._task = task = asyncio.current_task()
        assert task is not None  # cycles run in tasks
        self.fired = False
        self._slot = timers.add(self._environment.clock.monotonic() + timeout, self)
        try:
            result = await self._call()
        except BaseException as error:
            if not self.fired:
                raise
            task.uncancel()
            if isinstance(error, asyncio.CancelledError) and not self._environment.stopping.is_set():
                raise self._timed_out() from error
            raise
        finally:
            timers.remove(self._slot, self)
            self._task = None  # release the finished task, about 1 kB
        if self.fired:  # it ignored the cancellation, so its result is not used
            task.uncancel()
            raise self._timed_out()
        return result

    def _timed_out(self) -> DeviceTimeout:
        return DeviceTimeout(f"no answer within {human(self.guards.timeout or 0.0)}")

    def ring(self, now: float) -> None:
        """The deadline expired: cancel the call. If it still runs `GRACE` seconds later, abandon it."""
        if self._task is None:
            return
        if not self.fired:
            self.fired = True
            self._task.cancel()
            self._slot = self._environment.timers.add(now + GRACE, self)
            return
        self._abandoned = True
        self._settle(Outcome.FAILED)
        if self._bus_lock is not None:
            self._bus_lock.give_back(self)
        if self._caller is not None:
            from leadsman.places import waiting_at

            timeout, where = human(self.guards.timeout or 0.0), waiting_at(self._task)
            self._caller.abandoned(
                Abandoned(
                    f"still running {human(GRACE)} after its timeout of {timeout}{where}; "
                    "it is not called again while it runs"
                )
            )
