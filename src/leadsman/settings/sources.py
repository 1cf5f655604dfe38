"""The sources of settings. Each one gives entries: a path into the settings with a value and its origin."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from leadsman.errors import ConfigurationError, SettingsError
from leadsman.settings.documents import line_of, read_text, toml_document, yaml_document
from leadsman.settings.model import SettingPath
from leadsman.text import clean
from leadsman.text.suggestion import suggestion

FILES = ("leadsman.toml", "leadsman.yaml", "leadsman.yml")
BROKER, HTTP, OUTBOX, DISCOVERY = "mqtt", "http", "outbox", "discovery"
STANDBY, CLUSTER, SUPERVISION, LOG = "standby", "cluster", "supervision", "log"
SECTIONS = (BROKER, HTTP, OUTBOX, DISCOVERY, STANDBY, CLUSTER, SUPERVISION, LOG)
"""The sections that every app has; their variables begin with their names: ``MQTT__URL``."""
DEVICES = "devices"
"""The section about single devices: ``[devices.boiler]``, ``DEVICES__BOILER__INTERVAL``."""
RETRY = "retry"
RETRY_PREFIX = "RETRY__"
KNOBS = ("max_attempts", "min_wait", "max_wait", "jitter")
"""The settings of a family of operations: ``RETRY__API_MAX_ATTEMPTS``."""
ENVIRONMENT = "LEADSMAN_ENV"
CONFIG = "LEADSMAN_CONFIG"
RUN_SECRETS = Path("/run/secrets")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")
_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")
"""Variables that Kubernetes sets for each service. A service with the name of the app sets
``HOUSE_PORT=tcp://10.0.0.1:80``."""

RANKS = ("default", "file", ".env", "environment", "secret", "flag")

T = TypeVar("T")
IsSetting = Callable[[SettingPath], bool]
FindLine = Callable[[SettingPath], int | None]


class SettingEntry(NamedTuple):
    """One value with its path in the settings and its origin."""

    path: SettingPath
    value: object
    rank: int
    """The position in `RANKS`. The highest rank wins."""
    source: str
    """The file, the variable or the flag."""
    text: bool = True
    """Whether the source has only text, which may stand for a number or for JSON. It has one case, and no dashes."""
    below: Mapping[SettingPath, "SettingEntry"] = {}
    """The entries of the values that it has inside, by their paths, where each has an origin of its own."""
    line: FindLine | None = None
    """Finds the line of a path in the source, where that has not been done. It takes a while."""

    @property
    def origin(self) -> str:
        """The source, and the line if it has lines. For messages about faults: to find the line takes a while."""
        return self.origin_at(self.path)

    def origin_at(self, path: SettingPath) -> str:
        """The same for the value at a path inside this entry."""
        line = None if self.line is None else self.line(path)
        return self.source if line is None else f"{self.source} line {line}"

    def read(self, check: Callable[[object], T]) -> T:
        """What `check` makes of the value. An error that it raises gets the name of the setting, and the origin of the
        value at fault."""
        try:
            return check(self.value)
        except ConfigurationError as error:
            raise self.at(_at_fault(self.value, check, error)).fault(error) from None

    def at(self, inside: SettingPath) -> "SettingEntry":
        """This entry, with the origin of the value at a path inside it, or of the first one below that path."""
        path = (*self.path, *inside)
        first = next((each for known, each in self.below.items() if known[: len(path)] == path), self)
        return self._replace(source=first.origin_at(path), line=None)

    def fault(self, error: ConfigurationError) -> ConfigurationError:
        """An error about this setting, with its name and its origin."""
        return type(error)(f"{'.'.join(self.path)}: {error} (from {self.origin})")

    @property
    def flag(self) -> bool:
        """Whether it came from the command line."""
        return RANKS[self.rank] == "flag"

    @property
    def secret(self) -> bool:
        """Whether it came from a file of its own, as secrets do."""
        return RANKS[self.rank] == "secret"


def _at_fault(value: object, check: Callable[[object], object], error: ConfigurationError) -> SettingPath:
    """The path of the smallest part of a value for which `check` raises the same error when nothing stands beside it,
    or without which it raises none; empty if there is no such part."""
    keys: tuple[object, ...] = ()
    part = value
    while isinstance(part, Mapping):
        paths = [(*keys, key) for key in part]
        alone = (each for each in paths if _error_of(check, _only(value, each)) == str(error))
        without = (each for each in paths if _error_of(check, _without(value, each)) is None)
        found = next(alone, None) or next(without, None)
        if found is None:
            break
        keys, part = found, part[found[-1]]
    return tuple(str(key) for key in keys)


