"""Libraries that only some adapters need, and what to type where one is missing."""

from importlib.util import find_spec

from leadsman.errors import NotInstalled


def missing(what: str, library: str, extra: str) -> NotInstalled:
    """The error that says what `what` needs, and what to type: ``missing("serial ports", "pyserial-asyncio", "serial")``."""
    return NotInstalled(f'{what} need {library}, which is not installed; type: pip install "leadsman[{extra}]"')


def check_found(what: str, library: str, extra: str, *modules: str) -> None:
    """See that one of `modules` can be imported, without importing it.

    Raises:
        NotInstalled: none of them can.
    """
    if not any(find_spec(module) for module in modules):
        raise missing(what, library, extra)
