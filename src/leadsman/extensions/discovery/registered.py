"""Describes the registrations of an app for a convention of discovery."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.core.introspection.fields import Field, fields_of, scalar, settable
from leadsman.core.introspection.schema import schema_of, shown_schema
from leadsman.core.readings.controls import CONTROL
from leadsman.core.registration.command import Command as RegisteredCommand
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry
from leadsman.extensions.discovery.description import (
    CommandDescription,
    ControlDescription,
    DeviceDescription,
    EventDescription,
)
from leadsman.extensions.discovery.homeassistant import HomeAssistant

if TYPE_CHECKING:
    from leadsman.core.readings.filtering import Filters
    from leadsman.core.readings.sensor import FieldPresentation, Presentations


class DescribedDevices:
    """The enabled devices of an app that may be announced to others. A handler is looked at once, however many devices
    it serves.

    Args:
        read: the telemetries and sources by device name, without side jobs.
        commands: the commands by device name.
    """

    def __init__(self, read: Mapping[str, Telemetry | Source], commands: Mapping[str, RegisteredCommand]) -> None:
        hidden = {each.name for each in (*read.values(), *commands.values()) if not each.discoverable}
        self._read = {name: each for name, each in read.items() if each.enabled and name not in hidden}
        self._commands = {name: each for name, each in commands.items() if each.enabled and name not in hidden}
        self._shown: dict[tuple[int, str | None, Filters | None], _Shown] = {}
        """Keyed by `id(handler)`, field and filters, because a handler may be unhashable."""
        self._takes: dict[int, CommandDescription] = {}

    @property
    def names(self) -> Sequence[str]:
        """The names of the devices."""
        return [*self._read, *(name for name in self._commands if name not in self._read)]

    def __contains__(self, name: str) -> bool:
        """Whether there is such a device."""
        return name in self._read or name in self._commands

    def add(self, each: Telemetry | Source) -> None:
        """Add or replace a device that gives readings, while the app runs."""
        self._forget(each.name)
        self._read[each.name] = each

    def add_command(self, command: RegisteredCommand) -> None:
        """Add what a device takes, while the app runs."""
        self._commands[command.name] = command

    def remove(self, name: str) -> None:
        """Remove a device, while the app runs."""
        self._forget(name)
        self._commands.pop(name, None)

    def _forget(self, name: str) -> None:
        """Its handler may be gone with it, and another one may have that identity. One that serves others is looked at
        again."""
        each = self._read.pop(name, None)
        if each is not None:
            self._shown.pop((id(each.handler), each.field, each.filters), None)

    def device(self, name: str) -> DeviceDescription:
        """Describe one device."""
        each, command = self._read.get(name), self._commands.get(name)
        shown = each if each is not None else command
        how = {name: field for one in (each, command) if one is not None for name, field in one.fields.items()}
        fields = () if shown is None else _present(self._shown_by(shown).fields, how)
        taken = None if command is None else self._taken_by(command)
        if taken is not None:
            taken = taken._replace(fields=_present(taken.fields, how, taken.parameter or ""))
        return DeviceDescription(
            name=name,
            fields=fields,
            event=_event(each, fields) if isinstance(each, Source) and each.events is not None else None,
            command=taken,
            stale_after=None if each is None else _stale_after(each),
            read=each is not None,
            polled=isinstance(each, Telemetry),
            circuit=each is not None and each.guards.breaker is not None,
            retained=each is None or each.delivery.retain,
            title=next((one.title for one in (each, command) if one is not None and one.title is not None), None),
            content=None
            if each is None or each.content is None
            else (each.content.name, each.content.content.content_type),
            only_fields=each is not None and each.layout == "fields",
            update=None if shown is None else self._shown_by(shown).update,
            area=next((one.area for one in (each, command) if one is not None and one.area is not None), None),
        )

    def without_values(self) -> Sequence[str]:
        """The names of the devices of which no value is shown, because the handler's annotation names no fields."""
        return [name for name in self.names if self._says_nothing(name)]

    def _says_nothing(self, name: str) -> bool:
        each = self._read.get(name, self._commands.get(name))
        if each is None or any(field.discoverable for field in self._shown_by(each).fields):
            return False
        if getattr(each, "finds", None) is not None or getattr(each, "content", None) is not None:
            return False  # the devices that it finds have the values, or bytes are its value
        annotations = getattr(each.handler, "__annotations__", {})
        silent = annotations.get("return", None if name in self._commands else dict) in (None, "None")
        return not silent  # what returns nothing has no value to show

    def _shown_by(self, each: Telemetry | Source | RegisteredCommand) -> "_Shown":
        if not isinstance(each, RegisteredCommand) and each.content is not None:
            return _Shown((), None)  # what describes the bytes is of no use to people
        own = (None, None) if isinstance(each, RegisteredCommand) else (each.field, each.filters)
        key = id(each.handler), *own
        if key not in self._shown:
            read = shown_schema(each)
            control = _control(read)
            self._shown[key] = _Shown(
                fields_of(read), control if control is not None and control.kind == "update" else None
            )
        return self._shown[key]

    def _taken_by(self, command: RegisteredCommand) -> CommandDescription:
        key = id(command.handler)
        if key not in self._takes:
            self._takes[key] = _command(command)
        return self._takes[key]


