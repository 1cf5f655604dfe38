"""Looks up a path in a pydantic model: it leads to another model, a mapping, a list, or a value.

Annotations are objects of many kinds, so they have the type ``object`` here. Only a model has a type of its own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, TypeGuard, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

SettingPath = tuple[str, ...]
"""The keys that lead to a value: ``("boiler", "port")``."""


def is_model(kind: object) -> "TypeGuard[type[BaseModel]]":
    """Whether it is a pydantic model class."""
    return isinstance(kind, type) and hasattr(kind, "model_fields")


def inside(structure: object, name: str) -> object:
    """The model, mapping or list of models at a key; None for a value, and if anything may be there."""
    if is_model(structure):
        field = _field(structure, name)
        return None if field is None else _structure(field.annotation)
    if get_origin(structure) is dict:
        return _structure(get_args(structure)[1])
    if get_origin(structure) is list:
        return _structure(get_args(structure)[0])
    return None


def at(structure: object, path: SettingPath) -> object:
    """The model, mapping or list of models at a path."""
    for name in path if structure is not None else ():
        structure = inside(structure, name)
    return structure


def has_field(model: object, path: SettingPath) -> bool:
    """Whether a path is a field of the model, or of a model in it."""
    owner = at(model, path[:-1])
    return is_model(owner) and path[-1] in owner.model_fields


def passes_list(model: object, path: SettingPath) -> bool:
    """Whether a path leads through a list, as ``waves.0.address`` does. A variable cannot set an item of a list."""
    return any(get_origin(at(model, path[:length])) is list for length in range(1, len(path)))


def declared_secret(model: object, path: SettingPath) -> bool:
    """Whether the field at a path, or a field that contains it, is a `SecretStr` or of a class derived from it."""
    for part in path if model is not None else ():
        if is_secret_field(model, part):
            return True
        model = inside(model, part)
    return False


def choice_of(model: object, path: SettingPath, text: str) -> object:
    """The number or the boolean among the choices of a ``Literal`` at a path that a text stands for; else the text. The
    model itself reads a text as a number, but not as one of some numbers."""
    owner = at(model, path[:-1])
    field = _field(owner, path[-1])
    choices = () if field is None else (*_choices(field.annotation),)
    if text in choices:
        return text
    return next((each for each in choices if isinstance(each, int) and str(each).lower() == text.lower()), text)


def _choices(annotation: object, levels: int = 6) -> Iterator[object]:
    """What ``Literal[…]`` lists, also within ``Annotated[…]`` and ``… | None``."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif levels and get_origin(annotation) not in (dict, list):
        for each in get_args(annotation):
            yield from _choices(each, levels - 1)


def is_secret_field(structure: object, name: str) -> bool:
    """Whether a field of a model is a `SecretStr`, has one, or is of a class derived from it."""
    field = _field(structure, name)
    return field is not None and _has_secret(field.annotation)


def required_below(model: object, path: SettingPath) -> list[SettingPath]:
    """The paths to set if the field at `path` is missing: the fields of a section that have no default, or `path`
    itself."""
    section = at(model, path)
    if not is_model(section):
        return [path]
    required = [(*path, field.alias or name) for name, field in section.model_fields.items() if field.is_required()]
    return [leaf for each in required for leaf in required_below(model, each)] or [path]


def dotted_names(model: object) -> list[str]:
    """The names of all fields, and of the fields of sections: ``boiler``, ``boiler.port``."""
    names = []
    for name in model.model_fields if is_model(model) else ():
        section = inside(model, name)
        names += [name, *(f"{name}.{each}" for each in (section.model_fields if is_model(section) else ()))]
    return names


def _field(model: object, name: str) -> "FieldInfo | None":
    if not is_model(model):
        return None
    found = model.model_fields.get(name)
    return found or next((field for field in model.model_fields.values() if field.alias == name), None)


def _has_secret(annotation: object, levels: int = 6) -> bool:
    """Whether an annotation is a secret, or has one: as an item of a list, or with another name. A type may contain
    itself, so there is an end to the levels."""
    renamed = getattr(annotation, "__value__", getattr(annotation, "__supertype__", None))
    inner = (*get_args(annotation), *(() if renamed is None else (renamed,))) if levels else ()
    return hasattr(annotation, "get_secret_value") or any(_has_secret(each, levels - 1) for each in inner)


def _structure(annotation: object) -> object:
    """The model, the mapping or the list within ``Annotated[…]`` and ``… | None``."""
    if get_origin(annotation) is Annotated:
        return _structure(get_args(annotation)[0])
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return next((found for each in get_args(annotation) if (found := _structure(each)) is not None), None)
    return annotation if is_model(annotation) or get_origin(annotation) in (dict, list) else None
