"""Finds the secrets among settings: as they are written, and in the objects that they make."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from leadsman.core.settings.model import inside, is_model, is_secret_field
from leadsman.core.text.redaction import Address, Secret, is_secret_value, reveal

_SECRET = r"(?i)(password|passwd|passphrase|secret|token|api_?key|credential)"
_PATH = r"(?i)_(file|path)$"
"""A setting with such a name locates a secret. It is not secret itself."""


def is_secret(name: str) -> bool:
    """Whether a setting with this name is a secret."""
    return re.search(_SECRET, name) is not None and re.search(_PATH, name) is None


def secrets_in(tree: object, model: object) -> Iterator[Secret]:
    """The secrets in settings as they are written, before they are validated, and the addresses with credentials.

    Args:
        tree: the settings, or a part of them.
        model: of the tree; None if it has none.
    """
    # What is to be read, each with its model, whether a field around it is declared to be a secret, and whether the
    # name of a list or a mapping around it is that of one. Each is read once, however deep it is.
    to_read: list[tuple[object, object, bool, bool]] = [(tree, model, False, False)]
    while to_read:
        value, structure, declared, named = to_read.pop()
        if isinstance(value, Mapping | list):
            for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
                name = str(key)
                below = is_secret(name) or (named and not is_model(structure))
                to_read.append((each, inside(structure, name), declared or is_secret_field(structure, name), below))
        elif declared or (named and isinstance(value, str)):
            yield Secret(str(value))
        elif (address := Address(str(value))).hidden:
            yield address


def secrets_of(value: object, *, named: bool = False) -> Iterator[Secret]:
    """The secrets among the settings of an app, as deep as they are, and the addresses with credentials.

    Args:
        value: settings, or a part of them.
        named: whether the name of the value is that of a secret.
    """
    if value is None:
        return
    from dataclasses import fields, is_dataclass  # only apps with settings need it

    if is_secret_value(value):
        yield Secret(cast("str", reveal(value)))
    elif is_model(kind := type(value)):
        more = getattr(value, "model_extra", None) or {}
        for name, each in [*((name, getattr(value, name)) for name in kind.model_fields), *more.items()]:
            yield from secrets_of(each, named=is_secret(name))
    elif is_dataclass(value):
        for field in fields(value):
            yield from secrets_of(getattr(value, field.name), named=is_secret(field.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from secrets_of(each, named=named or is_secret(str(key)))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from secrets_of(each, named=named)
    elif named and isinstance(value, str | bytes):
        yield Secret(value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value))
    elif (address := Address(str(value))).hidden:
        yield address
