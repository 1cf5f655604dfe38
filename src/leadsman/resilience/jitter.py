"""The modes of jitter: how a wait is spread by chance, and how long it may become.

================  =======================================  ===========================================================
mode              drawn from, within [0, cap]              the cap, if none is given
================  =======================================  ===========================================================
``symmetric``     d·(1 - fraction) to d·(1 + fraction)     that of the policy inside, if it was given one; else
                                                           `fraction` more than its longest wait
``add``           d to d·(1 + fraction)                    `fraction` more than the longest wait inside
``full``          0 to d                                   the longest wait inside
``equal``         d/2 to d                                 the longest wait inside
``decorrelated``  d to three times the wait before, at     60 s
                  first to three times d
================  =======================================  ===========================================================

``full``, ``equal`` and ``decorrelated`` are those of M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
Blog, 2015.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from leadsman.resilience.backoff import LONGEST, jittered

_DECORRELATED_CAP = 60.0


class Mode(NamedTuple):
    """One mode of jitter. Times are seconds; `u` is uniform in [0, 1)."""

    spread: Callable[[float, float, float, float], float]
    """The wait to take for a wait, a fraction, a cap and u."""
    cap: Callable[[float, float, float], float]
    """The cap if none is given: for the longest wait inside, the cap of `symmetric` jitter inside, and a fraction."""


def _add(wait: float, fraction: float, cap: float, u: float) -> float:
    low = min(wait, cap)
    return low + (min(wait * (1 + fraction), cap) - low) * u


def decorrelated(wait: float, cap: float, before: float, u: float) -> float:
    """The wait to take after the wait `before`, which is 0 at first. It is the only mode that remembers one."""
    low = min(wait, cap)
    return low + max(0.0, min(3 * (before or low), cap) - low) * u


MODES: Mapping[str, Mode] = {
    "symmetric": Mode(jittered, lambda _, symmetric, __: symmetric),
    "add": Mode(_add, lambda longest, _, fraction: min(longest * (1 + fraction), LONGEST)),
    "full": Mode(lambda wait, _, cap, u: min(wait, cap) * u, lambda longest, _, __: longest),
    "equal": Mode(lambda wait, _, cap, u: min(wait, cap) * (0.5 + u / 2), lambda longest, _, __: longest),
    "decorrelated": Mode(lambda wait, _, cap, u: decorrelated(wait, cap, 0.0, u), lambda _, __, ___: _DECORRELATED_CAP),
}
"""All modes. The first wait of ``decorrelated`` is in the table; those after it depend on the one before."""
