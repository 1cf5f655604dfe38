"""The sides of a comparison: they run at the same time, each in processes of its environment."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from leadsman.core.settings.sources import FILES
from leadsman.core.text import clean
from leadsman.errors import ConfigurationError, LeadsmanError
from leadsman.tools.cli.arguments import CONFIG
from leadsman.tools.difference.picture import Picture, common, picture_in
from leadsman.tools.difference.side import PROGRAM, Run

SEEDS = FIRST, SECOND = 1, 2
"""Of the two runs of a side. Texts are hashed otherwise in each, too, so the order of a set is another one."""
MODULE = "leadsman.tools.difference.side"
PYTHONS = ("bin/python", ".venv/bin/python")
"""Where an environment has its interpreter."""
MAX_LINES = 5
"""Lines of a side that failed without a message of ours."""


class Side(NamedTuple):
    """What runs on one side."""

    name: str
    """``before`` or ``after``."""
    python: Path
    directory: Path
    run: Run


def side_of(name: str, places: Iterable[Path], run: Run) -> Side:
    """The side that runs in these places.

    Args:
        name: ``before`` or ``after``.
        places: folders with an environment, with the code, or with both; none: this environment, and the code here.
        run: what it runs.

    Raises:
        LeadsmanError: one of them is no folder.
    """
    python, directory = Path(sys.executable), Path.cwd()
    for place in places:
        if not place.is_dir():
            raise LeadsmanError(
                f"there is no folder {clean(str(place))}; --before takes one with an environment or with code"
            )
        own = next((place / each for each in PYTHONS if (place / each).exists()), None)
        python = python if own is None else own.absolute()  # not resolved: the link says which environment it is
        if not (place / "pyvenv.cfg").exists():
            directory = place.resolve()
    if run["config"] is None and not any((directory / each).exists() for each in FILES):
        here = next((each for each in FILES if Path(each).exists()), None)
        run = Run(**(run | {"config": here and str(Path(here).absolute())}))
    return Side(name, python, directory, run)


def pictures_of(sides: Sequence[Side], seeds: Sequence[int] = SEEDS) -> list[Picture]:
    """Run all sides at the same time, and see what each publishes.

    Args:
        sides: what runs.
        seeds: of the runs of each; of several there is what they have in common.

    Raises:
        LeadsmanError: a side failed; the message has what it said.
    """
    with contextlib.ExitStack() as stack:
        started = [(side, [_started(side, seed, stack) for seed in seeds]) for side in sides]
        return [reduce(common, [_read(side, each) for each in processes]) for side, processes in started]


def _started(side: Side, seed: int, stack: contextlib.ExitStack) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONHASHSEED": str(seed)}
    if side.python != Path(sys.executable):  # it has libraries of its own
        variables = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    command = [str(side.python), "-P", "-m", MODULE]
    asked = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115  # the stack closes it
    json.dump(side.run | {"seed": seed}, asked)
    asked.seek(0)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            cwd=side.directory,
            env=variables,
            stdin=asked,
            stdout=pipe,
            stderr=pipe,
            text=True,
            encoding="utf-8",
        )
    except OSError as error:
        raise LeadsmanError(f"{side.name}: {clean(str(side.python))} cannot be started: {error.strerror}") from None
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _read(side: Side, process: subprocess.Popen[str]) -> Picture:
    out, said = process.communicate()
    if process.returncode == 0:
        return picture_in(out, f"what the {side.name} side wrote")
    if "No module named" in said and "leadsman" in said.rsplit("No module named", 1)[1]:
        raise LeadsmanError(
            f"{side.name}: {clean(str(side.python))} has no leadsman with this command; install a newer one there, or "
            "compare the code and the settings in this environment"
        )
    lines = [each.removeprefix(f"{PROGRAM}: ") for each in said.splitlines() if each.startswith(f"{PROGRAM}: ")]
    kind = ConfigurationError if process.returncode == CONFIG else LeadsmanError
    raise kind("\n".join(f"{side.name}: {clean(each)}" for each in lines or said.splitlines()[-MAX_LINES:]))
