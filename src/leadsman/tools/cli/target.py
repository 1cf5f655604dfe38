"""The app of the command line. Imports what is given as ``module:app`` without running it, and explains each error on
the way."""

import argparse
import importlib
import inspect
import pkgutil
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from leadsman.core.app import App
from leadsman.core.loop.user_code import frame_of
from leadsman.core.settings.sections import IDENTITY_KEYS
from leadsman.core.settings.sources import Where
from leadsman.core.text import clean, describe
from leadsman.core.text.suggestion import nearest, suggestion
from leadsman.core.wiring.process import only_looked_at
from leadsman.errors import ConfigurationError, LeadsmanError
from leadsman.tools.cli.arguments import UsageError

_PACKAGE = __name__.partition(".")[0]
_SETTINGS = {
    "mqtt": "mqtt.url",
    "http": "http.bind",
    "discovery": "discovery.convention",
    **{key: f"mqtt.{key}" for key in IDENTITY_KEYS},
}
"""The options that are settings, each with its key."""
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class TargetError(LeadsmanError):
    """The app of the command line cannot be found or imported."""


class NoModuleError(TargetError):
    """There is no module of that name."""


def load_app(options: argparse.Namespace) -> App:
    """The app of the command line, with its settings."""
    app: App
    try:
        app = options.target if isinstance(options.target, App) else load_target(options.target)
    except NoModuleError as error:
        if ":" in options.target or not hasattr(options, "device"):
            raise
        raise NoModuleError(
            f"{error}\nto ask a running app about a device, write: leadsman inspect --live {clean(options.target)}"
        ) from None
    app.load(sources_of(options))
    return app


def sources_of(options: argparse.Namespace) -> Where:
    """The sources of settings, those of the command line included."""
    flags = dict(getattr(options, "given", {}))
    for assignment in options.set:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {assignment!r} is not an assignment; write --set boiler.port=/dev/ttyUSB0")
        flags[key.strip()] = value
    for option, key in _SETTINGS.items():
        if (value := getattr(options, option, None)) is not None:
            flags[key] = value
    if getattr(options, "standby", False):
        flags["standby.enabled"] = "true"
    return Where.here(options.config, flags)


def load_target(target: str) -> App:
    """Import the app of ``module:app``. A module alone, or a file, will do if it contains only one app.

    Raises:
        NoModuleError: there is no such module.
        TargetError: there is no such app; the message explains why.
        ConfigurationError: the app is wrong.
    """
    name, _, attribute = target.partition(":")
    module = _import(name)
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if not attribute:
        if not apps:
            raise TargetError(f"{module.__name__} has no app; write app = App({module.__name__!r}) in it")
        if len(apps) > 1:
            targets = " or ".join(f"{module.__name__}:{each}" for each in sorted(apps))
            raise TargetError(f"{module.__name__} has {len(apps)} apps; write {targets}")
        return next(iter(apps.values()))
    if attribute in apps:
        return apps[attribute]
    found = vars(module).get(attribute)
    if found is not None:
        instead = " or ".join(f"{module.__name__}:{each}" for each in sorted(apps))
        kind = f"{target} has the type {type(found).__name__} and is not an App"
        raise TargetError(f"{kind}; write {instead or f'app = App({module.__name__!r}) in it'}")
    if not apps:
        raise TargetError(
            f"{module.__name__} has no {attribute!r} and no other app; write app = App({module.__name__!r}) in it"
        )
    raise TargetError(f"{module.__name__} has no {attribute!r}; {suggestion(attribute, apps)}")


def _import(name: str) -> ModuleType:
    file = _file(name)
    directory, module_name = (Path.cwd(), name) if file is None else _root(file)
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise NoModuleError(f"{name!r} is not a module; write module:app, such as house:app")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        with only_looked_at():
            module = importlib.import_module(module_name)
    except ConfigurationError as error:
        raise _with_place(error) from None
    except ModuleNotFoundError as error:
        if error.name == module_name or module_name.startswith(f"{error.name}."):
            raise NoModuleError(_no_module(module_name)) from None
        raise TargetError(f"{where_of(error)}: {_missing(error.name or '')}") from None
    except (Exception, SystemExit) as error:
        if (wrong := _wrong_file(error)) is not None:
            where = Path(wrong.filename or f"{module_name}.py").name
            line = "" if wrong.lineno is None else f" line {wrong.lineno}"  # zero bytes have none
            raise TargetError(f"{where}{line}: {wrong.msg}; correct the file") from None
        kind = ConfigurationError if _is_a_wrong_call_of_ours(error) else TargetError
        raise kind(f"{where_of(error)}: {_describe(error)}") from None
    if file is not None and Path(module.__file__ or "").resolve() != file:
        raise TargetError(f"{file} has the name of another module, {module_name!r}; rename the file")
    return module


_NULL_BYTES = "source code string cannot contain null bytes"


def _wrong_file(error: BaseException) -> SyntaxError | None:
    """The error about a file that is not Python; None for another error. Before Python 3.11.4 that of a zero byte is a
    ValueError."""
    if isinstance(error, SyntaxError):
        return error
    return SyntaxError(str(error)) if isinstance(error, ValueError) and str(error) == _NULL_BYTES else None


