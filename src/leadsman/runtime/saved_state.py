"""A row of the file behind ``keep_state=True``: what is written about one handler, and the checks when it is read."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from leadsman.monitoring.totals import Life, life_of
from leadsman.mqtt.answers import Json
from leadsman.runtime.statefile import Saved

LEAST, LARGEST = -1e10, 1e11
"""Numbers that make sense in the file: as epoch seconds, the years 1653 to 5138."""


class SavedOutage(NamedTuple):
    """The outage of a handler that fails."""

    since: float
    """Its first failure, epoch seconds."""
    failures: int
    """Failed polls."""
    kind: str
    message: str
    """The type and the message of the last error."""
    began: float
    """Its first failure, monotonic seconds."""

    def to_json(self, now: float) -> Json:
        """The outage for the file. `now` is monotonic seconds."""
        since, failures, kind, message, began = self
        return {"since": since, "failures": failures, "type": kind, "message": message, "lasted": now - began}


class Known(NamedTuple):
    """A row of the file that is valid. Times are epoch seconds, `lasted` is seconds."""

    wall: float
    execution: Mapping[str, Json]
    streak_wall: float | None
    success: float | None
    held: bool
    health: tuple[float, int, str, str, float] | None
    """Since when, failed polls, type and message of the error, and how long it had lasted."""
    life: Json
    """The counters over all lives, not checked; None if there are none. See `Known.counters`."""

    def counters(self) -> Life | None:
        """The counters, if there are some. Raises `LookupError`, `TypeError` or `ValueError` if they are invalid."""
        return None if self.life is None else life_of(self.life)


def known_of(saved: Saved) -> Known:
    """Check a row and read it. Raises `LookupError`, `TypeError`, `ValueError` or `RecursionError` if it is invalid."""
    if not isinstance(saved.wall, int | float) or not isinstance(saved.document, str):
        raise TypeError("its checksum is wrong")
    document: Json = json.loads(saved.document)
    execution, success, health = document["execution"], document.get("success"), document.get("health")
    streak, since_failure = execution.get("streak"), None
    _check({key: value for key, value in document.items() if key not in ("execution", "life")})
    _check({key: value for key, value in execution.items() if key != "circuit"})
    circuit = list(execution.get("circuit", ()))
    _check(circuit[:2] if circuit[:1] == ["closed"] else circuit)  # its third is a bit for each poll of the window
    _check(saved.wall)
    if health:
        counted = float(health["since"]), int(health["failures"])
        since_failure = (*counted, str(health["type"]), str(health["message"]), float(health["lasted"]))
    streak_wall = None if streak is None else float(streak["wall"])
    last_success = None if success is None else float(success)
    held, life = document.get("held") is True, document.get("life")
    return Known(float(saved.wall), execution, streak_wall, last_success, held, since_failure, life)


def found_by_of(saved: Saved) -> str | None:
    """Who had found the device at run time; None for one that was registered. Raises as `known_of`."""
    if not isinstance(saved.document, str):
        raise TypeError("its checksum is wrong")
    found = json.loads(saved.document).get("found_by")
    return found if isinstance(found, str) else None


def _check(value: Json) -> None:
    """Check that all numbers are in range. The JSON of Python contains NaN and Infinity, and 1e308 is no time."""
    if isinstance(value, float | int):
        if not LEAST <= value <= LARGEST:
            raise ValueError(f"it contains the number {value:.6g}")
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check(each)
