"""Dependency injection: fills a handler's parameters by their types. Resolved and checked at registration, so that a
call costs no lookup.

``async def read(port: SerialPort)`` gets the app's serial port; ``port: Annotated[SerialPort, "boiler"]`` gets the one
of that name, where there are several. Handlers ask for the app's settings, a device's own settings and its `Context` in
the same way. Everything that a handler can ask for is a `Dependency`.
"""

import asyncio
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leadsman.core.registration.annotation import function_of, hints_of, kept, split, unwrapped
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from pydantic import BaseModel

Handler = Callable[..., Any]


class Dependency(Protocol):
    """Something that handlers can ask for."""

    @property
    def name(self) -> str | None:
        """The name that distinguishes it from others of its type, or None."""
        ...

    @property
    def label(self) -> str:
        """Its name in messages."""
        ...

    def fits(self, wanted: type) -> bool:
        """Whether it is an instance of a type."""
        ...

    def get(self) -> Any:
        """The object itself. Raises `DeviceUnavailable` while it is not available."""
        ...


class Provided:
    """An object of a known type that is stored in `value` before the app runs."""

    __slots__ = ("_kind", "value")
    name = None

    def __init__(self, kind: type, value: object = None) -> None:
        self._kind = kind
        self.value = value

    @property
    def label(self) -> str:
        """See `Dependency`."""
        return self._kind.__name__

    def fits(self, wanted: type) -> bool:
        """See `Dependency`. A parameter annotated `object` or `dict` never matches."""
        return issubclass(self._kind, wanted) and wanted.__module__ != "builtins"

    def get(self) -> Any:
        """See `Dependency`."""
        return self.value


def settings_dependencies(model: "type[BaseModel] | None") -> tuple[Provided, ...]:
    """The settings objects that handlers can ask for: the whole model, and each section whose type occurs once."""
    if model is None:
        return ()
    annotations = [field.annotation for field in model.model_fields.values()]
    kinds = [kind for kind in annotations if isinstance(kind, type) and hasattr(kind, "model_fields")]
    return tuple(Provided(kind) for kind in (model, *(kind for kind in kinds if kinds.count(kind) == 1)))


def fill(available: Iterable[Provided], settings: "BaseModel") -> None:
    """Put the loaded settings and their sections into what `settings_dependencies` returned."""
    parts = (settings, *(getattr(settings, name) for name in type(settings).model_fields))
    for dependency in available:
        dependency.value = next(part for part in parts if dependency.fits(type(part)))


class ContextBase:
    """The base of `leadsman.Context`. By it a `Context` is recognized before its module is imported, for which only
    apps that use one pay."""

    __slots__ = ()


