"""What an annotation says. Only this module unwraps a type from what stands around it: `Annotated`, a union, a stream,
an alias. What a handler takes and returns, and what each of its fields is, is read by it."""

import functools
import inspect
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from types import FunctionType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

_Function = Callable[..., Any]
R = TypeVar("R", bound=_Function)
MAX_KEPT = 128
"""Handlers whose annotations are kept; a thousand devices of a loop are read once, and a thousand handlers as often."""


Member = tuple[object, tuple[object, ...]]
"""One of the types that a value may have, such as a `Literal`; and what stands beside it, the outermost first."""


class Annotation(NamedTuple):
    """What is written about a value."""

    whole: Any = None
    """All of it; None if nothing is, or if it cannot be read."""
    members: tuple[Member, ...] = ()
    """Its types besides None."""

    @property
    def kinds(self) -> tuple[object, ...]:
        """Its types besides None, without what stands beside them."""
        return tuple([kind for kind, _ in self.members])

    @property
    def beside(self) -> tuple[object, ...]:
        """All that stands beside its types."""
        return tuple([each for _, beside in self.members for each in beside])


def split(annotation: object) -> tuple[object, tuple[object, ...]]:
    """A type, and what stands beside it."""
    if get_origin(annotation) is Annotated:
        kind, *beside = get_args(annotation)
        return kind, tuple(beside)
    return annotation, ()


def read(annotation: object, beside: tuple[object, ...] = ()) -> Annotation:
    """Read an annotation. `beside` is what stands beside it elsewhere."""
    return Annotation(annotation, tuple(_members(annotation, beside)))


def _members(annotation: Any, beside: tuple[object, ...]) -> Iterator[Member]:
    origin = get_origin(annotation)
    if origin is Annotated:
        kind, own = split(annotation)
        yield from _members(kind, beside + own)
    elif origin in (Union, UnionType):
        for each in get_args(annotation):
            yield from _members(each, beside)
    elif origin in (Required, NotRequired):
        yield from _members(get_args(annotation)[0], beside)
    elif isinstance(annotation, NewType):
        yield from _members(annotation.__supertype__, beside)
    elif type(annotation).__name__ == "TypeAliasType":  # of Python 3.12, or of typing_extensions
        yield from _members(annotation.__value__, beside)
    elif annotation not in (None, NoneType):
        yield annotation, beside


def kept(reader: R) -> R:
    """Keep what a function reads of a handler, for the next device that has it. A handler may be an object without a
    hash, which is read each time."""
    cached = functools.lru_cache(maxsize=MAX_KEPT)(reader)

    @functools.wraps(reader)
    def of(*given: object, **options: object) -> object:
        try:
            hash(given)
        except TypeError:
            return reader(*given, **options)
        return cached(*given, **options)

    return cast("R", of)


_first: dict[object, _Function] = {}


def alike(handler: _Function) -> _Function:
    """The first handler that was made by the same line with the same annotations, which takes and returns the same: a
    loop over devices makes a handler for each. Else the handler itself."""
    if type(handler) is not FunctionType or handler.__dict__:
        return handler
    try:
        line = id(handler.__code__), id(handler.__globals__), handler.__qualname__
        optional = len(handler.__defaults__ or ()), tuple(handler.__kwdefaults__ or ())
        written: Mapping[str, object] = handler.__annotations__
        if not all(isinstance(each, type) for each in written.values()):
            written = hints_of(handler)  # one name in text may stand for another type each time
        if len(_first) >= MAX_KEPT:
            _first.clear()
        return _first.setdefault((line, optional, tuple(written.items())), handler)
    except Exception:  # an annotation without a hash, or with a name that is not there
        return handler


@kept
def result_of(handler: _Function) -> Annotation:
    """What a handler is annotated to return, or to yield each time."""
    try:
        annotation = hints_of(handler).get("return")
    except Exception:  # names that are there for type checkers only, or text that is no expression: nothing to check
        return Annotation()
    kind, beside = split(annotation)
    origin = get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, AsyncIterable):
        if not (yields := get_args(kind)):
            return Annotation()
        annotation = Annotated[yields[0], *beside] if beside else yields[0]
    return read(annotation)


@kept
def hints_of(handler: _Function) -> Mapping[str, object]:
    """The annotations of a handler, with what stands beside the types. Raises `NameError` if a name is not there."""
    return get_type_hints(function_of(handler), include_extras=True)


def unwrapped(handler: object) -> object:
    """The function that a partial calls."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def function_of(handler: object) -> _Function:
    """The function whose annotations are those of the handler: also inside a partial, or the ``__call__`` of an
    object."""
    inner = unwrapped(handler)
    return inner if inspect.isfunction(inner) or inspect.ismethod(inner) else type(inner).__call__
