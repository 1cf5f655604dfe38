"""The sections of the settings for single devices, as options of the decorators that registered them.

The options of the settings replace those of the code before a registration is checked, so that there is one check for
both, and whatever follows from an option, such as the timeout from the interval, follows from the one that counts.
"""

import ast
import builtins
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from leadsman import errors
from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.loop.durations import Duration, human, seconds
from leadsman.core.loop.schedule import Cron
from leadsman.core.readings.publish import Every, JoinableRule, OnChange
from leadsman.core.readings.sensor import ENTITY_OPTIONS, merge_fields
from leadsman.core.registration.command import CommandOptions
from leadsman.core.registration.declaration import Notation, Option, Options, declared, settable
from leadsman.core.registration.event import EventOptions
from leadsman.core.registration.injection import Dependency, Handler, place_of
from leadsman.core.registration.options import check_fixed, layout_for, publish_for, returns_bytes
from leadsman.core.registration.reading_type import ReadingType, reading_type
from leadsman.core.registration.source import Source, SourceOptions
from leadsman.core.registration.telemetry import Telemetry, TelemetryOptions
from leadsman.core.resilience.backoff import BackoffStrategy
from leadsman.core.resilience.breaker import CircuitBreaker
from leadsman.core.resilience.failure import qualified_name
from leadsman.core.resilience.notation import parse, policy_of
from leadsman.core.resilience.policy import UNTIL_NEXT_POLL, Policy, Until, Waits
from leadsman.core.settings.devices import DeviceSections, is_pattern, no_device
from leadsman.core.settings.entry import Entries, SettingEntry
from leadsman.core.settings.sections import Read, or_off, read_number, read_switch, read_words
from leadsman.core.settings.sources import DEVICES
from leadsman.core.text import clean, join_words
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue, at_key, collect, raise_together

UNTIL = "until next poll"
"""How the settings write `UNTIL_NEXT_POLL`."""
_BREAKER = ("threshold", "recovery", "shared")
_OFFLINE_ON = ("stale", "error")
"""The values of `offline_on` beside names of errors."""
RULES: Mapping[str, Callable[..., JoinableRule]] = {"OnChange": OnChange, "Every": Every}
MAX_RULE_CHARS = 1000
"""Characters; a rule has a hundred."""
_RULE_EXAMPLE = "write a rule as in code, such as \"OnChange(0.2) | Every('10m')\""
_NEEDED = "write at least the threshold: circuit_breaker = { threshold = 5 }"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"it is {value!r}; write text in quotes")
    return value


def _retries(value: object) -> int | Until:
    number = read_number(value)
    if isinstance(number, str) and number.replace("_", " ").replace("-", " ").lower() == UNTIL:
        return UNTIL_NEXT_POLL
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidValue(
            f"it is {value!r}; write the number of retries after the first call, such as 3, or '{UNTIL}'"
        )
    return number


def _names(value: object) -> list[str]:
    wrong = f"it is {value!r}; write a list of the names of errors, such as ['OSError', 'GarbledData']"
    names = read_words(value, wrong)
    if not names or not all(names):
        raise InvalidType(wrong)
    return names


def _word_or_names(value: object) -> str | list[str]:
    """One of `_OFFLINE_ON`, or the names of errors."""
    return value if isinstance(value, str) and value in _OFFLINE_ON else _names(value)


def _policy(value: object) -> Policy | str:
    """The name of a policy, or one in the notation of policies."""
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        return value
    return policy_of(parse(value) if isinstance(value, str) else value, "it")


def _backoff(value: object) -> BackoffStrategy:
    policy = policy_of(parse(value) if isinstance(value, str) else value, "it")
    if not isinstance(policy, Waits):
        raise InvalidValue("it is a policy and no backoff; write it as policy, or waits such as { exponential = … }")
    return policy.strategy


