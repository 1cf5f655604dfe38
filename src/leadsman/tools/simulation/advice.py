"""Says which of the policies would have done best on a day, and at which cost."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from leadsman.loop.durations import human
from leadsman.text import count_noun
from leadsman.tools.simulation.outcome import Figures

NEARLY = 0.05
"""A policy that recovers all but this share of what the best one recovers, with fewer calls, is worth naming."""


class PolicyFigures(NamedTuple):
    """One policy with its figures."""

    policy: str
    figures: Figures


def advice(compared: Sequence[PolicyFigures]) -> list[str]:
    """Sentences about policies, the first of which is that of the app as it is written."""
    written, *_ = compared
    if not written.figures.slots:
        return ["No poll was due in this time: simulate a longer one, with --for."]
    if not any(each.figures.gaps for each in compared):
        return ["No policy had a gap on this day: nothing to gain. Try --day outages, or another --seed."]
    if len(compared) == 1:
        return [_summary(written)]
    best = min(compared, key=_loss)
    if not _gains(best.figures, written.figures):
        cheapest = min((each for each in compared if not _gains(written.figures, each.figures)), key=_calls)
        if cheapest.figures.attempts < written.figures.attempts:
            cost = _cost(cheapest.figures, written.figures)
            return [f"{cheapest.policy} would have lost as little as the app as it is written, with {cost}."]
        return [f"Keep the app as it is written: {_fewest(written)}, and no other policy here does better."]
    sentences = [f"{best.policy} would do best: {_against(best.figures, written.figures)}."]
    if _is_small(best.figures, written.figures):
        sentences.append("The difference is small: another --seed may turn it around.")
    thrifty = _thrifty(compared, best)
    if thrifty is not None:
        saved = best.figures.attempts - thrifty.figures.attempts
        against = _against(thrifty.figures, written.figures)
        sentences.append(f"{thrifty.policy} is nearly as good, with {count_noun(saved, 'call')} fewer: {against}.")
    return sentences


def _loss(each: PolicyFigures) -> tuple[int, float, int]:
    """What is to be as small as possible: first the lost readings, then the time without one, then the calls."""
    return each.figures.lost, each.figures.gap_total, each.figures.attempts


def _calls(each: PolicyFigures) -> int:
    return each.figures.attempts


def _gains(figures: Figures, other: Figures) -> bool:
    """Whether fewer readings were lost than with the other policy, or as many in a time that is shorter by a second."""
    if figures.lost != other.lost:
        return figures.lost < other.lost
    return other.gap_total - figures.gap_total >= 1


def _is_small(figures: Figures, other: Figures) -> bool:
    """Whether the numbers of lost readings differ by no more than two standard deviations. Those of a count are its
    root, if the events are independent of each other (Poisson)."""
    return abs(figures.lost - other.lost) <= 2 * math.sqrt(figures.lost + other.lost)


def _thrifty(compared: Sequence[PolicyFigures], best: PolicyFigures) -> PolicyFigures | None:
    """The policy with the fewest calls among those that are nearly as good as the best; None if that is the best one
    itself, or the app as it is written."""
    written = compared[0].figures
    lost = best.figures.lost + NEARLY * (written.lost - best.figures.lost)
    waited = best.figures.gap_total + NEARLY * max(0.0, written.gap_total - best.figures.gap_total)
    near = [each for each in compared if each.figures.lost <= lost and each.figures.gap_total <= waited]
    cheapest = min(near, key=lambda each: each.figures.attempts)
    cheaper = cheapest.figures.attempts <= 0.95 * best.figures.attempts
    return cheapest if cheaper and cheapest is not compared[0] else None


def _against(figures: Figures, written: Figures) -> str:
    saved = written.lost - figures.lost
    parts = []
    if saved:
        parts.append(f"{count_noun(figures.lost, 'reading')} lost instead of {written.lost:,}")
    shorter = written.gap_total - figures.gap_total
    if abs(shorter) >= 1:
        parts.append(f"{human(round(abs(shorter)))} {'less' if shorter > 0 else 'more'} without a reading")
    gained = ", ".join(parts) or "as many readings lost"
    return f"{gained}, {'for' if figures.attempts >= written.attempts else 'with'} {_cost(figures, written)}"


def _cost(figures: Figures, written: Figures) -> str:
    calls = figures.attempts - written.attempts
    much = f"{100 * abs(calls) / written.attempts:.0f} %" if written.attempts else f"{abs(calls):,}"
    return f"{much} {'more' if calls > 0 else 'fewer'} calls" if calls else "no more calls"


def _fewest(written: PolicyFigures) -> str:
    return f"it lost {count_noun(written.figures.lost, 'reading')} of {written.figures.slots:,}"


def _summary(written: PolicyFigures) -> str:
    figures = written.figures
    return (
        f"The app as it is written lost {figures.lost:,} of {figures.slots:,} readings, and its longest gap was "
        f"{human(round(figures.gap_max))}. Compare it with others: --policy retry=3 --policy UNTIL_NEXT_POLL"
    )