def _missing(name: str) -> str:
    """What to do about a module that cannot be imported. One of ours has another name: nothing installs it."""
    package, _, last = name.rpartition(".")
    if package.partition(".")[0] != _PACKAGE:
        return f"it needs {name!r}, which is not installed; install it"
    try:
        known = [each.name for each in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    except (ImportError, AttributeError):  # what is before the last dot is no package of ours, either
        return _missing(package)
    instead = _OTHER_NAMES.get(last)
    hint = f"did you mean {package}.{instead}?" if instead in known else suggestion(last, known)
    return f"leadsman has no module {name!r}; {hint}"


_OTHER_NAMES = {"bluetooth": "ble", "bleak": "ble", "calendar": "caldav", "uart": "serial", "w1": "onewire"}
"""Modules of ours by what people call them."""


def _file(name: str) -> Path | None:
    """The file of a target that is a path; None if it is the name of a module."""
    if not name.endswith(".py") and "/" not in name and "\\" not in name:
        return None
    path = Path(name) if name.endswith(".py") else Path(f"{name}.py")
    if Path(name).is_dir():
        raise TargetError(f"{clean(name)!r} is a directory; write a file in it, such as {Path(name, 'house.py')}:app")
    if path.is_file():
        return path.resolve()
    near = nearest(path.name, [each.name for each in path.parent.glob("*.py")])
    raise TargetError(
        f"there is no file {clean(str(path))!r}"
        + (f"; did you mean {str(path.parent / near)!r}?" if near else "; write module:app, such as house:app")
    )


def _root(file: Path) -> tuple[Path, str]:
    """The directory to import a file from, and the name of its module there. Below the working directory, it is that
    one."""
    if file.is_relative_to(Path.cwd().resolve()):
        directory = Path.cwd().resolve()
    else:
        directory = file.parent
        while (directory / "__init__.py").is_file():
            directory = directory.parent
    return directory, ".".join(file.relative_to(directory).with_suffix("").parts)


def _no_module(name: str) -> str:
    files = [path.stem for path in Path.cwd().glob("*.py") if not path.stem.startswith(("test_", "conftest"))]
    advice = suggestion(name, files) if files else "go to its directory, or write its file, such as apps/house.py"
    return f"there is no module {name!r} in {Path.cwd()}; {advice}"


def _with_place(error: ConfigurationError) -> ConfigurationError:
    """The error, with the line of the user's code that led to it."""
    where = where_of(error)
    return type(error)("\n".join(f"{where}: {line}" for line in str(error).splitlines()))


def where_of(error: BaseException) -> str:
    """The line of the user's code that raised the error."""
    frame = frame_of(error)
    return "?" if frame is None else f"{Path(frame.filename).name} line {frame.lineno}"


_CALL = re.compile(r"([\w.]+)\(\) (?:got an unexpected|got multiple values|got some positional|missing \d+|takes )")
_DECORATORS = ("telemetry", "source", "command", "periodic", "event")


def _is_a_wrong_call_of_ours(error: BaseException) -> bool:
    """Whether Python refused the arguments of a call of leadsman, which are configuration as those that leadsman itself
    refuses."""
    found = _CALL.match(str(error)) if isinstance(error, TypeError) else None
    if found is None:
        return False
    first = found[1].partition(".")[0]
    ours = (module for name, module in [*sys.modules.items()] if name.partition(".")[0] == _PACKAGE)
    return any(getattr(vars(module).get(first), "__module__", "").startswith(_PACKAGE) for module in ours)


def _describe(error: BaseException) -> str:
    """What a module raised; for an option with a wrong name, with those that the call takes. From 3.13 on Python adds a
    suggestion of its own, which ours replaces, so that each Python says the same."""
    text = f"{type(error).__name__}: {describe(error)}"
    lacking = re.search(r"\.(\w+)\(\) missing 1 required positional argument: 'name'", text)
    if lacking is not None and lacking[1] in _DECORATORS:
        return f"a {lacking[1]} needs the name of its device; write @app.{lacking[1]}('kitchen', …)"
    if (lost := re.search(r"cannot import name '(\w+)' from '(leadsman[\w.]*)'", text)) is not None:
        known = [name for name in vars(sys.modules[lost[2]]) if not name.startswith("_")]
        near = nearest(lost[1], known)
        return f"{lost[2]} has no {lost[1]!r}; " + (f"did you mean {near!r}?" if near else "correct the name")
    wrong = re.search(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'", text)
    many = re.search(r"([\w.]+)\(\) takes .*positional arguments? but .* given", text)
    if wrong is None and many is None:
        return text
    called = (wrong or many or [""])[1].removesuffix(".__init__")
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        found = frame.f_globals.get(called)
        if inspect.isclass(found) or inspect.isfunction(found):
            parameters = inspect.signature(found).parameters
            known = [name for name, each in parameters.items() if each.kind in _BY_NAME]
            if wrong is not None:
                return f"{text[: wrong.end()]}; {suggestion(wrong[2], known)}"
            named = [f"{name}=…" for name in known if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
            return f"{text}; write the others with their names: {', '.join(named)}" if named else text
    return text
