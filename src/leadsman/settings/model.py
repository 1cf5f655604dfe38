"""Looks up a path in a pydantic model: it leads to another model, a mapping, a list, or a value."""

from typing import Annotated, Any, Union, get_args, get_origin


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model class."""
    return isinstance(kind, type) and hasattr(kind, "model_fields")


def inside(model: Any, name: str) -> Any:
    """What lies at a key: a model, a mapping or a list of models; None for a value or for anything."""
    if is_model(model):
        field = _field(model, name)
        return None if field is None else _structure(field.annotation)
    if get_origin(model) is dict:
        return _structure(get_args(model)[1])
    if get_origin(model) is list:
        return _structure(get_args(model)[0])
    return None


def at(model: Any, path: tuple[str, ...]) -> Any:
    """What lies at a path."""
    for name in path:
        model = inside(model, name)
    return model


def knows(model: Any, path: tuple[str, ...]) -> bool:
    """Whether a path is a field."""
    owner = at(model, path[:-1])
    return is_model(owner) and path[-1] in owner.model_fields


def passes_list(model: Any, path: tuple[str, ...]) -> bool:
    """Whether a path goes into a list, as ``waves.0.address`` does: no variable can set one of its items."""
    return any(get_origin(at(model, path[:length])) is list for length in range(1, len(path)))


def declared_secret(model: Any, path: tuple[str, ...]) -> bool:
    """Whether the field at a path is a `SecretStr`, whatever it is called."""
    for length, part in enumerate(path):
        field = _field(at(model, path[:length]), part)
        if field is not None and "Secret" in str(field.annotation):
            return True
    return False


def required_below(model: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The paths that must be set where the field at `path` is missing: those without a default in a section, or itself."""
    section = at(model, path)
    if not is_model(section):
        return [path]
    required = [(*path, field.alias or name) for name, field in section.model_fields.items() if field.is_required()]
    return [leaf for each in required for leaf in required_below(model, each)] or [path]


def dotted_names(model: Any) -> list[str]:
    """The names of all fields, and of those in sections: ``boiler``, ``boiler.port``."""
    names = []
    for name in model.model_fields if is_model(model) else ():
        section = inside(model, name)
        names += [name, *(f"{name}.{each}" for each in (section.model_fields if is_model(section) else ()))]
    return names


def _field(model: Any, name: str) -> Any:
    if not is_model(model):
        return None
    found = model.model_fields.get(name)
    return found or next((field for field in model.model_fields.values() if field.alias == name), None)


def _structure(annotation: Any) -> Any:
    """The model, the mapping or the list within ``Annotated[…]`` and ``… | None``."""
    if get_origin(annotation) is Annotated:
        return _structure(get_args(annotation)[0])
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return next((found for each in get_args(annotation) if (found := _structure(each)) is not None), None)
    return annotation if is_model(annotation) or get_origin(annotation) in (dict, list) else None
