"""``leadsman simulate``: runs a user's app for a simulated day, and shows what each policy would have lost."""

import argparse
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadsman.core.monitoring.log_format import wants_colour
from leadsman.core.text import clean, describe
from leadsman.errors import ConfigurationError, LeadsmanError
from leadsman.tools.cli.arguments import (
    APP,
    JSON,
    WHERE,
    Subcommand,
    UsageError,
    argument,
    duration,
    moment,
    named,
)
from leadsman.tools.cli.remote import split_names
from leadsman.tools.cli.tables import json_text
from leadsman.tools.cli.target import load_target, sources_of
from leadsman.tools.cli.terminal import Progress
from leadsman.tools.simulation.drawing import BLOCKS, Pen, picture, strips
from leadsman.tools.simulation.outcome import PolicyDay, Stage, conclusion, title_of
from leadsman.tools.simulation.scenario import BROKER, SCENARIOS
from leadsman.tools.simulation.variant import AS_WRITTEN, USUAL, Variant, variant_of

PROGRESS_DELAY = 1.0
"""Seconds before progress is shown."""
YEARS = range(1971, 3000)
"""Years in which a simulation may begin."""
MAX_SIMULATED_SECONDS = 31 * 86_400.0
"""Seconds of a simulation."""


def run(options: argparse.Namespace) -> None:
    """Run an app for a simulated day, and show the day."""
    from leadsman.tools.simulation.simulator import (  # the help does not wait for it
        Simulation,
        firsts,
        simulate,
        stage_of,
    )

    split_names(options, app_first=True)
    if options.target is None:
        raise UsageError("name the app: leadsman simulate house:app")
    app, where = load_target(options.target), sources_of(options)
    variants = _variants(options)
    if not 60 <= options.length <= MAX_SIMULATED_SECONDS:
        raise UsageError(f"--for is {options.length:g} s; simulate between a minute and 31 days")
    if options.begins is not None and options.begins.year not in YEARS:
        raise UsageError(f"--begins is in the year {options.begins.year}; write one from 1971 to 2999")
    scenario = SCENARIOS[options.day]
    simulation = Simulation(
        app,
        where,
        scenario,
        options.length,
        options.seed,
        tuple(options.device),
        tuple(options.stand_in),
        options.begins,
    )
    _check_writable(options.svg)
    stage = stage_of(simulation)
    pairs = [(each, variants[first]) for each, first in zip(variants, firsts(simulation, variants), strict=True)]
    variants = [each for each, first in pairs if each is first]
    with Progress(sys.stderr, PROGRESS_DELAY) as progress:
        abouts = (f"policy {n} of {len(variants)}, {clean(each.name)[:40]}" for n, each in enumerate(variants, 1))
        outcomes = [
            simulate(simulation, stage, each, functools.partial(_show, progress, about))
            for each, about in zip(variants, abouts, strict=True)
        ]
    repeated = [
        f"{each.name} changes nothing: it is '{first.name}' again." for each, first in pairs if each is not first
    ]
    concluded = [conclusion(outcomes), *repeated]
    if options.svg is not None:
        _write(options.svg, picture(stage, outcomes, concluded))
    if options.json:
        print(json_text(_document(stage, outcomes, concluded), indent=2))
    else:
        print(strips(stage, outcomes, [*concluded, *_remarks(stage)], _pen()))


def _show(progress: Progress, about: str, share: float) -> None:
    progress.show(f"simulating {about}: {share:.0%}")


def _variants(options: argparse.Namespace) -> list[Variant]:
    """The policies of the command line, after that of the app."""
    try:
        return [AS_WRITTEN, *(variant_of(text) for text in options.policy or USUAL)]
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def _pen() -> Pen:
    blocks = True
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        blocks = False
    return Pen(colour=wants_colour(sys.stdout, os.environ), blocks=blocks)


