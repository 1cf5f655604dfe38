"""Functions that parts of an app have called: what one of them raises costs only itself."""

import inspect
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from leadsman.core.events import AppFault
from leadsman.errors import InvalidType

F = TypeVar("F")
P = ParamSpec("P")
T = TypeVar("T")


def observer_name(observer: object) -> str:
    """What the log calls a function that an extension has added: ``leadsman_alarm.Alarm.report``."""
    inner = getattr(observer, "__wrapped__", observer)
    inner = getattr(inner, "func", inner)  # of a partial
    kind = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{getattr(kind, '__module__', None) or 'builtins'}.{kind.__qualname__}"


def check_observer(what: str, observer: F, *, awaited: bool = False) -> F:
    """See that it can be called, and unless what it gives is `awaited`, at once. Raises `InvalidType`."""
    if not callable(observer):
        raise InvalidType(f"{what}: {observer!r} is no function; give one")
    if not awaited and inspect.iscoroutinefunction(observer):
        raise InvalidType(f"{what}: {observer_name(observer)} is async, and nobody awaits it; write a plain def")
    return observer


def guarded(
    emit: Callable[[AppFault], None], what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """What `function` returns. None if it raises: that is a fault of the app, in `what`, which names the function. So
    it costs only itself."""
    try:
        return function(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() of one part must not end the others
        emit(AppFault(f"{what}, {observer_name(function)}", error))
        return None


class Observers(Generic[P]):
    """Functions that are called together, in the order in which they were added: what several parts of an app may want
    to know. What one of them raises is reported as a fault of the app, and costs no other one and no caller.

    Args:
        what: what the log calls them.
        emit: takes the faults.
    """

    __slots__ = ("_added", "_emit", "_what")

    def __init__(self, what: str, emit: Callable[[AppFault], None]) -> None:
        self._added: tuple[Callable[P, object], ...] = ()
        self._what = what
        self._emit = emit

    def __bool__(self) -> bool:
        return bool(self._added)

    def add(self, observer: Callable[P, object]) -> None:
        """Call `observer` from now on, after those that were added before.

        Raises:
            InvalidType: it is no function, or it is async.
        """
        self._added += (check_observer(self._what, observer),)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for observer in self._added:
            guarded(self._emit, self._what, observer, *args, **kwargs)
