"""Commands that the extensions of an app add to the command line, beside those of leadsman. Each is imported when it is
typed."""

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from leadsman.core.app import App
from leadsman.core.extension_tools import Command, Place
from leadsman.core.text import describe
from leadsman.core.text.suggestion import nearest
from leadsman.errors import ConfigurationError, InvalidType, LeadsmanError
from leadsman.tools.cli.arguments import ONE_TARGET, SETTINGS, Parser, UsageError, add
from leadsman.tools.cli.commands import commands
from leadsman.tools.cli.target import NoModuleError, load_app, load_target, where_of

Run = Callable[[], int | None]


class Own(NamedTuple):
    """A command of an extension."""

    extension: str
    name: str
    place: Place

    @property
    def wrong(self) -> bool:
        """Whether what the extension gives is no place."""
        given: object = self.place
        return not isinstance(given, Place) or not all(isinstance(each, str) for each in given)

    def __str__(self) -> str:
        return f"the command {self.name!r} of the extension {self.extension!r}"


def of_app(app: App) -> Iterator[Own]:
    """The commands of the extensions of an app."""
    for extension in app.setup.extensions:
        for name, place in extension.commands.items():
            yield Own(extension.name, str(name), place)


def grouped(app: App) -> str:
    """The commands for the help of an app that is a program of its own; empty if there are none."""
    lines = [f"  {each.name:<10}  {f'wrong: {_WANTED}' if each.wrong else each.place.help}" for each in of_app(app)]
    return "\n".join(["", "", "extensions:", *lines]) if lines else ""


_WANTED = "write leadsman.extension.Place(help, module, name)"


def names_target(words: Sequence[str]) -> bool:
    """Whether an app follows the name of a command."""
    return len(words) > 1 and not words[1].startswith("-")


def typed(words: Sequence[str]) -> Run | None:
    """What runs ``leadsman alarms house:app``; None if there is no such app or command, or if the name is a misspelt
    one of leadsman. Raises what `load_target` and `typed_of` raise."""
    if not names_target(words):
        return None
    name, target = words[:2]
    try:
        app = load_target(target)
    except NoModuleError:
        return None
    except LeadsmanError:
        if nearest(name, commands()):
            return None
        raise
    return typed_of(app, words, "leadsman", with_target=True)


def typed_of(app: App, words: Sequence[str], program: str, *, with_target: bool = False) -> Run | None:
    """What runs a command of an extension with its arguments, and returns the exit code; None if the app has none of
    this name.

    Args:
        app: the app.
        words: the name of the command, and what follows it.
        program: what is typed before them.
        with_target: whether the app is one of the words.

    Raises:
        UsageError: the name is a misspelt one.
        ConfigurationError: the command cannot be imported, is of another kind, or its arguments are wrong.
    """
    known = {each.name: each for each in of_app(app)}
    if words[0] not in known:
        known = _with_those_of_the_settings(app, words[1:], with_target=with_target) or known
    if (found := known.get(words[0])) is None:
        near = nearest(words[0], [*known, *commands()])
        if near in known:
            raise UsageError(f"there is no command {words[0]!r}; did you mean {near!r}?")
        return None
    command = _imported(found)
    prog = f"{program} {found.name}"
    parser = Parser(prog, found.place.help, [f"{prog} house:app" if with_target else prog])
    add(parser, (*([ONE_TARGET] if with_target else []), *SETTINGS))
    try:
        if command.arguments is not None:
            command.arguments(parser)
    except Exception as error:
        raise ConfigurationError(f"{found} raised {_fault(error)}; correct its arguments") from None
    options, unknown = parser.parse_known_args(words[1:])
    parser.refuse(unknown)
    options.target = app

    def run() -> int | None:
        loaded = load_app(options)
        try:
            code: object = command.run(loaded, options)
            if inspect.iscoroutine(code):
                code = asyncio.run(code)
        except LeadsmanError:
            raise
        except Exception as error:
            raise LeadsmanError(f"{found} raised {_fault(error)}; correct it") from None
        if code is None or (isinstance(code, int) and not isinstance(code, bool) and 0 <= code < 256):
            return code
        raise InvalidType(f"{found} gave {code!r}; let it return its exit code, 0 to 255, or None")

    return run


def _with_those_of_the_settings(app: App, words: Sequence[str], *, with_target: bool) -> dict[str, Own]:
    """The commands of all extensions, by name; none if the settings cannot be loaded, which says another command."""
    frame = Parser(add_help=False)
    add(frame, (*([ONE_TARGET] if with_target else []), *SETTINGS))
    options, _ = frame.parse_known_args(words)
    options.target = app
    try:
        return {each.name: each for each in of_app(load_app(options))}
    except LeadsmanError:
        return {}


def _imported(found: Own) -> Command:
    if found.wrong:
        raise InvalidType(f"{found} is {found.place!r}; {_WANTED}")
    _, module, name = found.place
    try:
        command = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{found} cannot be imported: {_fault(error)}; correct {module}:{name}") from None
    if not isinstance(command, Command):
        raise InvalidType(f"{found} is no Command; write {name} = leadsman.extension.Command(run) in {module}")
    return command


def _fault(error: BaseException) -> str:
    return f"{type(error).__name__}: {describe(error)} ({where_of(error)})"
