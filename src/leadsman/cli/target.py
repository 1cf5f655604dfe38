"""``module:app``, as people type it: found, imported without being run, and every way it can be wrong named."""

import importlib
import sys
import traceback
from pathlib import Path

from leadsman.app import App, only_looked_at
from leadsman.errors import ConfigurationError, LeadsmanError
from leadsman.wording import clean, suggestion, told


class TargetError(LeadsmanError):
    """There is no app where the command line says."""


def load_target(target: str) -> App:
    """Import the app of ``module:app``; ``module`` alone, or a file name, where it holds one app only.

    Raises:
        TargetError: there is none; the message says why.
        ConfigurationError: the app is there, and something of it is wrong.
    """
    module_name, _, attribute = target.partition(":")
    module_name = _module(module_name)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with only_looked_at():
            module = importlib.import_module(module_name)
    except ConfigurationError:
        raise
    except ModuleNotFoundError as error:
        if error.name == module_name or module_name.startswith(f"{error.name}."):
            files = sorted(path.stem for path in Path.cwd().glob("*.py"))
            raise TargetError(
                f"there is no module {module_name!r} in {Path.cwd()}; {suggestion(module_name, files)}"
            ) from None
        raise TargetError(f"{where_of(error)}: it needs {error.name!r}, which is not installed") from None
    except SyntaxError as error:
        raise TargetError(f"{Path(error.filename or module_name).name} line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise TargetError(f"{where_of(error)}: {type(error).__name__}: {told(error)}") from None
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if not attribute:
        if len(apps) != 1:
            raise TargetError(
                f"{module_name} holds {len(apps) or 'no'} apps; write {module_name}:{next(iter(apps), 'app')}"
            )
        return next(iter(apps.values()))
    if attribute in apps:
        return apps[attribute]
    found = vars(module).get(attribute)
    if found is not None:
        raise TargetError(f"{target} is {clean(repr(found))}, and no App")
    raise TargetError(f"{module_name} has no {attribute!r}; {suggestion(attribute, apps)}")


def _module(name: str) -> str:
    if name.endswith(".py"):
        name = name.removesuffix(".py").replace("/", ".").lstrip(".")
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise TargetError(f"{name!r} is no module; write module:app, such as house:app")
    return name


def where_of(error: BaseException) -> str:
    """The user's line that raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if str(Path(__file__).parent.parent) not in frame.filename]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name} line {frame.lineno}"
