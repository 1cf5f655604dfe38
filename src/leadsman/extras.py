"""Optional libraries: checks whether they are installed, and makes the error that says how to install them."""

from importlib.util import find_spec

from leadsman.errors import NotInstalled


def missing(what: str, library: str, extra: str) -> NotInstalled:
    """The error that says what `what` needs, and what to type: ``missing("serial ports", "pyserial-asyncio",
    "serial")``."""
    return NotInstalled(f'{what} need {library}, which is not installed; type: pip install "leadsman[{extra}]"')


def check_found(what: str, library: str, extra: str, *modules: str) -> None:
    """Check that one of `modules` can be imported, without importing it.

    Raises:
        NotInstalled: none of them can be imported.
    """
    if not any(find_spec(module) for module in modules):
        raise missing(what, library, extra)
