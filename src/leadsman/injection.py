"""What a handler asks for, by the types of its parameters: resolved and checked at registration, looked up at no cost later.

``async def read(port: SerialPort)`` gets the app's serial port; ``port: Annotated[SerialPort, "boiler"]`` the one of
that name, where there are several.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from leadsman.adapters.adapter import Slot
from leadsman.errors import InvalidType, InvalidValue

Handler = Callable[..., Any]
Needs = tuple[tuple[str, Slot], ...]


def is_async(handler: object) -> bool:
    """Whether a handler is ``async def``, also behind a partial or as the ``__call__`` of an object.

    Raises:
        InvalidType: not callable, or a generator.
    """
    if isinstance(handler, type):
        raise InvalidType(f"the handler is the class {handler.__name__}; give a function")
    if not callable(handler):
        raise InvalidType(f"the handler is {handler!r}; give a function, 'async def' or 'def'")
    inner: Any = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not (inspect.isfunction(inner) or inspect.ismethod(inner) or inspect.isbuiltin(inner)):
        inner = type(inner).__call__
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise InvalidType(f"the handler {name_of(handler)} is a generator; return the reading, do not yield it")
    return inspect.iscoroutinefunction(inner)


def needs_of(handler: Handler, slots: Sequence[Slot]) -> Needs:
    """Match a handler's parameters with the app's adapters.

    Raises:
        InvalidType: a parameter without an annotation, or one that nothing can fill.
        InvalidValue: no adapter, or several, of the annotated type and name.
    """
    parameters = _parameters(handler)
    return tuple((name, _slot_for(handler, name, wanted, slots)) for name, wanted in parameters)


def name_of(handler: object) -> str:
    """How a message names a handler."""
    return getattr(handler, "__qualname__", None) or repr(handler)


@functools.lru_cache(maxsize=128)
def _parameters(handler: Handler) -> tuple[tuple[str, Any], ...]:
    """The parameters to fill and their annotations. Cached: one handler may serve a thousand devices."""
    signature = inspect.signature(handler)
    if not signature.parameters:
        return ()
    inner: Any = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    try:
        target = inner if inspect.isfunction(inner) or inspect.ismethod(inner) else type(inner).__call__
        hints = get_type_hints(target, include_extras=True)
    except NameError as error:
        raise InvalidType(
            f"an annotation of {name_of(handler)} cannot be read: {error}; import the type it names"
        ) from error
    wanted = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidType(f"the handler {name_of(handler)} takes *{name}; name its adapters one by one")
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidType(f"the parameter {name!r} of {name_of(handler)} is positional-only; drop the '/'")
        if name not in hints:
            raise InvalidType(
                f"the parameter {name!r} of {name_of(handler)} has no type; write the adapter's, such as {name}: SerialPort"
            )
        wanted.append((name, hints[name]))
    return tuple(wanted)


def _slot_for(handler: Handler, parameter: str, wanted: Any, slots: Sequence[Slot]) -> Slot:
    name: str | None = None
    if get_origin(wanted) is Annotated:
        wanted, *extras = get_args(wanted)
        name = next((extra for extra in extras if isinstance(extra, str)), None)
    where = f"the parameter {parameter!r} of {name_of(handler)}"
    if not isinstance(wanted, type):
        raise InvalidType(f"{where} is annotated {wanted!r}, which is no class; write the adapter's class")
    found = [slot for slot in slots if _fits(slot, wanted) and name in (None, slot.name)]
    if len(found) == 1:
        return found[0]
    type_name = wanted.__name__
    if not found:
        known = (
            ", ".join(sorted(f"{type(s.adapter).__name__}{f' {s.name!r}' if s.name else ''}" for s in slots)) or "none"
        )
        wish = f"{type_name} named {name!r}" if name else type_name
        raise InvalidValue(f"{where} asks for {wish}, and App(adapters=…) has: {known}; add it there")
    names = [slot.name for slot in found if slot.name]
    raise InvalidValue(
        f"{where} asks for {type_name}, and there are {len(found)}; "
        + (f"write Annotated[{type_name}, {names[0]!r}]" if names else "name them: App(adapters={'one': …, 'two': …})")
    )


def _fits(slot: Slot, wanted: type) -> bool:
    try:
        return isinstance(slot.adapter, wanted)
    except TypeError:  # a protocol that cannot be checked at run time
        return False


def bound(handler: Handler, needs: Needs) -> Callable[[], Any]:
    """The handler as a call without arguments. Raises `DeviceUnavailable` when called before its adapter is open."""
    if not needs:
        return handler
    if len(needs) == 1:
        ((name, slot),) = needs
        return lambda: handler(**{name: slot.get()})
    return lambda: handler(**{name: slot.get() for name, slot in needs})


def closed_coroutine(result: object) -> bool:
    """Whether a plain handler returned a coroutine by mistake; it is closed, so that nobody warns of it later."""
    if asyncio.iscoroutine(result):
        result.close()
        return True
    return False