def _remarks(stage: Stage) -> list[str]:
    """Remarks for the reader on how this was made."""
    remarks = []
    if stage.stand_ins:
        remarks.append(
            f"Readings of {_list(stage.stand_ins)} were made up: without twins no handler is called. "
            "App(…, twins=…) gives the app twins."
        )
    if stage.stopping:
        remarks.append(
            f"A failure of {_list(stage.stopping)} would have ended the app (on_failure='stop'); "
            "the simulation went on."
        )
    if stage.zoneless:
        remarks.append(
            "Schedules without a zone are in UTC here, and in the zone of the host in the app: "
            f"{_list(stage.zoneless)}. Cron(…, zone='Europe/Berlin') makes them the same everywhere."
        )
    return remarks


def _list(devices: Sequence[str]) -> str:
    return ", ".join(devices) if len(devices) <= 5 else f"{len(devices)} devices"


def _document(stage: Stage, outcomes: Sequence[PolicyDay], concluded: Sequence[str]) -> dict[str, Any]:
    """All of it as JSON. Times are seconds since the start."""
    return {
        "app": stage.app,
        "day": stage.title,
        "begins": stage.begins.isoformat(),
        "length": stage.length,
        "seed": stage.seed,
        "devices": list(stage.devices),
        "stand_ins": list(stage.stand_ins),
        "schedules_in_utc": list(stage.zoneless),
        "faults": [
            {
                "of": "broker" if each.wire == BROKER else each.wire,
                **{key: getattr(each, key) for key in ("begin", "end", "silent")},
            }
            for each in stage.plan.faults
        ],
        "clock_steps": [each._asdict() for each in stage.plan.steps],
        "policies": [
            {
                "policy": title_of(stage, each),
                **each.figures._asdict(),
                "devices": {
                    day.device: {
                        "slots": day.slots,
                        "readings": len(day.readings),
                        "lost": day.causes,
                        "calls": len(day.calls),
                        "failed": len(day.failures),
                        "gaps": [gap._asdict() for gap in day.gaps],
                    }
                    for day in each.days
                },
            }
            for each in outcomes
        ],
        "conclusion": list(concluded),
    }


def _check_writable(path: Path | None) -> None:
    """Raise now, and not after the simulation, if a picture cannot be written."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        reason = "it is a directory" if path.is_dir() else f"there is no directory {clean(str(path.parent))}"
        raise LeadsmanError(f"--svg {clean(str(path))}: {reason}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise LeadsmanError(f"--svg {clean(str(path))}: {describe(error)}") from None


COMMAND = Subcommand(
    run,
    "Runs the app in virtual time. Adapters, devices and the broker fail, by the kind of day and the "
    "seed. For each policy the command shows how long there was no reading, and the number of calls. "
    "Handlers run on the twins of the app, or their readings are made up. The same seed gives the same result.",
    (
        "leadsman simulate house:app",
        "leadsman simulate house:app --day flaky --policy 'retry=3, circuit_breaker=5'",
        "leadsman simulate house:app --svg day.svg --seed 7",
    ),
    (
        named("MODULE:APP [DEVICE]", "the app, such as house:app, and the devices (default: all)"),
        APP,
        *WHERE,
        argument(
            "--policy",
            "compare with this policy (can be repeated): retry=3, UNTIL_NEXT_POLL, a name of the settings or a "
            "family, the notation of a policy file, each with circuit_breaker=, recovery=, budget=, within= or "
            "overrun= (default: three usual ones)",
            metavar="POLICY",
            action="append",
        ),
        argument("--day", "quiet, flaky or outages (default: outages)", choices=tuple(SCENARIOS), default="outages"),
        argument("--seed", "another day of the same kind (default: 1)", metavar="N", type=int, default=1),
        argument(
            "--for",
            "how long to simulate (default: 24h)",
            dest="length",
            metavar="TIME",
            type=duration,
            default=86400.0,
        ),
        argument("--begins", "when the day begins, such as 2026-10-25, for clock changes", metavar="TIME", type=moment),
        argument(
            "--stand-in",
            "do not call the handler of this device, and make up its readings; all: every handler (can be repeated)",
            metavar="NAME",
            action="append",
            default=[],
        ),
        argument("--svg", "write a picture to this file", type=Path, metavar="FILE"),
        JSON,
    ),
)
