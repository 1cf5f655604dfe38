"""The documents of an app: those of the core, with what extensions add to them. The shipped ones are imported by who
asks: an app that runs asks only about a section that it does not have."""

import functools
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import new_class
from typing import Literal, NamedTuple, NotRequired

from leadsman.core.extension import Documents, Extension
from leadsman.core.introspection.requests import FIELDS, SECTIONS
from leadsman.extensions import SHIPPED


class DocumentTypes(NamedTuple):
    """The types of the documents that extensions add to."""

    status: type
    app: type
    runtime: type
    introspection: type
    request: type
    beat: type
    added: Sequence[Documents]
    """What was added to them."""


def declared_sections(own: tuple[Extension, ...] = ()) -> tuple[str, ...]:
    """The sections that a request must name, of what leadsman ships and of these extensions."""
    shipped = [name for each in SHIPPED for name in each.on_request]
    return (*shipped, *(name for each in own for name in getattr(each.documents.sections, "__annotations__", ())))


@functools.cache
def documents_of(own: tuple[Extension, ...] = ()) -> DocumentTypes:
    """The types of an app with these extensions, besides those that leadsman ships."""
    from leadsman.core.introspection import document
    from leadsman.core.monitoring.document import Status

    shipped: list[Documents] = [
        import_module(f"{each.package}.{each.documents}").DOCUMENTS for each in SHIPPED if each.documents
    ]
    added = [*shipped, *(each.documents for each in own)]
    sections = [each.sections for each in added if each.sections is not None]
    app = _joined(document.AppSection, [each.app for each in added])
    runtime = _joined(document.Runtime, [each.runtime for each in added])
    device = _joined(document.DeviceSection, [], runtime=NotRequired[runtime])
    parts = document.StandardSections, *sections, document.FieldsSection
    devices = dict[str, device]  # type: ignore[valid-type]  # it is made here
    wanted = list[Literal[(*SECTIONS, *declared_sections(own), FIELDS)]]  # type: ignore[valid-type, misc]  # as above
    return DocumentTypes(
        _joined(Status, [each.status for each in added]),
        app,
        runtime,
        _named(document.Introspection, parts, {"app": app, "devices": devices, "jobs": devices}),
        _joined(document.Request, [], sections=wanted),
        _joined(document.Beat, [], app=app),
        added,
    )


def _joined(kind: type, added: Sequence[type | None], **fields: object) -> type:
    """A document with further fields, or with other types of some."""
    return _named(kind, (kind, *(each for each in added if each is not None)), fields)


def _named(kind: type, bases: tuple[type, ...], fields: Mapping[str, object]) -> type:
    """A document that is called as another one, and means the same."""
    inside = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__annotations__": fields}
    total = {"total": getattr(kind, "__total__", True)}
    return new_class(kind.__name__, bases, total, lambda body: body.update(inside))


def absent(section: str, own: tuple[Extension, ...]) -> str:
    """Why an app with these extensions has no section that one declares, and what to do."""
    for each in documents_of(own).added:
        if section in each.absent:
            return each.absent[section]
    return f"this app has no section {section!r}; leave it out"
