"""What a successful call costs under retry and breaker: ours, hyx, stamina, tenacity, against a bare await."""

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import stamina
import tenacity
from hyx.circuitbreaker import consecutive_breaker
from hyx.retry import retry

from leadsman import App, CircuitBreaker
from leadsman.core.event_bus import EventBus
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.timers import Timers
from leadsman.core.resilience.environment import Environment, GuardSpec
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import exponential, from_options, immediate, periodic
from leadsman.core.resilience.predicate import prop
from leadsman.core.resilience.retry_loop import Execution

REPEATS, CALLS = 9, 20_000


async def nothing() -> None:
    """A handler that has nothing to do."""


def guarded(timeout: float | None) -> Callable[[], Awaitable[Any]]:
    """A call as the poll loop makes it: leave asked of the breaker, then the call under retry and timeout. The loop
    reads the clock once a poll, with or without these."""
    loop = asyncio.get_running_loop()
    clock = system_clock(loop)
    events = EventBus(clock)
    guards = GuardSpec(from_options(3), breaker=CircuitBreaker(5), timeout=timeout)
    execution: Execution[None] = Execution("d", nothing, guards, Environment(Timers(loop, events.emit), clock, events))
    began = clock.monotonic()

    async def call() -> None:
        if execution.calm or execution.admit():
            await execution.run(began)

    return call


def others() -> dict[str, Callable[[], Awaitable[Any]]]:
    """The same from libraries that people know."""

    @retry(on=OSError, attempts=3)
    @consecutive_breaker(exceptions=OSError, failure_threshold=5, recovery_time_secs=60)
    async def hyx() -> None:
        pass

    @stamina.retry(on=OSError, attempts=4)
    async def by_stamina() -> None:
        pass

    @tenacity.retry(stop=tenacity.stop_after_attempt(4), retry=tenacity.retry_if_exception_type(OSError))
    async def by_tenacity() -> None:
        pass

    return {"hyx retry + breaker": hyx, "stamina retry": by_stamina, "tenacity retry": by_tenacity}


async def _timed(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    gc.collect()
    gc.disable()
    try:
        before = time.perf_counter()
        for _ in range(calls):
            await call()
        return (time.perf_counter() - before) / calls * 1e6
    finally:
        gc.enable()


async def _measure() -> dict[str, float]:
    candidates = {"bare await": nothing, "leadsman": guarded(None), "leadsman with timeout": guarded(60.0), **others()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(REPEATS):
        for name, call in candidates.items():
            times[name].append(
                await _timed(call, CALLS if "stamina" not in name and "tenacity" not in name else CALLS // 20)
            )
    return {name: statistics.median(taken) for name, taken in times.items()}


def measure() -> dict[str, float]:
    """Microseconds per call, medians of interleaved repeats."""
    return asyncio.run(_measure())


def step_of_ten() -> float:
    """Microseconds for one decision of a policy of ten nodes; the median of the repeats."""
    tree = (immediate().max_retries(2) >> periodic("1s").max_retries(3)) | (
        exponential("2s").jitter(0.2).only_when(prop("errno") == 5).budget("1h")
    )
    failure, draw, taken = Failure(OSError(5, "io"), cycle=1, elapsed=3.0), random.random, []
    state = tree.step(tree.start(), failure, draw)[0]
    for _ in range(REPEATS):
        before = time.perf_counter()
        for _ in range(CALLS):
            tree.step(state, failure, draw)
        taken.append((time.perf_counter() - before) / CALLS * 1e6)
    return statistics.median(taken)


def registering() -> float:
    """Microseconds of CPU to register a device of a thousand, each with a handler and an interval of its own; the least
    of the repeats."""

    def handler() -> Callable[[], Awaitable[dict[str, float]]]:
        async def read() -> dict[str, float]:
            return {"temperature": 21.5}

        return read

    taken = []
    for _ in range(REPEATS):
        app, handlers = App("house"), [handler() for _ in range(1000)]
        before = time.process_time()
        for number, read in enumerate(handlers):
            app.add_telemetry(f"d{number}", read, interval=60 + number, retry=3, timeout=5)
        taken.append((time.process_time() - before) * 1e3)
    return min(taken)