def _event(each: Source, fields: Sequence[Field]) -> EventDescription | None:
    """The events of a device; None of a gateway, whose devices alone have some, and where they are not announced."""
    from leadsman.core.registration.event import FIELD  # only apps with events need it

    field = next((field for field in fields if field.path == (FIELD,) and field.kind == "enum"), None)
    return None if field is None or each.events is None else EventDescription(field, each.events.device_class)


class _Shown(NamedTuple):
    """The parts of a description that show the readings of a device."""

    fields: tuple[Field, ...]
    update: ControlDescription | None
    """Which of them are the versions of a program."""


class Described(NamedTuple):
    """The devices of an app, as they are described."""

    registered: DescribedDevices
    convention: HomeAssistant


def _command(command: RegisteredCommand) -> CommandDescription:
    if command.payload is None:
        return CommandDescription((), None)
    schema = schema_of(command.annotation, mode="validation")
    alone = scalar(schema, command.payload)
    control = _control(schema)
    taken = () if control is None else tuple(control.fields.values())
    fields = settable(schema) if alone is None else (alone,)
    return CommandDescription(tuple(each for each in fields if each not in taken), command.payload, control)


def _present(fields: tuple[Field, ...], how: "Presentations", parameter: str = "") -> tuple[Field, ...]:
    """The fields that are announced, as they are shown to people. One without a path is called as the parameter that
    gets it."""
    shown = (_present_one(each, how.get(".".join(each.path) or parameter)) for each in fields) if how else fields
    return tuple(each for each in shown if each.discoverable)


def _present_one(field: Field, how: "FieldPresentation | None") -> Field:
    if how is None:
        return field
    return field._replace(
        name=how.name or field.name,
        title=how.name or field.title,
        icon=how.icon or field.icon,
        category=how.category or field.category,
        discoverable=field.discoverable if how.discoverable is None else how.discoverable,
        homeassistant={**field.homeassistant, **dict(how.homeassistant)},
    )


def _control(schema: Mapping[str, Any]) -> ControlDescription | None:
    """The control that the fields of a payload or of a reading are together. Its names were checked at the
    registration."""
    given = schema.get(CONTROL)
    if given is None:
        return None
    fields = {each.path[0]: each for each in fields_of(schema) if len(each.path) == 1}
    roles = {role: fields[name] for role, name in given.items() if role not in ("kind", "current") and name is not None}
    current = given.get("current")
    return ControlDescription(given["kind"], roles, None if current is None else (current,))


def _stale_after(each: Telemetry | Source) -> float | None:
    """None for a device that is well and may publish nothing for longer than it takes to become stale, too."""
    is_kept_back = each.publish is not None or (each.filters is not None and each.filters.window is not None)
    return None if is_kept_back or not math.isfinite(each.stale_after) else each.stale_after