def _recovery(value: object) -> Duration | BackoffStrategy:
    if isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{")):
        return _backoff(value)
    duration = cast("Duration", read_number(value))
    seconds(duration, "it")
    return duration


def _breaker(value: object) -> CircuitBreaker:
    if not isinstance(value, Mapping):
        raise InvalidType(f"it is {value!r}; {_NEEDED}")
    for key in value:
        if key not in _BREAKER:
            raise InvalidValue(f"{clean(str(key))!r} is unknown; {suggestion(str(key), _BREAKER)}").at(key)
    if "threshold" not in value:
        raise InvalidValue(f"it has no threshold; {_NEEDED}")
    arguments: dict[str, Any] = {key: read_number(each) if key != "shared" else each for key, each in value.items()}
    if "recovery" in arguments:
        with at_key("recovery"):
            arguments["recovery"] = _recovery(arguments["recovery"])
    return CircuitBreaker(**arguments)


def publish_rule(text: object) -> JoinableRule:
    """Read a publish rule as it is written in code. Python's parser reads it, and nothing of it is executed.

    Raises:
        InvalidType, InvalidValue: it is not a publish rule.
    """
    if not isinstance(text, str):
        raise InvalidType(f"it is {text!r}; {_RULE_EXAMPLE}")
    if len(text) > MAX_RULE_CHARS:
        raise InvalidValue(f"it has {len(text)} characters; {_RULE_EXAMPLE}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidValue(f"{clean(text)!r} is no publish rule; {_RULE_EXAMPLE}") from None
    return _rule(tree, text)


def _rule(node: ast.expr, text: str) -> JoinableRule:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _rule(left, text) | _rule(right, text)
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _rule(left, text) & _rule(right, text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in RULES:
            try:
                given = [ast.literal_eval(each) for each in args]
                named = {each.arg: ast.literal_eval(each.value) for each in keywords if each.arg is not None}
                if len(named) < len(keywords):
                    raise ValueError
                return RULES[name](*given, **named)
            except ConfigurationError:
                raise
            except (ValueError, TypeError, RecursionError):
                raise InvalidValue(f"{clean(ast.unparse(node))!r} is not what {name} takes; {_RULE_EXAMPLE}") from None
        case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name) if name not in RULES:
            raise InvalidValue(f"no publish rule is called {clean(name)!r}; {suggestion(name, RULES)}")
    raise InvalidValue(f"{clean(text)!r} is no publish rule; {_RULE_EXAMPLE}")


def _presentations(value: object) -> object:
    """How fields are shown, as a decorator takes it."""
    return {field: _typed(options) for field, options in value.items()} if isinstance(value, Mapping) else value


def _typed(options: object, kinds: Mapping[str, type] = MappingProxyType({"discoverable": bool})) -> object:
    """The options of a field, with the switches and numbers that a variable has as text. What is neither stays as it
    is, so that `check_fields` names it with its field."""
    if not isinstance(options, Mapping):
        return options
    found: dict[object, object] = {}
    for name, value in options.items():
        found[name] = _typed(value, ENTITY_OPTIONS) if name == "homeassistant" else value
        if kinds.get(name) is int:
            found[name] = read_number(value)
        elif kinds.get(name) is bool:
            with suppress(InvalidValue):
                found[name] = read_switch(value)
    return found


_NOTATIONS: Mapping[Notation, Read[object]] = {
    "number": read_number,
    "number or off": or_off(read_number),
    "switch": read_switch,
    "text": _text,
    "cron": lambda value: Cron(_text(value)),
    "retries": _retries,
    "errors": _names,
    "word or errors": _word_or_names,
    "policy": _policy,
    "backoff": _backoff,
    "breaker or off": or_off(_breaker),
    "rule or off": or_off(publish_rule),
    "presentations": _presentations,
}


class DeviceOption(NamedTuple):
    """An option that the settings may set for a device."""

    argument: str
    """Its name where a decorator has it."""
    declared: Option

    def read(self, value: object) -> object:
        """The value as a decorator takes it. Raises `InvalidValue`, `InvalidType`."""
        assert self.declared.notation is not None
        given = _NOTATIONS[self.declared.notation](value)
        if self.declared.notation not in _OF_ERRORS:  # the names of errors are looked up where a device has them
            self.declared.check(given, "it")
        return given


_DECORATORS = {
    "telemetry": TelemetryOptions,
    "periodic": TelemetryOptions,
    "source": SourceOptions,
    "event": EventOptions,
    "command": CommandOptions,
}
OPTIONS: Mapping[str, DeviceOption] = {
    name: DeviceOption(argument, declared(decorator)[argument])
    for decorator in _DECORATORS.values()
    for name, argument in settable(decorator).items()
}
"""The options that the settings may set for a device, by their names there."""
TAKEN = {kind: frozenset(settable(decorator)) for kind, decorator in _DECORATORS.items()}
"""Those that each decorator takes. A setting for many devices thins no events out."""
TAKEN["periodic"] -= {name for name, option in OPTIONS.items() if option.declared.of_topics}
TAKEN["event"] -= {"publish"}
OF_FOUND = [name for name, option in OPTIONS.items() if option.declared.of_found]
"""Those of a device that a handler finds while the app runs. If it sends events, those of them that events take."""
_OF_ERRORS = ("errors", "word or errors")
"""The notations that have the names of errors."""
_FOUND = f"no device is registered that takes it, and one that is found takes {join_words(OF_FOUND, 'or')}"

_NOT_TAKEN = "no device that it is about takes it, or the app fixes it"
_TAKERS = {
    "telemetry": "devices that are polled",
    "periodic": "side jobs",
    "source": "sources of readings",
    "event": "devices that send events",
    "command": "devices that take commands",
}
"""What each decorator registers, in the words of a message."""


class Applied(NamedTuple):
    """An option of a device that comes from the settings, as the decorator takes it."""

    option: str
    value: object
    entry: SettingEntry


class InCode(NamedTuple):
    """An option of a device that the settings concern, which comes from the code."""

    option: str
    value: object
    place: str
    """The file and the line."""


class DeviceSettings:
    """The sections of the settings for the devices of an app.

    Args:
        sections: the entries of each section, by its key and the option.
        further: the options that extensions add, by the kind of the decorator.

    Raises:
        ConfigurationError: an option is unknown, or has a wrong value; one fault a line, each with its origin.
    """

    def __init__(
        self, sections: Mapping[str, Entries], further: Mapping[str, Mapping[str, Option]] = MappingProxyType({})
    ) -> None:
        self._options, self._taken = {**OPTIONS}, {**TAKEN}
        self._unwritable: dict[str, str] = {}
        """The options that the settings cannot set, and the extensions that add them."""
        for kind, options in further.items():
            own = {name: DeviceOption(name, each) for name, each in options.items() if each.notation is not None}
            self._options |= own
            self._taken[kind] |= own.keys()
            self._unwritable |= {name: each.extension for name, each in options.items() if each.notation is None}
        self.applied: dict[str, dict[str, Applied]] = {}
        """The options that were set for each device, by its name and the option."""
        self.in_code: dict[str, list[InCode]] = {}
        """The options that the code sets for these devices, and the settings leave as they are."""
        self.of_fields: dict[tuple[str, str], list[SettingEntry]] = {}
        """All that are about a field, by the names of its device and of the field."""
        self._sections = DeviceSections(sections)
        self._entries = sections
        self._values: dict[tuple[str, ...], object] = {}
        self._used: set[tuple[str, str]] = set()
        """The options of sections that a registration takes."""
        self._fixed: dict[tuple[str, str], str] = {}
        """Those that the code fixes for a device of that name, and where."""
        self._fitting: set[tuple[str, str]] = set()
        """Those that a registration could take, for the kind that it is."""
        faults: list[ConfigurationError] = []
        for entries in sections.values():
            for option, entry in entries.items():
                with collect(faults):
                    self._values[entry.path] = entry.read(self._reader(option))
        raise_together(faults)

    def applied_to(
        self, kind: str, name: str, handler: Handler, options: Options, available: Iterable[Dependency]
    ) -> Options:
        """The options of a registration, with what the settings have for its device.

        Args:
            kind: the decorator.
            name: the device.
            handler: the function.
            options: those of the code.
            available: what its handler may ask for.

        Raises:
            InvalidValue: two options of one section exclude each other, or a section with the name of the device has a
                value that it cannot have.
        """
        layers = self._sections.of(name)
        if not layers:
            return options
        fixed = check_fixed(options.get("fixed", ()), "fixed")
        taken, place = self._taken[kind], place_of(handler)
        found = dict(options)
        for section, entries in layers:
            for option, entry in entries.items():
                rule = self._options[option]
                by_code = fixed & {option, *map(_written, rule.declared.replaces)}
                if option in taken:
                    self._fitting.add((section, option))
                if option not in taken or (by_code and is_pattern(section)):
                    continue
                if by_code:  # another handler of that name may take it, such as the command of the device
                    why = f"the {kind} of this device fixes {min(by_code)} ({place})"
                    self._fixed.setdefault((section, option), why)
                    continue
                value = self._values[entry.path]
                if option == "layout" and is_pattern(section) and returns_bytes(handler):
                    continue
                never_stale = option == "stale_after" and value is None and kind != "source"
                if never_stale and is_pattern(section):
                    continue
                if never_stale:
                    raise entry.fault(InvalidValue("what is polled is stale after some time; write it, such as '5m'"))
                for other in rule.declared.replaces:
                    if _written(other) in entries:
                        raise entry.fault(InvalidValue(f"{option} and {other} exclude each other; leave one out"))
                    found.pop(other, None)
                    self.applied.get(name, {}).pop(_written(other), None)
                if rule.declared.notation in _OF_ERRORS and isinstance(value, list):
                    value = entry.read(partial(_errors, option, available))
                if option == "fields":
                    shown = cast("Mapping[str, Mapping[str, object]]", value)
                    for field in shown:
                        self.of_fields.setdefault((name, field), []).append(entry)
                    value = merge_fields(found.get("fields"), shown)
                found[rule.argument] = value
                self.applied.setdefault(name, {})[option] = Applied(option, value, entry)
                self._used.add((section, option))
        kept = [
            InCode(option, options[each.argument], place)
            for option, each in self._options.items()
            if each.argument in options and each.argument in found and option not in self.applied.get(name, {})
        ]
        self.in_code.setdefault(name, []).extend(kept)
        return found

    def origins_of(self, name: str) -> str:
        """The options that were set for a device, and where, as the end of a message; empty if nothing was."""
        found = [f"{each.option} (from {each.entry.origin})" for each in self.applied.get(name, {}).values()]
        return f"; the settings have {join_words(found)}" if found else ""

    def found(self, device: Source) -> Source:
        """A device that a handler has found, with what the settings have for it and the handler does not fix.

        Raises:
            InvalidValue: the publish rule names a field that its readings do not have, or a field cannot have a topic
                of its own.
        """
        entries: dict[str, SettingEntry] = {}
        fields: Mapping[str, object] = {}
        for _, layer in self._sections.of(device.name):
            mine = TAKEN["source" if device.events is None else "event"]
            taken = [option for option in layer if option in mine and option in OF_FOUND and option not in device.fixed]
            entries |= {option: layer[option] for option in taken}
            if "fields" in taken:
                shown = cast("Mapping[str, Mapping[str, object]]", self._values[layer["fields"].path])
                fields = merge_fields(fields, shown)
        changes: dict[str, Any] = {}
        for option, entry in entries.items():
            value = fields if option == "fields" else self._values[entry.path]
            changes[OPTIONS[option].argument] = OPTIONS[option].declared.check(value, "it")
        if "publish" in changes:
            kind, rule = _type_of_found(device), changes["publish"]
            changes["publish"] = entries["publish"].read(lambda _: publish_for(rule, kind, given=True))
        if "layout" in changes:
            layout = changes["layout"]
            changes["layout"] = entries["layout"].read(lambda _: layout_for(layout, _type_of_found(device)))
        if changes.get("stale_after", 0.0) is None:
            changes["stale_after"] = math.inf
        return device._replace(**changes)

    def check(self, names: Collection[str], polled: Iterable[Telemetry], *, finds: bool) -> None:
        """See that each section is about a device, each option about something that the device has, and that what is
        polled is not stale before its next poll.

        Args:
            names: the devices and side jobs of the app.
            polled: those that are polled.
            finds: whether handlers find further ones while the app runs.

        Raises:
            ConfigurationError: one fault a line, each with its origin.
        """
        faults: list[ConfigurationError] = []
        unmatched = self._sections.unmatched(names)
        for section in unmatched if not finds else ():
            origin = next((f" (from {each.origin})" for each in self._entries[section].values()), "")
            faults.append(InvalidValue(f"{DEVICES}.{clean(section)}: {no_device(section, names)}{origin}"))
        for section in self._sections:
            later = section in unmatched or (finds and is_pattern(section))
            for option, entry in self._entries[section].items():
                if (section, option) in self._used or (section in unmatched and not finds):
                    continue
                if later and option in OF_FOUND:
                    continue
                why = self._fixed.get((section, option)) or (
                    _FOUND if section in unmatched else self._not_taken(section, option)
                )
                faults.append(entry.fault(InvalidValue(f"{why}; leave it out")))
        for each in polled:
            with collect(faults):
                self._check_stale(each)
        raise_together(faults)

    def _reader(self, option: str) -> Read[object]:
        if option in self._options:
            return self._options[option].read

        def refuse(value: object) -> object:
            if (extension := self._unwritable.get(option)) is not None:
                raise InvalidValue(
                    f"the settings cannot set it, since its Option in the extension {extension!r} has no notation; set"
                    " it in the code, or give it one, such as notation='number'"
                )
            raise InvalidValue(f"unknown; {suggestion(option, self._options)}")

        return refuse

    def _not_taken(self, section: str, option: str) -> str:
        """Why nothing takes an option that no registration fixes by name."""
        if (section, option) in self._fitting:
            return _NOT_TAKEN
        takers = [title for kind, title in _TAKERS.items() if option in self._taken[kind]]
        return f"no device that it is about takes it; it is for {join_words(takers)}"

    def _check_stale(self, polled: Telemetry) -> None:
        """See that the settings leave enough time between two polls for the staleness of the code."""
        applied = self.applied.get(polled.name, {})
        when = applied.get("interval") or applied.get("schedule")
        kept = {each.option: each for each in self.in_code.get(polled.name, ()) if each.value is not None}
        if when is None or "stale_after" not in kept:
            return
        gap = (polled.interval or 0.0) if polled.cron is None else polled.cron.largest_gap()
        if gap >= polled.stale_after:
            least = f"stale_after is {human(polled.stale_after)} in the code ({kept['stale_after'].place})"
            do = "poll it more often" if "stale_after" in polled.fixed else "set stale_after too"
            message = f"{polled.name!r} would be stale before each poll, since its {least}; {do}"
            raise when.entry.fault(InvalidValue(message))


def _type_of_found(device: Source) -> ReadingType | None:
    """The type of the readings of a device that a handler has found; None if it is not known."""
    kind = reading_type(device.handler)
    return kind if kind is None or device.filters is None else kind.filtered_where_known(device.filters)


def _written(argument: str) -> str:
    """The name that an option of a decorator has in the settings."""
    return next((name for name, each in OPTIONS.items() if each.argument == argument), argument)


def _errors(option: str, available: Iterable[Dependency], value: object) -> list[type[Exception]]:
    """The classes of errors that an option names: of Python, of leadsman, or declared by the adapters of the app."""
    names = _names(value)
    meant = option == "offline_on" and isinstance(value, str) and len(names) == 1
    choices = _OFFLINE_ON if meant else ()
    declared = [kind for each in available if isinstance(each, ManagedAdapter) for kind in each.transient_errors]
    known: dict[str, type[Exception]] = {}
    for module in (builtins, errors):
        known |= {name: each for name, each in vars(module).items() if _is_error(each)}
    known |= {name: each for each in declared for name in (each.__name__, qualified_name(each))}
    for name in names:
        if name not in known:
            kinds = f"{_KINDS}, or {join_words([repr(each) for each in choices], 'or')}" if choices else _KINDS
            raise InvalidValue(f"no error is called {clean(name)!r}; {suggestion(name, (*choices, *known), kinds)}")
    return [known[name] for name in names]


_KINDS = "write one of Python's, of leadsman's, or one that an adapter of the app declares as worth a retry"


def _is_error(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, Exception)