def _error_of(check: Callable[[object], object], value: object) -> str | None:
    try:
        check(value)
    except ConfigurationError as error:
        return str(error)
    return None


def _only(value: Any, path: tuple[object, ...]) -> object:
    return {path[0]: _only(value[path[0]], path[1:])} if path else value


def _without(value: Any, path: tuple[object, ...]) -> object:
    key, *more = path
    inner = {key: _without(value[key], tuple(more))} if more else {}
    return {other: each for other, each in value.items() if other != key} | inner


class Where(NamedTuple):
    """The places that settings are read from."""

    environment: Mapping[str, str]
    directory: Path
    """The directory of ``leadsman.toml`` and ``.env``."""
    config: Path | None = None
    """The only settings file to read; None: the first one that is found."""
    flags: Mapping[str, object] = {}
    """Values by dotted path, from the command line or from a test."""
    secrets: Path = RUN_SECRETS

    @classmethod
    def here(cls, config: Path | None = None, flags: Mapping[str, str] | None = None) -> "Where":
        """This process's environment and working directory."""
        return cls(os.environ, Path.cwd(), config, flags or {})

    @classmethod
    def nowhere(cls, flags: Mapping[str, object], environment: Mapping[str, str] | None = None) -> "Where":
        """No files, and no variables of the process, so that a test has the same result on every machine."""
        return cls(environment or {}, Path(os.devnull), None, flags, Path(os.devnull))


def read_entries(app: str, where: Where, is_setting: IsSetting) -> list[SettingEntry]:
    """Read the entries of all sources, lowest rank first.

    Args:
        app: the name of the app.
        where: the sources.
        is_setting: whether a path is a setting, since ``log_file`` may be one, or the file of the secret ``log``.

    Raises:
        SettingsError: a file cannot be read or parsed.
    """
    prefix = variable_prefix(app)
    dotenv = where.directory / ".env"
    variables = dict(_dotenv(dotenv)) if dotenv.is_file() else {}
    entries = list(_from_file(where, is_setting))
    entries += _from_variables(variables, prefix, 2, f"{dotenv.name} ", is_setting)
    entries += _from_variables(where.environment, prefix, 3, "environment ", is_setting)
    entries += _from_secrets(where, prefix)
    for key, value in where.flags.items():
        entries.append(SettingEntry(tuple(part.strip() for part in key.split(".")), value, 5, f"flag {key}"))
    return sorted(entries, key=lambda entry: entry.rank)


def variable_prefix(app: str) -> str:
    """The prefix of the variables of an app: ``HOUSE_`` for ``house``."""
    return re.sub(r"\W", "_", app).upper() + "_"


def variable(app: str, path: Iterable[str]) -> str:
    """The variable that sets a path."""
    parts = [part.upper() for part in path]
    shared = parts[0].lower() in (*SECTIONS, DEVICES)
    return "__".join(parts) if shared else variable_prefix(app) + "__".join(parts)


