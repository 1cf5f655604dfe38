"""The colours of a terminal."""

from collections.abc import Mapping

BOLD, GREEN, CYAN, YELLOW, RED = "1", "32", "36", "33", "31"
"""SGR parameters (ECMA-48 §8.3.117)."""
STATUSES: Mapping[str, str] = {
    "ok": GREEN,
    "starting": CYAN,
    "error": RED,
    "stale": YELLOW,
    "circuit_open": RED,
    "held": RED,
    "isolated": CYAN,
    "deferred": CYAN,
}
"""Those of the statuses of a device."""
