"""The app of `benchmarks.ledger`: devices of several kinds, which do the same at the same call in every run.

``python -m benchmarks.ledger_job PORT`` runs until SIGTERM, and then prints what its handlers did and what its ledgers
say, as one JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from leadsman import App, CircuitBreaker, FixedBackoff, OnChange, RetryRequested
from leadsman.core.mqtt.answers import Json
from leadsman.extensions.ledger.reports import LedgerReports

READ, NOTHING, HUGE, SLOW, FAIL, HANG, PAUSE = ".0HSFTP"
"""What a call does: it returns a reading, None, a reading that no outbox takes, or a reading after `SLOW_CALL` seconds;
it raises an error, gets no answer, or asks for a pause."""
SLOW_CALL = 2.6
TIMEOUT = 0.3
"""Seconds for a call of a device that may get no answer."""
ASKED = 3.5
"""Seconds of a pause."""
TOO_LARGE = 2**21
"""Bytes of a reading that no outbox takes."""
CHANGES_EACH = 3
"""Calls after which a value changes that is published on change."""


class Kind(NamedTuple):
    """Devices that do the same."""

    devices: int
    interval: float
    acts: str = READ
    """What the calls do, one after the other, again and again."""
    retried: bool = False
    """Whether a call that fails is repeated, and then succeeds."""
    changing: bool = False
    """Whether only changes are published."""
    options: Mapping[str, Any] = {}  # it is only read

    def act(self, number: int) -> str:
        """What the call of that number does, from 1."""
        return self.acts[(number - 1) % len(self.acts)]

    def shown(self, number: int) -> int:
        """The number in the reading of that call."""
        return number - number % CHANGES_EACH if self.changing else number


KINDS = {
    "steady": Kind(6, 0.5),
    "failing": Kind(4, 1.0, 17 * READ + 3 * FAIL),
    "retried": Kind(
        2, 1.0, 4 * READ + FAIL, retried=True, options={"retry": 2, "backoff": FixedBackoff(0.1), "overrun": "finish"}
    ),
    "unanswered": Kind(2, 1.0, 8 * READ + HANG, options={"timeout": TIMEOUT}),
    "changing": Kind(3, 0.5, changing=True, options={"publish": OnChange()}),
    "reticent": Kind(1, 1.0, 2 * READ + NOTHING),
    "slow": Kind(2, 1.0, 4 * READ + SLOW, options={"timeout": 5}),
    "huge": Kind(1, 2.0, 3 * READ + HUGE),
    "pausing": Kind(1, 1.0, 5 * READ + PAUSE),
    "broken": Kind(1, 1.0, 8 * READ + 5 * FAIL, options={"circuit_breaker": CircuitBreaker(3, recovery=4)}),
}


def names(kind: str) -> list[str]:
    """The names of its devices."""
    return [f"{kind}{number}" for number in range(KINDS[kind].devices)]


class Handler:
    """The handler of one device."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.calls = 0
        self.stopped = False
        """Whether the app ended the last call."""
        self.began = 0.0
        """When the first call began, seconds of `time.monotonic`."""

    async def __call__(self) -> dict[str, object] | None:
        """Do what the plan says of this call."""
        self.calls += 1
        now = time.monotonic()
        self.began = self.began or now
        act, reading = self._kind.act(self.calls), {"n": self._kind.shown(self.calls)}
        try:
            await self._take_time(act)
        except asyncio.CancelledError:
            self.stopped = act != HANG or time.monotonic() - now < 0.9 * TIMEOUT
            raise
        match act:
            case "F":
                raise OSError("planned")
            case "P":
                raise RetryRequested(delay=ASKED, reason="planned")
            case "0":
                return None
            case "H":
                return {**reading, "text": "x" * TOO_LARGE}
        return {**reading}

    async def _take_time(self, act: str) -> None:
        if act == SLOW:
            await asyncio.sleep(SLOW_CALL)
        elif act == HANG:
            await asyncio.sleep(3600)


def main(port: int) -> None:
    """Run the app, and print what came of it."""
    app, handlers, ledgers = App("job", mqtt=f"mqtt://127.0.0.1:{port}"), dict[str, Handler](), dict[str, Json]()
    for word, kind in KINDS.items():
        for name in names(word):
            handlers[name] = Handler(kind)
            app.add_telemetry(name, handlers[name], interval=kind.interval, **kind.options)
    stop = LedgerReports.stop

    def stop_and_keep(reports: LedgerReports, *, durable: bool) -> None:
        stop(reports, durable=durable)
        ledgers.update((name, reports.ledgers.document(name)) for name in handlers)

    LedgerReports.stop = stop_and_keep  # type: ignore[method-assign,assignment]
    app.run()
    ended = time.monotonic()
    said = {
        name: {
            "calls": each.calls,
            "stopped": each.stopped,
            "seconds": ended - each.began,
            "slots": ledgers[name]["slots"],
            "counts": ledgers[name]["counts"],
        }
        for name, each in handlers.items()
    }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
