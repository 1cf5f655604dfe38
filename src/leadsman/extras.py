"""Optional libraries: checks whether they are installed, and makes the error that says how to install them. Each module
that imports one at its top raises this error if it is missing."""

from importlib.util import find_spec

from leadsman.errors import NotInstalled


def missing(what: str, library: str, extra: str, error: ImportError | None = None) -> NotInstalled:
    """The error that says what `what` needs, and what to type: ``missing("serial ports", "pyserial-asyncio",
    "serial")``. `error` is shown if the library is there and could not be loaded. What is typed adds libraries and
    leaves leadsman as it is, wherever it was installed from: pip fetches nothing that is installed."""
    there = error is not None and not isinstance(error, ModuleNotFoundError)
    why = f"cannot be loaded ({error})" if there else "is not installed"
    command = f'pip install "leadsman[{extra}]"'
    return NotInstalled(f"{what} need {library}, which {why}; type: {command} (leadsman itself stays as it is)")


def check_found(what: str, library: str, extra: str, *modules: str) -> None:
    """Check that one of `modules` can be imported, without importing it.

    Raises:
        NotInstalled: none of them can be imported.
    """
    if not any(find_spec(module) for module in modules):
        raise missing(what, library, extra)
