"""``leadsman schema``: prints the JSON Schema of each topic of an app, or what changed since another one."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadsman.errors import ConfigurationError, InvalidValue
from leadsman.storage.given_file import read_given
from leadsman.text import count_noun
from leadsman.tools.cli.arguments import FAILED, OWN_PREFIX, TARGET, Subcommand, argument
from leadsman.tools.cli.tables import json_text
from leadsman.tools.cli.target import load_app

LARGEST = 64 * 1024 * 1024
"""Bytes of a document that is compared. A device has about 10 kB in it."""
_AGAIN = "make it with: leadsman schema house:app >"


def run(options: argparse.Namespace) -> int | None:
    """Print the schema of every topic, or compare it with an older one."""
    from leadsman.introspection.schema import schemas  # the help does not wait for pydantic

    app = load_app(options)
    shared = app.setup.standby is not None or app.setup.cluster is not None
    document = schemas(app.topics, {**app.telemetries, **app.sources}, app.commands, nodes=shared)
    if options.check is not None:
        return _check(options.check, document["topics"])
    print(json_text(document, indent=2))
    return None


def _check(path: Path, topics: Mapping[str, Any]) -> int:
    from leadsman.introspection.compatibility import compare

    try:
        changes = compare(_topics_of(path), topics)
    except InvalidValue as error:
        raise ConfigurationError(f"{path}: {error}; {_AGAIN} {path}") from None
    for line in changes.breaking:
        print(f"breaks  {line}")
    for line in changes.compatible:
        print(f"fine    {line}")
    if changes.breaking:
        print(f"{count_noun(len(changes.breaking), 'change')} may break consumers; if that is meant, write {path} anew")
        return FAILED
    print("no change breaks consumers")
    return 0


def _topics_of(path: Path) -> Mapping[str, Any]:
    """The topics of a document that this command printed.

    Raises:
        ConfigurationError: it cannot be read, or is another document.
    """
    try:
        data = read_given(path, LARGEST)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}; name another file") from None
    try:
        topics = json.loads(data)["topics"] if len(data) <= LARGEST else None
    except (ValueError, LookupError, TypeError, RecursionError):
        topics = None
    if not isinstance(topics, dict) or not all(isinstance(each, dict) for each in topics.values()):
        raise ConfigurationError(f"{path} has no schemas; {_AGAIN} {path}")
    return topics


COMMAND = Subcommand(
    run,
    "Prints one JSON document with a schema for each topic, made from the annotations of the "
    "handlers. The schemas include the units and classes of Sensor(…).\n\n"
    "With --check it compares them with a document that it printed before. A change that may break those who read the "
    "topics, or send to them, is a line: a field that is gone or may be missing, another type, value or unit, or "
    "a number or text that is no longer taken.",
    (
        "leadsman schema house:app | jq '.topics[\"house/air/state\"]'",
        "leadsman schema house:app > schema.json",
        "leadsman schema house:app --check schema.json",
    ),
    (
        *TARGET,
        OWN_PREFIX,
        argument("--check", "compare with the document in this file", type=Path, metavar="FILE", default=None),
    ),
    "With --check it exits with 1 if a change may break consumers.",
)
