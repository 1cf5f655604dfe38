"""``leadsman init``: writes a small app that works at once, from the templates beside this file."""

import argparse
import keyword
import secrets
import sys
from importlib import resources
from pathlib import Path
from string import Template

from leadsman.core.mqtt.topics import check_name
from leadsman.core.settings.sources import variable_prefix
from leadsman.errors import InvalidValue, LeadsmanError
from leadsman.tools.cli.arguments import Subcommand, argument, switch
from leadsman.tools.cli.tables import print_text

FILES = {
    "module.py.txt": "{name}.py",
    "leadsman.toml.txt": "leadsman.toml",
    "test_module.py.txt": "test_{name}.py",
    "pyproject.toml.txt": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "unit.service": "{name}.service",
    "README.md.txt": "README.md",
    "gitignore.txt": ".gitignore",
}

COMPOSE = {
    "compose.yaml.txt": "compose.yaml",
    "mosquitto.conf.txt": "mosquitto.conf",
    "environment.txt": ".env",
}
"""What ``--compose`` writes besides."""
MINIMAL = {"minimal.py.txt": "{name}.py"}


def run(options: argparse.Namespace) -> None:
    """Write a new app."""
    if options.minimal and options.compose:
        raise InvalidValue("--compose needs the Dockerfile that --minimal leaves out; leave out one of the two")
    directory = options.directory or Path("." if options.minimal else options.name)
    files = MINIMAL if options.minimal else FILES | COMPOSE if options.compose else FILES
    for path in write(options.name, directory, files):
        print_text(f"wrote {path}")
    steps = [f"leadsman check {options.name}:app", f"leadsman run {options.name}:app"]
    if directory != Path("."):
        steps.insert(0, f"cd {directory}")
    if not options.minimal:
        steps.append('pip install -e ".[test]" && python -m pytest')
    if options.compose:
        steps.append("pip wheel --no-deps --wheel-dir wheels leadsman .")
        steps.append("docker compose up --detach --build")
    print("\nNext:")
    for step in steps:
        print_text(step, "  ")


def write(name: str, directory: Path, files: dict[str, str] = FILES) -> list[Path]:
    """Write the files of a new app, and return their paths. If one of them exists already, nothing is written.

    Args:
        name: the name of the app and its module.
        directory: where to write.
        files: the names of the templates, each with that of the file that is made of it.

    Raises:
        InvalidValue: the name cannot be the name of a module.
        LeadsmanError: a file exists already, or the directory cannot be written to.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not name.isascii():
        raise InvalidValue(
            f"{name!r} cannot be the name of a module; write a word in small letters, such as house or gas_meter"
        )
    if name in sys.stdlib_module_names or name in ("leadsman", "pydantic"):
        raise InvalidValue(f"{name!r} is the name of another module; write another word, such as {name}_bridge")
    check_name(name)
    targets = {source: directory / target.format(name=name) for source, target in files.items()}
    taken = [path for path in targets.values() if path.exists()]
    if taken:
        raise LeadsmanError(f"{taken[0]} exists already, so nothing was written; choose another --directory")
    templates = resources.files("leadsman.tools.cli") / "templates"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        values = {"name": name, "variable": variable_prefix(name), "password": secrets.token_urlsafe(24)}
        for source, path in targets.items():
            text = (templates / source).read_text("utf-8")
            path.touch(0o600 if "$password" in text else 0o666)
            path.write_text(Template(text).safe_substitute(values), "utf-8")
    except OSError as error:
        raise LeadsmanError(f"{directory} cannot be written to: {error.strerror or error}") from None
    return list(targets.values())


COMMAND = Subcommand(
    run,
    "Writes a new directory with an app that works at once: it reads the disks of this machine. With "
    "--minimal it writes one file of a few lines. No existing file is overwritten.",
    (
        "leadsman init house && cd house && leadsman run house:app",
        "leadsman init sound --minimal && leadsman run sound:app",
        "leadsman init house --compose",
    ),
    (
        argument("name", "the name of the app, its module and its directory: one word, such as house", metavar="NAME"),
        switch("--minimal", "write NAME.py alone, with one device and no settings"),
        switch("--compose", "write a compose.yaml too, which runs the app and a broker, and .env with a new password"),
        argument("--directory", "where to write (default: ./NAME; with --minimal: .)", type=Path, metavar="DIR"),
    ),
)
