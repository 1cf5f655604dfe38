"""The sources of settings. Each one gives entries: a path into the settings with a value and its origin."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from leadsman.core.settings.entry import RETRY_PREFIX, FindLine, SettingEntry, retry_path
from leadsman.core.settings.model import SettingPath
from leadsman.core.settings.sections import SECTIONS
from leadsman.core.text import clean
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import SettingsError

FILES = ("leadsman.toml", "leadsman.yaml", "leadsman.yml")
DEVICES = "devices"
"""The section about single devices: ``[devices.boiler]``, ``DEVICES__BOILER__INTERVAL``."""
ENVIRONMENT = "LEADSMAN_ENV"
CONFIG = "LEADSMAN_CONFIG"
RUN_SECRETS = Path("/run/secrets")
_ASSIGNMENT = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$"
_LINK = r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
_LINK_ADDRESS = r"(tcp|udp|sctp)://.*"
"""Variables that Kubernetes sets for each service. A service with the name of the app sets
``HOUSE_PORT=tcp://10.0.0.1:80``."""

IsSetting = Callable[[SettingPath], bool]


class Known(NamedTuple):
    """What the names of variables begin with."""

    prefix: str
    """Of the app's own settings."""
    own: Collection[str] = ()
    """The sections of extensions."""


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


def read_entries(app: str, where: Where, is_setting: IsSetting, own: Collection[str] = ()) -> list[SettingEntry]:
    """Read the entries of all sources, lowest rank first.

    Args:
        app: the name of the app.
        where: the sources.
        is_setting: whether a path is a setting, since ``log_file`` may be one, or the file of the secret ``log``.
        own: the sections of extensions.

    Raises:
        SettingsError: a file cannot be read or parsed.
    """
    known = Known(variable_prefix(app), own)
    dotenv = where.directory / ".env"
    variables = dict(_dotenv(dotenv)) if dotenv.is_file() else {}
    entries = list(_from_file(where, is_setting))
    entries += _from_variables(variables, known, 2, f"{dotenv.name} ", is_setting)
    entries += _from_variables(where.environment, known, 3, "environment ", is_setting)
    entries += _from_secrets(where, known)
    for key, value in where.flags.items():
        entries.append(SettingEntry(tuple(part.strip() for part in key.split(".")), value, 5, f"flag {key}"))
    return sorted(entries, key=lambda entry: entry.rank)


def variable_prefix(app: str) -> str:
    """The prefix of the variables of an app: ``HOUSE_`` for ``house``."""
    return re.sub(r"\W", "_", app).upper() + "_"


def variable(app: str | None, path: Iterable[str]) -> str:
    """The variable that sets a path. None for `app`: it is in a section of an extension."""
    parts = [part.upper() for part in path]
    shared = parts[0].lower() in (*SECTIONS, DEVICES)
    return "__".join(parts) if app is None or shared else variable_prefix(app) + "__".join(parts)


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
    from leadsman.core.settings.documents import line_of, read_text, toml_document, yaml_document  # for a file

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
    from leadsman.core.settings.documents import read_text  # for a file

    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(_ASSIGNMENT, line)
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
    variables: Mapping[str, str], known: Known, rank: int, origin: str, is_setting: IsSetting
) -> Iterator[SettingEntry]:
    for name, value in variables.items():
        path = _path(name, known)
        if path is None or (_is_link(name, value) and not is_setting(path)) or (not value and not is_setting(path)):
            continue  # an empty one of leadsman's is as one that is not there: `MQTT__USERNAME: ${USER_OF_THE_BROKER}`
        if name.endswith("_FILE") and not is_setting(path):
            yield SettingEntry(_path(name.removesuffix("_FILE"), known) or path, Path(value), 4, f"{origin}{name}")
        else:
            yield SettingEntry(path, value, rank, f"{origin}{name}")


def _is_link(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable for a service. The names that it makes never have two underscores in a
    row."""
    if "__" in name:
        return False
    bare = name.endswith("_PORT") and re.fullmatch(_LINK_ADDRESS, value)
    return bool(bare or re.fullmatch(_LINK, name))


def _from_secrets(where: Where, known: Known) -> Iterator[SettingEntry]:
    for directory in (where.secrets, Path(where.environment.get("CREDENTIALS_DIRECTORY") or where.secrets)):
        try:
            files = sorted(directory.iterdir())
        except OSError:
            continue
        for file in files:
            path = _path(file.name.upper(), known)
            if path is not None:
                yield SettingEntry(path, file, 4, f"secret {file}")


def _path(name: str, known: Known) -> SettingPath | None:
    section, separator, key = name.partition("__")
    if separator and section.isupper() and section.lower() in known.own:
        return section.lower(), *(part.lower() for part in key.split("__"))
    if separator and section.isupper() and section.lower() in SECTIONS:
        return section.lower(), key.lower()
    if separator and section == DEVICES.upper():
        return DEVICES, *(part.lower() for part in key.split("__"))
    if name.startswith(RETRY_PREFIX):
        return retry_path(name)
    if name.startswith(known.prefix) and len(name) > len(known.prefix):
        return tuple(part.lower() for part in name.removeprefix(known.prefix).split("__"))
    return None
