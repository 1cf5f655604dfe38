"""Draw the pictures of policies in docs/pictures from the policies themselves, and a simulated day from the command.

Usage: ``python scripts/pictures.py``; with ``--check`` it only compares the pictures with the policies.

Each picture is one outage. A block is a wait: as wide and as high as it is long. A dot is a call that fails; a dashed
line is where the policy gives up and the next poll begins. Where chance plays a part, a paler block shows the longest
wait.
"""

import contextlib
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import (
    UNTIL_NEXT_POLL,
    Policy,
    Retry,
    exponential,
    fibonacci,
    from_options,
    immediate,
    linear,
    periodic,
    sequence,
)
from leadsman.tools.cli.main import main

TARGET = Path(__file__).parent.parent / "docs" / "pictures"
WIDTH, HEIGHT, MARGIN = 640, 110, 14
SIMULATED_DAY = (
    "simulate",
    str(Path(__file__).parent / "example_house.py"),
    "--day",
    "flaky",
    "--policy",
    "retry=1",
    "--policy",
    "UNTIL_NEXT_POLL",
)
ATTEMPTS, PAUSE = 14, 0.04
"""Calls in a picture; the width of the gap before a poll, as a part of the whole."""
PICTURES: Mapping[str, tuple[str, Policy]] = {
    "retry": ("retry=3", from_options(3)),
    "until-next-poll": ("retry=UNTIL_NEXT_POLL", from_options(UNTIL_NEXT_POLL)),
    "budget": ('retry=10, budget="30s"', from_options(10, budget=30.0)),
    "periodic": ('periodic("10s").max_retries(4)', periodic("10s").max_retries(4)),
    "linear": ('linear("5s").max_retries(6)', linear("5s").max_retries(6)),
    "fibonacci": ('fibonacci("1s", "2s")', fibonacci("1s", "2s")),
    "sequence": ('sequence(["1s", "5s", "30s"], then="stop")', sequence(["1s", "5s", "30s"], then="stop")),
    "and-then": (
        'immediate().max_retries(2) >> exponential("10s").max_retries(3)',
        immediate().max_retries(2) >> exponential("10s").max_retries(3),
    ),
    "union": (
        'exponential("2s").max_retries(4) | periodic("20s")',
        exponential("2s").max_retries(4) | periodic("20s"),
    ),
    "intersect": ('exponential("2s") & periodic("10s")', exponential("2s") & periodic("10s")),
    "jitter-full": ('exponential("2s").jitter(mode="full")', exponential("2s").jitter(mode="full")),
}


def waits(policy: Policy, draw: float) -> list[float | None]:
    """The waits of an outage; None where the policy gives up."""
    state, cycle, found = policy.start(), 0, list[float | None]()
    for attempt in range(ATTEMPTS):
        elapsed = sum(wait or 0.0 for wait in found)
        state, verdict = policy.step(
            state, Failure(OSError(), cycle=cycle, elapsed=elapsed, attempts=attempt), lambda: draw
        )
        found.append(verdict.delay if isinstance(verdict, Retry) else None)
        cycle += found[-1] is None
    return found


def picture(title: str, policy: Policy) -> str:
    """One picture."""
    middle, longest = waits(policy, 0.5), waits(policy, 1.0 - 1e-9)
    whole = sum(wait or 0.0 for wait in middle) or 1.0
    pauses = sum(wait is None for wait in middle)
    scale = (WIDTH - 2 * MARGIN) * (1 - pauses * PAUSE) / whole
    highest = max([wait or 0.0 for wait in (*middle, *longest)]) or 1.0
    ground = HEIGHT - MARGIN
    up = (ground - 40) / highest
    parts, calls, x = list[str](), list[str](), float(MARGIN)
    for wait, most in zip(middle, longest, strict=True):
        calls.append(f'<circle cx="{x:.1f}" cy="{ground}" r="3.2" fill="#b03a2e"/>')
        if wait is None:
            x += PAUSE * (WIDTH - 2 * MARGIN)
            parts.append(f'<path d="M{x:.1f} 34V{ground}" stroke="#7f8c8d" stroke-dasharray="3 3"/>')
            continue
        width = wait * scale
        if most is not None and most > wait:
            parts.append(_block(x, ground - most * up, width, most * up, "#d6e4f0"))
        parts.append(_block(x, ground - wait * up, width, wait * up, "#5b8db8"))
        if width > 26 and wait * up > 14:
            label = f"{wait:.0f} s" if wait >= 1 else f"{wait:.1f} s"
            parts.append(
                f'<text x="{x + width / 2:.1f}" y="{ground - 4}" text-anchor="middle" fill="#fff">{label}</text>'
            )
        x += width
    escaped = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="10">\n'
        f"<title>{escaped}</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fbfcfd" stroke="#d5d8dc"/>\n'
        f'<text x="{MARGIN}" y="22" font-family="monospace" font-size="13" fill="#1b2631">{escaped}</text>\n'
        + "\n".join(parts)
        + f'\n<path d="M{MARGIN} {ground}H{WIDTH - MARGIN}" stroke="#aab7b8"/>\n'
        + "\n".join(calls)
        + "\n</svg>\n"
    )


def simulated_day() -> str:
    """What ``leadsman simulate`` draws of the example house."""
    with TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        path = Path(directory) / "day.svg"
        main([*SIMULATED_DAY, "--svg", str(path)])
        return path.read_text("utf-8")


def pictures() -> dict[str, str]:
    """All of them, by file name."""
    drawn = {f"{name}.svg": picture(title, policy) for name, (title, policy) in PICTURES.items()}
    return drawn | {"simulated-day.svg": simulated_day()}


def _block(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


if __name__ == "__main__":
    made = pictures()
    if "--check" in sys.argv:
        stale = [
            name for name, text in made.items() if not (TARGET / name).exists() or (TARGET / name).read_text() != text
        ]
        if stale:
            raise SystemExit(
                f"docs/pictures differs from the policies ({', '.join(stale)}); run: python scripts/pictures.py"
            )
    else:
        for name, text in made.items():
            (TARGET / name).write_text(text)
        sys.stdout.write(f"wrote {len(made)} pictures to {TARGET}\n")
