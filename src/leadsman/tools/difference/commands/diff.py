"""``leadsman diff``: shows what consumers of an app would see change with other code, settings or an environment."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from leadsman.core.text import clean, describe
from leadsman.errors import LeadsmanError
from leadsman.tools.cli.arguments import (
    FAILED,
    JSON,
    ONE_TARGET,
    WHERE,
    Subcommand,
    UsageError,
    argument,
    duration,
    moment,
)
from leadsman.tools.cli.tables import json_text, print_text
from leadsman.tools.cli.target import sources_of
from leadsman.tools.difference.difference import Change, changes, unsteady
from leadsman.tools.difference.picture import FORMAT, Picture, common, picture_in
from leadsman.tools.difference.side import Run
from leadsman.tools.difference.sides import FIRST, SECOND, Side, pictures_of, side_of
from leadsman.tools.difference.told import group_of, lines_of, name_of

MAX_SECONDS = 31 * 86_400.0
"""Seconds of a run."""


def run(options: argparse.Namespace) -> int | None:
    """Compare what an app publishes with what it published before."""
    if options.length is not None and not 1 <= options.length <= MAX_SECONDS:
        raise UsageError(f"--for is {options.length:g} s; compare between a second and 31 days")
    asked = _asked(options)
    after = side_of("after", (), asked)
    if options.write is not None:
        _write(options.write, pictures_of([after])[0])
        return None
    before = _before(options, asked)
    if not isinstance(before, Side):
        after = after._replace(run=Run(**(asked | {"length": before["length"]})))
    was, will = _once(before, after, FIRST)
    if any(changes(was["found"], will["found"])):  # or what differs is chance
        was, will = map(common, (was, will), _once(before, after, SECOND))
    found = list(changes(was["found"], will["found"]))
    if options.json:
        print(json_text(_document(was, will, found), indent=2))
    else:
        for line in lines_of(was, will, found):
            print_text(line)
    return FAILED if found else None


def _once(before: Side | Picture, after: Side, seed: int) -> tuple[Picture, Picture]:
    """What one run of each side publishes."""
    if isinstance(before, Side):
        was, will = pictures_of([before, after], [seed])
        return was, will
    [will] = pictures_of([after], [seed])
    return before, will


def _document(before: Picture, after: Picture, found: Sequence[Change]) -> dict[str, object]:
    """All of it as JSON."""
    return {
        **{
            name: {"leadsman": each["leadsman"], "app": each["app"], "length": each["length"]}
            for name, each in (("before", before), ("after", after))
        },
        "differ_from_run_to_run": max(unsteady(before["found"]), unsteady(after["found"])),
        "changes": [{"group": group_of(each), "name": name_of(each), **each._asdict()} for each in found],
    }


def _asked(options: argparse.Namespace) -> Run:
    """What the app is to do on the side that will be."""
    return Run(
        picture=FORMAT,
        target=options.target,
        config=None if options.config is None else str(options.config.absolute()),
        settings={key: str(value) for key, value in sources_of(options).flags.items()},
        sessions=[str(each.absolute()) for each in options.session],
        length=options.length,
        begins=None if options.begins is None else options.begins.isoformat(),
        seed=0,
    )


def _before(options: argparse.Namespace, asked: Run) -> Side | Picture:
    """The side that is: to be run, or its picture."""
    places, settings = options.before, options.before_settings
    if not places and settings is None:
        raise UsageError("name what to compare with: --before FOLDER, --before FILE, or --before-settings FILE")
    if len(places) == 1 and settings is None and places[0].is_file():
        return picture_in(_read(places[0]), clean(str(places[0])))
    if settings is not None:
        asked = Run(**(asked | {"config": str(settings.absolute())}))
    return side_of("before", places, asked)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise LeadsmanError(f"--before {clean(str(path))}: {describe(error)}") from None


def _write(path: Path, picture: Picture) -> None:
    try:
        path.write_text(json_text(picture) + "\n", "utf-8", newline="\n")
    except OSError as error:
        raise LeadsmanError(f"--write {clean(str(path))}: {describe(error)}") from None


COMMAND = Subcommand(
    run,
    "Runs an app in virtual time as it is and as it will be, on its twins or on sessions that leadsman record wrote, "
    "and prints each setting, topic, payload field and entity of Home Assistant that appears, disappears or changes, "
    "with the values. Entities are those that discovery would make, even where it is off. It touches no device, no "
    "network and no state. If anything differs, each side runs once more: values that differ from run to run are not "
    "compared.",
    (
        "leadsman diff house:app --before /opt/house",
        "leadsman diff house:app --before ../house-yesterday --session kitchen.session",
        "leadsman diff house:app --before-settings old.toml --json",
        "leadsman diff house:app --write old.json",
        "leadsman diff house:app --before old.json",
    ),
    (
        ONE_TARGET,
        argument(
            "--before",
            "what runs today: a folder with an environment, with the code, or with both (can be repeated), or a file "
            "that --write wrote (default: what is here)",
            metavar="PLACE",
            type=Path,
            action="append",
            default=[],
        ),
        argument(
            "--before-settings",
            "the settings file of today, instead of --config or that of the folder",
            metavar="FILE",
            type=Path,
        ),
        argument(
            "--session",
            "run on what leadsman record wrote, and not on twins (can be repeated: they begin together)",
            metavar="FILE",
            type=Path,
            action="append",
            default=[],
        ),
        argument(
            "--for",
            "how long, in virtual time (default: 24h, or as long as the session)",
            dest="length",
            metavar="TIME",
            type=duration,
        ),
        argument("--begins", "when it begins, such as 2026-10-25, for clock changes", metavar="TIME", type=moment),
        argument(
            "--write",
            "write what the app publishes to this file, for --before, and compare nothing",
            type=Path,
            metavar="FILE",
        ),
        *WHERE,
        JSON,
    ),
    "Exits with 1 if something changes, and also if a side cannot be run, which a line on stderr says.",
)
