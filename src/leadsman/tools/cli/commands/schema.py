"""``leadsman schema``: prints the JSON Schema of each topic of an app."""

import argparse
import os

from leadsman.core.wiring.plan import extension_topics
from leadsman.tools.cli.arguments import OWN_PREFIX, TARGET, Subcommand
from leadsman.tools.cli.tables import json_text
from leadsman.tools.cli.target import load_app


def run(options: argparse.Namespace) -> None:
    """Print the schema of every topic."""
    from leadsman.core.introspection.schema import schema_of  # the help does not wait for these
    from leadsman.core.introspection.topic_schemas import schemas

    app = load_app(options)
    shared, own = app.setup.shares is not None, app.setup.extensions
    found = schemas(app.topics, {**app.telemetries, **app.sources}, app.commands, shared=shared, own=own)
    for _, topic in extension_topics(app.plan(os.environ)) if own else ():
        if topic.payload is not None:
            taken = topic.access == "read"
            schema = schema_of(topic.payload, "validation" if taken else "serialization")
            found["topics"][topic.filter] = schema | ({"direction": "in"} if taken else {})
    print(json_text(found, indent=2))


COMMAND = Subcommand(
    run,
    "Prints one JSON document with a schema for each topic, made from the annotations of the "
    "handlers. The schemas include the units and classes of Sensor(…).",
    (
        "leadsman schema house:app | jq '.topics[\"house/air/state\"]'",
        "leadsman schema house:app > schema.json",
    ),
    (*TARGET, OWN_PREFIX),
)
