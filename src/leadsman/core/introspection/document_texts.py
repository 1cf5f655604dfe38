"""The texts below the fields of documents, which a JSON Schema and the reference page have."""

import ast
import functools
import inspect
import itertools
import sys
import typing

from typing_extensions import get_original_bases, is_typeddict

from leadsman.core.mqtt.answers import Json


def with_texts(schema: dict[str, Json], kind: object) -> dict[str, Json]:
    """The schema of a type, with the texts below the fields of the documents in it."""
    if is_typeddict(kind):
        for part in parts_of(kind):
            add_texts(schema if part is kind and "properties" in schema else schema["$defs"][part.__name__], part)
    return schema


def add_texts(schema: dict[str, Json], kind: type) -> None:
    """Add the texts below the fields of a document to its schema."""
    for field, text in texts_of(kind).items():
        schema["properties"][field]["description"] = text


def parts_of(kind: object) -> list[type]:
    """A document, and the documents that are parts of it, each once, in the order in which their fields name them."""
    found: list[type] = []
    waiting = [kind]
    while waiting:
        each = waiting.pop()
        if not is_typeddict(each):
            waiting.extend(reversed(typing.get_args(each)))
        elif isinstance(each, type) and each not in found:
            found.append(each)
            waiting.extend(reversed(typing.get_type_hints(each, include_extras=True).values()))
    return found


def texts_of(kind: type) -> dict[str, str]:
    """The texts below the fields of a document, those of its bases first. pydantic's ``use_attribute_docstrings`` reads
    only those of the class itself, and before 2.10 none of its parts."""
    found: dict[str, str] = {}
    for base in get_original_bases(kind):
        if is_typeddict(base):
            found |= texts_of(base)
    body = _classes(kind.__module__).get(kind.__name__, [])
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.replace("``", "`").split())
    return found


@functools.cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of each class of a module; none where its source is not to be had."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}
