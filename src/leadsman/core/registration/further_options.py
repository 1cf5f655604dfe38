"""The options that the extensions of an app add to its decorators."""

from collections.abc import Iterable, Mapping

from leadsman.core.extension import Extension
from leadsman.core.registration.command import Command, CommandOptions
from leadsman.core.registration.declaration import Option, declared
from leadsman.core.registration.event import EventOptions
from leadsman.core.registration.source import Source, SourceOptions
from leadsman.core.registration.telemetry import Telemetry, TelemetryOptions
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidType, InvalidValue, labelled

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
        InvalidType: one has no `Option` beside its type.
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
                    found[kind][name] = option
    return found


def _declared(kind: str, options: type) -> Mapping[str, Option]:
    for name, annotation in getattr(options, "__annotations__", {}).items():
        if not any(isinstance(each, Option) for each in getattr(annotation, "__metadata__", ())):
            raise InvalidType(f"the option {name!r} of {kind} has no Option; write Annotated[…, Option(…)]")
    return declared(options)
