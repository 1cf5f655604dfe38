"""One run of an app for a comparison, in a process of its own: reads what to run from stdin, and writes the picture of
it to stdout. It may be an older leadsman than the one that asks."""

import contextlib
import json
import os
import random
import sys
from datetime import datetime
from pathlib import Path
from typing import IO

from typing_extensions import TypedDict

from leadsman._version import __version__
from leadsman.core.app import App
from leadsman.core.document import Seconds, Time
from leadsman.core.loop.tasks import in_the_next_turn
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidValue, LeadsmanError
from leadsman.testing.harness import Harness
from leadsman.tools.cli.arguments import only_with
from leadsman.tools.cli.main import guarded
from leadsman.tools.cli.real_world import first_touch, refuse_real_world
from leadsman.tools.cli.target import load_target
from leadsman.tools.difference.picture import FORMAT, Picture, PublishedMessage, found

PROGRAM = "leadsman diff"
DAY = 86_400.0
"""Seconds of a run on twins, if nothing else is said."""
ADDED = dict(
    (*only_with("discovery", ("discovery.convention", "homeassistant")), *only_with("http", ("http.bind", "off")))
)
"""What is set for a run: entities are those that discovery would make, and nothing listens."""


class Run(TypedDict):
    """What is to be run."""

    picture: int
    """The version of the format of pictures that is wanted, 1."""
    target: str
    """The app, such as `house:app`."""
    config: str | None
    """The settings file; null: that of the directory."""
    settings: dict[str, str]
    """Settings by their dotted paths."""
    sessions: list[str]
    """The files of sessions that it runs on; empty: it runs on its twins."""
    length: Seconds | None
    """How long; null: until the sessions end, or a day."""
    begins: Time | None
    """When it begins; null: when the sessions did, or in 2026."""
    seed: int
    """Of chance."""


def picture_of(run: Run) -> Picture:
    """Run an app in virtual time.

    Raises:
        LeadsmanError: it cannot be run, or touches something real.
    """
    if run["picture"] != FORMAT:
        raise LeadsmanError(f"it makes pictures of the format {FORMAT}, and {run['picture']!r} is asked for")
    random.seed(run["seed"])
    with contextlib.redirect_stdout(sys.stderr), in_the_next_turn():
        app = load_target(run["target"])
        settings = _settings(app, run)
        app.load(_where(run, ADDED | run["settings"]))
        if not run["sessions"] and app.setup.adapters and app.setup.declaration.twins is None:
            raise InvalidValue(
                "the app has no twins, and nothing else to run on; write App(…, twins=…), or give a session that "
                "leadsman record wrote: --session FILE"
            )
        begins = None if run["begins"] is None else datetime.fromisoformat(run["begins"]).timestamp()
        harness = Harness(app, twins=not run["sessions"], sessions=run["sessions"], wall=begins)
        length: float = getattr(harness.player, "length", DAY) if run["length"] is None else run["length"]
        with refuse_real_world(), harness:
            harness.run(length)
    if (touch := first_touch()) is not None:
        raise LeadsmanError(f"{touch.place or 'the app'}: it {touch.what}, and a comparison touches nothing real")
    messages = (PublishedMessage(each.topic, each.payload, each.retain) for each in harness.broker.log)
    versions = {__version__, app.setup.declaration.version}
    return Picture(
        picture=FORMAT,
        app=app.name,
        leadsman=__version__,
        length=length,
        found=found(messages, settings, versions),
    )


def _settings(app: App, run: Run) -> dict[str, str]:
    """The settings as they are, without what this adds. Secrets are masked."""
    with app.unloaded():
        app.load(_where(run, run["settings"]))
        return {row.path: row.value for row in app.setup.rows}


def _where(run: Run, flags: dict[str, str]) -> Where:
    return Where.here(None if run["config"] is None else Path(run["config"]), flags)


def main(asked: IO[str], answer: IO[str]) -> int:
    """Make the picture that is asked for, and write it. Returns the exit code; errors are lines on stderr."""

    def make() -> None:
        run: Run = json.load(asked)
        json.dump(picture_of(run), answer)
        answer.flush()

    return guarded(make, PROGRAM)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as only_ours:  # what the app prints is no part of the picture
        os.dup2(2, 1)
        code = main(sys.stdin, only_ours)
    sys.exit(code)
