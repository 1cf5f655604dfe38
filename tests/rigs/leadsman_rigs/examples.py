"""How many examples a property tries."""

from hypothesis import settings

USUAL = 100
"""Examples of a property that says nothing, by day."""


def examples(number: int) -> int:
    """So many by day, and at night as many times more as the profile has more than `USUAL`. A bare number in
    ``max_examples`` would be the same at night."""
    return max(1, number * settings.default.max_examples // USUAL)