class ContextDependency(Provided):
    """The `Context` of one registration, made when the app runs."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(object)

    @property
    def label(self) -> str:
        """See `Dependency`."""
        return "Context"

    def fits(self, wanted: type) -> bool:
        """See `Dependency`."""
        return ContextBase in wanted.__bases__


Dependencies = tuple[tuple[str, Dependency], ...]


class PayloadParameter(NamedTuple):
    """A parameter that no dependency fills: the payload of a command, or of a request for a poll."""

    name: str
    annotation: object


def is_async(handler: object) -> bool:
    """Whether a handler is ``async def``, also if it is wrapped in a partial or is the ``__call__`` of an object.

    Raises:
        InvalidType: it is not callable, or it is a generator.
    """
    if isinstance(handler, type):
        raise InvalidType(f"the handler is the class {handler.__name__}; give a function")
    if not callable(handler):
        raise InvalidType(f"the handler is {handler!r}; give a function, 'async def' or 'def'")
    inner = function_of(handler)
    flags = getattr(getattr(inner, "__code__", None), "co_flags", 0)
    if flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise InvalidType(
            f"the handler {name_of(handler)} is a generator; return the reading, or register it with @app.source"
        )
    return bool(flags & inspect.CO_COROUTINE) or inspect.iscoroutinefunction(inner)


def check_generator(handler: object) -> None:
    """Check that a handler is an async generator function.

    Raises:
        InvalidType: it is something else.
    """
    if not inspect.isasyncgenfunction(function_of(handler)):
        raise InvalidType(
            f"the handler {name_of(handler)} is not an async generator; write 'async def' and yield readings"
        )


def needs_of(handler: Handler, available: Sequence[Dependency]) -> Dependencies:
    """Match a handler's parameters with what is available.

    Raises:
        InvalidType: a parameter without an annotation, or one that nothing can fill.
        InvalidValue: no adapter, or several, of the annotated type and name.
    """
    return tuple((name, _dependency_for(handler, name, wanted, available)) for name, wanted in _parameters(handler))


def needs_and_payload(
    handler: Handler, available: Sequence[Dependency]
) -> tuple[Dependencies, PayloadParameter | None]:
    """As `needs_of`, for a handler with one parameter that nothing fills; None when it has no such parameter.

    Raises:
        InvalidType, InvalidValue: as `needs_of`, and when there are several.
    """
    needs: list[tuple[str, Dependency]] = []
    payload = None
    for name, wanted in _parameters(handler):
        if payload is None and not _is_available(wanted, available):
            payload = PayloadParameter(name, wanted)
        else:
            needs.append((name, _dependency_for(handler, name, wanted, available)))
    return tuple(needs), payload


def parameter_with_default(handler: Handler, name: object, option: str) -> tuple[PayloadParameter, object]:
    """A parameter that the caller may leave out, and its default. `option` is the option that names it.

    Raises:
        InvalidType, InvalidValue: the handler has no such parameter, or it has no type or no default.
    """
    if not isinstance(name, str):
        raise InvalidType(f"{option} is {name!r}; write the name of a parameter of {name_of(handler)}, such as 'days'")
    parameters = inspect.signature(handler).parameters
    if name not in parameters:
        known = suggestion(name, [*parameters]) if parameters else "it has none"
        raise InvalidValue(f"{option} is {name!r}, which is no parameter of {name_of(handler)}; {known}")
    default = parameters[name].default
    if parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
        raise _positional(handler, name)
    if default is inspect.Parameter.empty:
        raise InvalidValue(
            f"the parameter {name!r} of {name_of(handler)} has no default, with which it is polled on schedule; "
            f"write one, such as {name}: int = 30"
        )
    try:
        hints = hints_of(handler)
    except NameError as error:
        raise _unreadable(handler, error) from error
    if name not in hints:
        raise InvalidType(f"the parameter {name!r} of {name_of(handler)} has no type; write one, such as {name}: int")
    return PayloadParameter(name, hints[name]), default


def name_of(handler: object) -> str:
    """The name of a handler in messages and introspection. It is never its `repr`, which may show bound arguments."""
    inner = unwrapped(handler)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def takes_one(function: object) -> bool:
    """Whether a function can be called with one argument."""
    try:
        inspect.signature(function).bind(None)  # type: ignore[arg-type]  # whatever it is, it has one or not
    except (TypeError, ValueError):
        return False
    return True


def place_of(handler: object) -> str:
    """The file and the line of a handler and its decorators, such as ``house.py line 12``; or an empty text."""
    code = getattr(function_of(handler), "__code__", None) if callable(handler) else None
    return "" if code is None else f"{os.path.basename(code.co_filename)} line {code.co_firstlineno}"


@kept
def _parameters(handler: Handler) -> tuple[tuple[str, object], ...]:
    """The parameters to fill and their annotations. Cached: one handler may serve a thousand devices."""
    signature = inspect.signature(handler)
    if not signature.parameters:
        return ()
    try:
        hints = hints_of(handler)
    except NameError as error:
        raise _unreadable(handler, error) from error
    wanted = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidType(f"the handler {name_of(handler)} takes *{name}; name its adapters one by one")
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise _positional(handler, name)
        if name not in hints:
            raise InvalidType(
                f"the parameter {name!r} of {name_of(handler)} has no type; "
                f"write the adapter's, such as {name}: SerialPort"
            )
        wanted.append((name, hints[name]))
    return tuple(wanted)


def _positional(handler: Handler, name: str) -> InvalidType:
    return InvalidType(f"the parameter {name!r} of {name_of(handler)} is positional-only; drop the '/'")


def _unreadable(handler: Handler, error: NameError) -> InvalidType:
    return InvalidType(f"an annotation of {name_of(handler)} cannot be read: {error}; import the type it names")


_VALUES = (int, float, str, bool, bytes, dict, list)
"""Types of values, of which there is no adapter."""


def _split(wanted: object) -> tuple[object, str | None]:
    """The class and the name that an annotation asks for."""
    kind, extras = split(wanted)
    return kind, next((extra for extra in extras if isinstance(extra, str)), None)


def _is_available(wanted: object, available: Sequence[Dependency]) -> bool:
    kind, _ = _split(wanted)
    return isinstance(kind, type) and any(dependency.fits(kind) for dependency in available)


def _dependency_for(handler: Handler, parameter: str, wanted: object, available: Sequence[Dependency]) -> Dependency:
    wanted, name = _split(wanted)
    where = f"the parameter {parameter!r} of {name_of(handler)}"
    if not isinstance(wanted, type):
        raise InvalidType(f"{where} is annotated {wanted!r}, which is not a class; write the adapter's class")
    found = [dependency for dependency in available if dependency.fits(wanted) and name in (None, dependency.name)]
    if len(found) == 1:
        return found[0]
    type_name = wanted.__name__
    if not found:
        known = ", ".join(sorted({dependency.label for dependency in available})) or "none"
        wish = f"{type_name} named {name!r}" if name else type_name
        advice = "add an adapter to App(adapters=…), or a class to App(settings=…)"
        if wanted in _VALUES:
            advice = (
                "only one parameter takes the payload: write a pydantic model with the fields, and one parameter of it"
            )
        if type_name == "Context":  # of a device
            advice = "a Context is that of a device: put the message into a Buffer, and let an @app.source take it out"
        raise InvalidValue(f"{where} asks for {wish}, and there is: {known}; {advice}")
    names = [dependency.name for dependency in found if dependency.name]
    raise InvalidValue(
        f"{where} asks for {type_name}, and there are {len(found)}; "
        + (f"write Annotated[{type_name}, {names[0]!r}]" if names else "name them: App(adapters={'one': …, 'two': …})")
    )


_NOTHING: Mapping[str, object] = {}


def bound(handler: Handler, needs: Dependencies, given: Mapping[str, object] = _NOTHING) -> Callable[[], Any]:
    """Bind a handler to its dependencies and return a call without arguments. The call raises `DeviceUnavailable`
    while an adapter is not open."""
    if not needs and not given:
        return handler
    if len(needs) == 1 and not given:
        ((name, dependency),) = needs
        return lambda: handler(**{name: dependency.get()})
    return lambda: handler(**{name: dependency.get() for name, dependency in needs}, **given)


def closed_coroutine(result: object) -> bool:
    """Whether a plain handler returned a coroutine by mistake. The coroutine is closed, which prevents a later
    warning."""
    if asyncio.iscoroutine(result):
        result.close()
        return True
    return False