def near_misses(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that were meant for the broker and have one underscore, each with the name that is read."""
    meant = {f"MQTT_{key}": f"MQTT__{key}" for key in ("URL", "HOST", "PORT", "USERNAME", "PASSWORD")}
    return {one: other for one, other in meant.items() if one in environment}


def settings_file(where: Where) -> Path | None:
    """The settings file, if there is one. A directory of that name, or a link to nothing, counts: people meant it."""
    if where.config is not None:
        return where.config
    if named := where.environment.get(CONFIG):
        return Path(named)
    directories = [where.directory]
    if given := where.environment.get("CONFIGURATION_DIRECTORY"):
        directories.insert(0, Path(given.split(":")[0]))
    return next((path for each in directories for name in FILES if os.path.lexists(path := each / name)), None)


def _from_file(where: Where, is_setting: IsSetting) -> Iterator[SettingEntry]:
    path, environment = settings_file(where), where.environment.get(ENVIRONMENT) or None
    by_variable = where.config is None and bool(where.environment.get(CONFIG))
    if path is None:
        if environment is not None:
            raise SettingsError(
                f"{ENVIRONMENT} is {environment!r}, but there is no settings file; write one with [env.{environment}]"
            )
        return
    try:
        text = read_text(path)
    except SettingsError as error:
        raise SettingsError(f"{error} (from environment {CONFIG})" if by_variable else str(error)) from None
    document = yaml_document(path, text) if path.suffix in (".yaml", ".yml") else toml_document(path, text)
    environments = {} if is_setting(("env",)) else document.values.pop("env", {})
    lines = document.lines

    def line(path: SettingPath) -> int | None:
        return line_of(lines(), path)

    def line_of_environment(path: SettingPath) -> int | None:
        return line_of(lines(), ("env", str(environment), *path))

    yield from _entries_of(document.values, str(path), line)
    if is_setting(("env",)):
        return
    if not isinstance(environments, dict) or not all(isinstance(each, dict) for each in environments.values()):
        raise SettingsError(f"{path}: env must contain a section per environment; write [env.production]")
    if environment is None:
        return
    if environment not in environments:
        raise SettingsError(
            f"{ENVIRONMENT} is {environment!r}; {path} has no [env.{clean(environment)}]; "
            f"{suggestion(environment, environments)}"
        )
    yield from _entries_of(environments[environment], f"{path} [env.{environment}]", line_of_environment)


def _entries_of(values: Mapping[str, object], source: str, line: FindLine) -> Iterator[SettingEntry]:
    return (SettingEntry((str(key),), value, 1, source, text=False, line=line) for key, value in values.items())


def _dotenv(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(line)
        if match is None:
            raise SettingsError(f"{path} line {number} is not an assignment; write NAME=value")
        name, value = match.groups()
        if value[:1] in ("'", '"'):
            end = value.find(value[0], 1)
            if end < 0 or value[end + 1 :].strip()[:1] not in ("", "#"):
                raise SettingsError(f"{path} line {number}: the quote is not closed; write a second {value[0]}")
            value = value[1:end]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        yield name, value


def _from_variables(
    variables: Mapping[str, str], prefix: str, rank: int, origin: str, is_setting: IsSetting
) -> Iterator[SettingEntry]:
    for name, value in variables.items():
        path = _path(name, prefix)
        if path is None or (_is_link(name, value) and not is_setting(path)) or (not value and not is_setting(path)):
            continue  # an empty one of leadsman's is as one that is not there: `MQTT__USERNAME: ${USER_OF_THE_BROKER}`
        if name.endswith("_FILE") and not is_setting(path):
            yield SettingEntry(_path(name.removesuffix("_FILE"), prefix) or path, Path(value), 4, f"{origin}{name}")
        else:
            yield SettingEntry(path, value, rank, f"{origin}{name}")


def _is_link(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable for a service. The names that it makes never have two underscores in a
    row."""
    if "__" in name:
        return False
    bare = name.endswith("_PORT") and _LINK_ADDRESS.fullmatch(value)
    return bool(bare or _LINK.fullmatch(name))


def _from_secrets(where: Where, prefix: str) -> Iterator[SettingEntry]:
    for directory in (where.secrets, Path(where.environment.get("CREDENTIALS_DIRECTORY") or where.secrets)):
        try:
            files = sorted(directory.iterdir())
        except OSError:
            continue
        for file in files:
            path = _path(file.name.upper(), prefix)
            if path is not None:
                yield SettingEntry(path, file, 4, f"secret {file}")


def retry_path(name: str) -> SettingPath:
    """The path that a variable such as ``RETRY__API_MAX_ATTEMPTS`` sets."""
    family = name.removeprefix(RETRY_PREFIX).lower()
    knob = next((knob for knob in KNOBS if family.endswith(f"_{knob}")), None)
    return (RETRY, family) if knob is None else (RETRY, family.removesuffix(f"_{knob}"), knob)


def _path(name: str, prefix: str) -> SettingPath | None:
    section, separator, key = name.partition("__")
    if separator and section.isupper() and section.lower() in SECTIONS:
        return section.lower(), key.lower()
    if separator and section == DEVICES.upper():
        return DEVICES, *(part.lower() for part in key.split("__"))
    if name.startswith(RETRY_PREFIX):
        return retry_path(name)
    if name.startswith(prefix) and len(name) > len(prefix):
        return tuple(part.lower() for part in name.removeprefix(prefix).split("__"))
    return None
