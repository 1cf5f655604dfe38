"""``leadsman gaps``: prints the ledgers of devices, for a person or for a program."""

import argparse
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from leadsman.core.loop.durations import human
from leadsman.core.text import clean, count_noun
from leadsman.extensions.ledger.ledger import READ
from leadsman.extensions.ledger.saved import KEPT_SECONDS
from leadsman.tools.cli.arguments import JSON, OF_LIVE, ONLY_DEVICES, Subcommand, UsageError, argument, duration
from leadsman.tools.cli.remote import any_version, ask_about_devices, section
from leadsman.tools.cli.screen import GREEN, RED, YELLOW
from leadsman.tools.cli.tables import json_text, print_text, table
from leadsman.tools.cli.times import clock, local, zone

if TYPE_CHECKING:
    from leadsman.extensions.ledger.document import DeviceLedger, LedgerGap
    from leadsman.extensions.ledger.ledger import Disposition

MAX_SHOWN = 100
"""Gaps that a person reads; a program gets all."""
LATELY = 3600.0
"""Seconds since the end of a gap that `ended_lately` names: an hour."""
MAX_ENDED_GAPS = 10
"""Gaps that it names."""


def run(options: argparse.Namespace) -> None:
    """Show the ledgers of a running app."""
    if options.since > KEPT_SECONDS:
        raise UsageError(
            f"--since is {human(options.since)}, and an app keeps two days; write --since {human(KEPT_SECONDS)}"
        )
    answer = ask_about_devices(options, {"sections": ["ledger"], "since": time.time() - options.since})
    with any_version():
        if options.json:
            print(json_text(section(answer, "ledger"), indent=2))
        else:
            print_section(section(answer, "ledger"))


def print_section(ledgers: Mapping[str, "DeviceLedger"]) -> None:
    """Print ledgers by device: how much came, what did not, and the gaps with the latest first."""
    starts = [ledger["hours"][0]["start"] for ledger in ledgers.values() if ledger["hours"]]
    if starts:
        print_text(f"Polls that were due since {local(min(starts))}, {zone()}:")
        print()
    rows = [_device(name, ledger) for name, ledger in ledgers.items()]
    shares = {row[1]: GREEN if row[1] == "100 %" else YELLOW for row in rows if row[1] != "–"}
    print(table(("device", "available", "due", "read", "without a reading"), rows, shares))
    gaps = [(name, gap) for name, ledger in ledgers.items() for gap in ledger["gaps"]]
    if not gaps:
        print("\nThere is no gap.")
        return
    gaps.sort(key=lambda found: found[1]["since"], reverse=True)
    rows = [_gap(*found) for found in gaps[:MAX_SHOWN]]
    lasting = {row[2]: RED for row, (_, gap) in zip(rows, gaps, strict=False) if gap["until"] is None}
    print("\n" + table(("device", f"since ({zone()})", "length", "cause", "without a reading"), rows, lasting))
    if len(gaps) > MAX_SHOWN:
        print_text(f"… and {len(gaps) - MAX_SHOWN} earlier gaps; choose devices, a shorter time, or --json")


def ended_lately(ledgers: Mapping[str, "DeviceLedger"]) -> list[str]:
    """Lines for the last silence and the last losses of each device that ended in the last hour, the latest first.

    Raises:
        LookupError, TypeError, AttributeError, ValueError: the app has another version, and other ledgers.
    """
    found = []
    latest = [
        (name, ledger, last)
        for name, ledger in ledgers.items()
        for last in {gap["cause"] == "dropped": gap for gap in ledger["gaps"]}.values()
    ]
    for name, ledger, last in latest:
        if last["until"] is None:
            continue
        until = datetime.fromisoformat(last["until"])
        if (datetime.fromisoformat(ledger["at"]) - until).total_seconds() < LATELY:
            times = f"{clock(last['since'])} to {clock(last['until'])}"
            what = f"was silent {times} ({human(round(last['seconds']))}): {_words(last['cause'])}"
            if last["cause"] == "dropped":  # others may have arrived between them
                what = f"lost {count_noun(last['slots']['dropped'], 'reading')} {times}"
            found.append((until, f"{clean(name)} {what}"))
    found.sort(key=lambda each: each[0], reverse=True)
    more = [f"… and {count_noun(len(found) - MAX_ENDED_GAPS, 'further gap')}"] if len(found) > MAX_ENDED_GAPS else []
    return [*(line for _, line in found[:MAX_ENDED_GAPS]), *more]


def _device(name: str, ledger: "DeviceLedger") -> Sequence[str]:
    counts, share = ledger["counts"], ledger["availability"]
    read = sum(count for word, count in counts.items() if word in READ)
    slots = str(ledger["slots"]) if ledger["slots"] or "disabled" in counts else "–"
    came = count_noun(read, "event") if "events" in ledger else str(read)
    available = "–" if share is None else f"{int(share * 100) / 100:g} %"  # only what has no gap is 100
    return clean(name), available, slots, came, _unread(counts)


def _gap(name: str, gap: "LedgerGap") -> Sequence[str]:
    length = human(round(gap["seconds"])) + (", not ended" if gap["until"] is None else "")
    return clean(name), local(gap["since"]), length, _words(gap["cause"]), _unread(gap["slots"])


def _unread(counts: Mapping["Disposition", int]) -> str:
    """The slots without a reading, by their outcome."""
    return ", ".join(f"{_words(word)} {count}" for word, count in counts.items() if word not in READ) or "–"


def _words(name: str) -> str:
    """A disposition or a cause, for a person."""
    return clean(name).replace("_", " ")


COMMAND = Subcommand(
    run,
    "Shows the ledger of each device of a running app: how many of the slots of its schedule gave a "
    "reading, also in per cent, the outcome of the other slots, and the gaps with their causes.",
    (
        "leadsman gaps house:app",
        "leadsman gaps boiler --prefix house --since 1h",
        "leadsman gaps house:app --json | jq '.boiler.availability'",
    ),
    (
        ONLY_DEVICES,
        *OF_LIVE,
        argument(
            "--since",
            "this last period, at most the two days that are kept (default: 24h)",
            type=duration,
            metavar="TIME",
            default=86_400.0,
        ),
        JSON,
    ),
)
