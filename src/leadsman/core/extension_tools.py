"""What an extension gives to the tools: its commands, its topics, and what its checks find. No app without one of them
imports this."""

from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple


class Place(NamedTuple):
    """An object that is imported when it is needed."""

    help: str
    """One line about it."""
    module: str
    name: str


class Command(NamedTuple):
    """A command of the command line: the object that a `Place` in `Extension.commands` names."""

    run: Callable[..., int | Coroutine[Any, Any, int | None] | None]
    """Called with the `App`, whose settings are loaded, and the `argparse.Namespace` of its arguments; it may be
    ``async def``. It returns the exit code, 0 to 255; None is 0. A `LeadsmanError` that it raises is shown as its
    message."""
    arguments: Callable[..., object] | None = None
    """Called with the `argparse.ArgumentParser` of the command, to add arguments to it; it has ``--config``, ``--set``
    and ``--mqtt``."""


class Topic(NamedTuple):
    """A topic of an extension."""

    access: Literal["write", "read"]
    filter: str
    """A topic, or a filter of topics, such as ``house/+/alarm``."""
    payload: object = None
    """The type of what is published there, for ``leadsman schema``: any that pydantic describes, such as a model; below
    Python 3.12 no `TypedDict` but that of typing_extensions. None: the schema leaves the topic out."""


Verdict = Literal["ok", "warn", "fail", "unknown"]
"""``warn``: the app works with less than it could have. ``fail``: something of the app does not work. ``unknown``: it
could not be seen from here."""


class CheckResult(NamedTuple):
    """What one check of ``leadsman doctor`` has found."""

    verdict: Verdict
    text: str
    advice: str = ""
    """What to do, in one line; empty where there is nothing to do."""
