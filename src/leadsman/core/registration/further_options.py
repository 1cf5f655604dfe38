"""The options that the extensions of an app add to its decorators."""

import inspect
from collections.abc import Iterable, Mapping

from leadsman.core.extension import Extension
from leadsman.core.registration.command import Command, CommandOptions
from leadsman.core.registration.declaration import Check, Option, declared
from leadsman.core.registration.event import EventOptions
from leadsman.core.registration.source import Source, SourceOptions
from leadsman.core.registration.telemetry import Telemetry, TelemetryOptions
from leadsman.core.text import describe
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, labelled

DECORATORS: Mapping[str, tuple[type, type]] = {
    "telemetry": (TelemetryOptions, Telemetry),
    "periodic": (TelemetryOptions, Telemetry),
    "source": (SourceOptions, Source),
    "event": (EventOptions, Source),
    "command": (CommandOptions, Command),
}
"""The decorators that take options of extensions, each with its own options and with what it registers."""


def further_options(extensions: Iterable[Extension]) -> dict[str, dict[str, Option]]:
    """The options that extensions add, by the kind of the decorator and their names.

    Raises:
        InvalidType: one has no `Option` beside its type, or a check that takes other arguments.
        InvalidValue: there is no such decorator, or one has the name of another option.
    """
    found: dict[str, dict[str, Option]] = {kind: {} for kind in DECORATORS}
    owners: dict[tuple[str, str], str] = {}
    for extension in extensions:
        with labelled(f"extension {extension.name!r}"):
            for kind, options in extension.options.items():
                if kind not in DECORATORS:
                    raise InvalidValue(f"options has {kind!r}; {suggestion(str(kind), DECORATORS)}")
                for name, option in _declared(kind, options).items():
                    own, registered = DECORATORS[kind]
                    owner = owners.get((kind, name)) or (
                        "leadsman" if name in own.__annotations__ or hasattr(registered, name) else None
                    )
                    if owner is not None:
                        raise InvalidValue(f"the option {name!r} of {kind} is one of {owner}; rename it")
                    owners[kind, name] = f"the extension {extension.name!r}"
                    check = _guarded(option.check, extension.name)
                    found[kind][name] = option._replace(check=check, extension=extension.name)
    return found


def _guarded(check: Check, extension: str) -> Check:
    """A check of an extension. What it raises of its own is an error about the option."""

    def guarded(value: object, name: str) -> object:
        try:
            return check(value, name)
        except ConfigurationError:
            raise
        except Exception as error:
            refused = f"{name} is {value!r}, which the extension {extension!r} does not accept"
            wrong = f"{type(error).__name__}: {describe(error)}"
            raise InvalidValue(f"{refused}: {wrong}; write another value") from None

    return guarded


def _declared(kind: str, options: type) -> Mapping[str, Option]:
    for name, annotation in getattr(options, "__annotations__", {}).items():
        if not any(isinstance(each, Option) for each in getattr(annotation, "__metadata__", ())):
            raise InvalidType(f"the option {name!r} of {kind} has no Option; write Annotated[…, Option(…)]")
    found = declared(options)
    for name, option in found.items():
        if not _takes_two(option.check):
            raise InvalidType(
                f"the check of the option {name!r} of {kind} cannot be called with a value and its name; write"
                " Option(lambda value, name: …)"
            )
    return found


def _takes_two(check: object) -> bool:
    """Whether it can be called with two arguments, as far as it tells."""
    try:
        inspect.signature(check).bind(None, "")  # type: ignore[arg-type]  # what is no function is refused
    except TypeError:
        return False
    except ValueError:  # a function of C
        return True
    return True
