"""The extensions of an app: those that its author gave, and those that its settings name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from leadsman.core.extension import Documents, Extension
from leadsman.core.settings.entry import RETRY
from leadsman.core.settings.model import is_model
from leadsman.core.settings.sections import SECTIONS, readers
from leadsman.core.settings.sources import DEVICES
from leadsman.core.text import clean, describe
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pydantic import BaseModel

GROUP = "leadsman.extensions"
"""The group of the entry points of packages that have an extension."""
_NAME = r"[a-z][a-z0-9_]*"
_TAKEN = (*SECTIONS, RETRY, DEVICES, "env")
"""Sections of the settings that have a meaning already."""


def check_extensions(given: object) -> tuple[Extension, ...]:
    """What `App` was given as `extensions`. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidType(f"extensions is {given!r}; write a list of them: extensions=[Alarm()]")
    found = tuple(check_extension(each) for each in given)
    check_apart(found)
    return found


def check_extension(given: object) -> Extension:
    """See that it is an extension with a name and a class of its section. Raises `InvalidType`, `InvalidValue`."""
    if isinstance(given, type) and issubclass(given, Extension):
        raise InvalidType(f"extensions: {given.__name__} is a class; write {given.__name__}()")
    if not isinstance(given, Extension):
        raise InvalidType(f"extensions: {given!r} is no leadsman.Extension; derive its class from that")
    name: object = given.name
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise InvalidValue(
            f"extensions: the name of {type(given).__name__} is {name!r}; write a lower-case letter, and further ones,"
            " digits or _, in its class: name = 'alarm'"
        )
    if name in _TAKEN:
        raise InvalidValue(f"extensions: {name!r} is a section of the settings of leadsman; choose another name")
    for member in ("options", "commands", "checks"):
        table: object = getattr(given, member)
        if not isinstance(table, Mapping):
            raise InvalidType(f"extensions: {member} of {name!r} is {table!r}; write a dict, by name")
    documents: object = given.documents
    if not isinstance(documents, Documents):
        raise InvalidType(
            f"extensions: documents of {name!r} is {documents!r}; write leadsman.extension.Documents(status=…)"
        )
    if given.settings is not None and not is_model(given.settings):
        readers(given.settings)
    return given


def check_apart(extensions: Iterable[Extension], model: "type[BaseModel] | None" = None) -> None:
    """See that they can be told apart, from each other and from the settings of the app. Raises `InvalidValue`."""
    names: set[str] = set()
    classes: dict[type, str] = {}
    declared: dict[str, str] = {}
    for each in extensions:
        if each.name in names:
            raise InvalidValue(f"extensions: two have the name {each.name!r}; leave out one, or rename it")
        names.add(each.name)
        for what in _declared(each):
            if what in declared:
                raise InvalidValue(
                    f"extensions: {declared[what]!r} and {each.name!r} both have {what}; leave out one of the two, or"
                    " rename it there"
                )
            declared[what] = each.name
        if (kind := each.settings) is None:
            continue
        if kind in classes:
            raise InvalidValue(
                f"extensions: {classes[kind]!r} and {each.name!r} have one class of settings, {kind.__name__}; derive"
                " another one for one of them"
            )
        classes[kind] = each.name
        if model is not None and each.name in model.model_fields:
            raise InvalidValue(
                f"extensions: {each.name!r} has a section of this name, and {model.__name__}.{each.name} is a setting"
                " of the app; rename one of them"
            )


def _declared(extension: Extension) -> Iterator[str]:
    """What only one extension may have, as errors call it. Checks of the doctor are apart: each is shown below its
    extension."""
    documents = extension.documents
    yield from (f"the command {name!r}" for name in extension.commands)
    yield from (f"the message of a device at {name!r}" for name in documents.of_device)
    for what, kind in (
        ("the section", documents.sections),
        ("the field of the heartbeat", documents.status),
        ("the field of the app", documents.app),
        ("the field of a device", documents.runtime),
    ):
        yield from (f"{what} {name!r}" for name in getattr(kind, "__annotations__", ()))


def named_extensions(names: Sequence[str]) -> tuple[Extension, ...]:
    """The extensions that installed packages offer under these names. Raises `InvalidValue`."""
    if not names:
        return ()
    from importlib.metadata import entry_points  # few apps name one

    offered = entry_points(group=GROUP)
    return tuple(_named(name, [each for each in offered if each.name == name], offered.names) for name in names)


def _named(name: str, found: Sequence["EntryPoint"], offered: Iterable[str]) -> Extension:
    if not found:
        known = sorted(offered)
        otherwise = suggestion(name, known) if known else "install the package that has it"
        raise InvalidValue(f"no installed package has the extension {clean(name)!r}; {otherwise}")
    if len(found) > 1:
        both = " and ".join(sorted(_package(each) for each in found))
        raise InvalidValue(f"{both} both have an extension {name!r}; uninstall one of them")
    where = f"{name!r} of {_package(found[0])}"
    try:
        given = found[0].load()
        extension = check_extension(given() if isinstance(given, type) and issubclass(given, Extension) else given)
    except ConfigurationError as error:
        raise InvalidValue(f"{where}: {error}") from None
    except Exception as error:
        wrong = f"{type(error).__name__}: {describe(error)}"
        raise InvalidValue(f"{where} cannot be loaded: {wrong}; install another version, or name it no more") from error
    if extension.name != name:
        raise InvalidValue(f"{where} calls itself {extension.name!r}; install another version, or name it no more")
    return extension


def _package(found: "EntryPoint") -> str:
    """The distribution of an entry point, for errors."""
    return found.value if found.dist is None else f"{found.dist.name} {found.dist.version}"
