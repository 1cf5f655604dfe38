"""``leadsman doctor``: shows what the examination finds, as a table or as JSON, and its progress on a terminal."""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from leadsman.core.text import clean, count_noun
from leadsman.tools.cli.arguments import (
    CHECK_FAILED,
    MAYBE_TARGET,
    PREFIX,
    Subcommand,
    UsageError,
    switch,
)
from leadsman.tools.cli.remote import running_app
from leadsman.tools.cli.screen import CYAN, GREEN, RED, YELLOW
from leadsman.tools.cli.tables import fill, json_text, paint
from leadsman.tools.cli.target import load_app
from leadsman.tools.cli.terminal import Progress
from leadsman.tools.doctor.checks import Finding, findings, worst
from leadsman.tools.doctor.examination import Examination
from leadsman.tools.doctor.facts import Facts
from leadsman.tools.doctor.subject import Subject, of_plan, of_prefix

_COLOURS = {"ok": GREEN, "warn": YELLOW, "fail": RED, "unknown": CYAN}
_BESIDE = " " * 26
"""What is before the text of a finding: its verdict and its check."""


def run(options: argparse.Namespace) -> int:
    """Examine the broker and the machine of an app."""
    if options.target is None:
        if options.prefix is None:
            raise UsageError("name an app: MODULE:APP, such as house:app, or --prefix")
        return examine(of_prefix(*running_app(options)), as_json=options.json)
    if options.prefix is not None:
        options.topic_prefix = options.prefix
    return examine(of_plan(load_app(options).plan(os.environ)), as_json=options.json)


def examine(subject: Subject, *, as_json: bool) -> int:
    """Examine an app, print the findings, and return the exit code."""
    started = time.monotonic()
    found = findings(_facts(subject))
    for broker in subject.replacements:
        found += of_replacement(findings(_facts(subject.at(broker))), str(broker))
    seconds = time.monotonic() - started
    print(_json(subject, found, seconds) if as_json else "\n".join(lines(found, seconds)))
    return CHECK_FAILED if worst(found) == "fail" else 0


def of_replacement(found: Sequence[Finding], broker: str) -> list[Finding]:
    """What matters of a broker that the app does not use at the moment: whether it would take the app."""
    wanted = (each for each in found if each.group == "broker" or each.check in ("publish", "subscribe"))
    return [each._replace(group=f"replacement {broker}") for each in wanted]


def _facts(subject: Subject) -> Facts:
    """What an examination collects."""
    with Progress(sys.stderr) as progress:
        examination = Examination(subject, lambda text: progress.show(f"examining {text}"))
        runner = asyncio.Runner()
        try:
            return runner.run(examination.run())
        finally:
            if examination.left_behind:  # closing would wait for it
                runner.get_loop().set_exception_handler(lambda *_: None)
            else:
                runner.close()


def lines(found: Sequence[Finding], seconds: float) -> Iterator[str]:
    """The lines of the table: a head for each group, and below each finding what to do."""
    group = None
    for each in found:
        if each.group != group:
            yield f"{'' if group is None else chr(10)}{fill(each.group)}"
            group = each.group
        text = fill(f"{each.verdict:<8}{each.check:<16}{clean(each.text)}", "  ", _BESIDE)
        yield from text.replace(each.verdict, paint(each.verdict, _COLOURS[each.verdict]), 1).split("\n")
        if each.advice:
            yield from fill(f"→ {clean(each.advice)}", _BESIDE, f"{_BESIDE}  ").split("\n")
    yield ""
    yield f"{_summary(found)}, in {seconds:.1f} s"


def _summary(found: Sequence[Finding]) -> str:
    counts = Counter(each.verdict for each in found)
    parts = [f"{counts['ok']} ok"]
    if counts["unknown"]:
        parts.append(f"{counts['unknown']} unknown")
    if counts["warn"]:
        parts.append(count_noun(counts["warn"], "warning"))
    return ", ".join([*parts, f"{counts['fail']} failed"])


def _json(subject: Subject, found: Sequence[Finding], seconds: float) -> str:
    document = {
        "app": subject.name,
        "prefix": subject.topics.prefix,
        "broker": str(subject.broker),
        "verdict": worst(found),
        "seconds": round(seconds, 3),
        "findings": [each._asdict() | {"text": clean(each.text), "advice": clean(each.advice)} for each in found],
    }
    return json_text(document, indent=2)


COMMAND = Subcommand(
    run,
    "Connects to the broker as the app does, beside the running app, and examines version, "
    "credentials, access list, limits, retained messages, will and client id; then serial ports, "
    "Bluetooth, calendars, servers, disk, clock and state. The command takes less than 20 s, changes nothing "
    "and leaves nothing behind. Each fault comes with its remedy.",
    (
        "leadsman doctor house:app",
        "leadsman doctor house:app --json | jq '.findings[].text'",
        "leadsman doctor --prefix house --mqtt mqtt://broker.lan",
    ),
    (
        *MAYBE_TARGET,
        PREFIX._replace(help="the topic prefix: instead of the app's own, or instead of MODULE:APP"),
        switch("--json", "print one JSON object with all findings"),
    ),
    "Exits with 0 if nothing fails, 4 if something does; warnings do not count.",
)
