"""``leadsman poll``: asks a running app to poll a device now, and prints what it read, with units."""

import argparse
from typing import TYPE_CHECKING

from leadsman.core.introspection.situation import describe_fields
from leadsman.core.mqtt.topics import Topics
from leadsman.core.text import clean
from leadsman.errors import LeadsmanError
from leadsman.tools.cli.arguments import (
    APP,
    ONE_DEVICE,
    PREFIX,
    SETTINGS,
    Subcommand,
    UsageError,
    argument,
    duration,
    switch,
)
from leadsman.tools.cli.remote import any_version, ask, one_device, process, running_app
from leadsman.tools.cli.tables import json_text, print_text

if TYPE_CHECKING:
    from leadsman.core.introspection.document import DeviceSection

EXISTENCE_TIMEOUT = 5.0
"""Seconds for the answer whether there is such a device; the poll itself may take longer."""


def run(options: argparse.Namespace) -> None:
    """Poll a device now, and print its reading."""
    name = one_device(options)
    if name is None:
        raise UsageError("name the device: leadsman poll boiler")
    brokers, prefix = running_app(options)
    where = process(brokers, prefix, (name,))
    request = {"sections": ["app", "devices", "fields"], "devices": [name]}
    about = ask(brokers, where.introspect, request, min(options.timeout, EXISTENCE_TIMEOUT))
    with any_version():
        if reason := _not_polled(about["devices"].get(name)):
            raise LeadsmanError(f"{clean(name)} {reason}")
        topics, terms = Topics(prefix, about["app"].get("root")), about.get("fields", {}).get(name, {})
    fields = ask(brokers, topics.of(name, "get"), {}, options.timeout, may_be_empty=True)
    if options.json:
        print(json_text(fields))
    elif fields is None:
        print_text(f"{name}: polled; its handler returned no reading, so nothing was published")
    else:
        print_text(f"{name}: {describe_fields(fields, terms)}")


def _not_polled(section: "DeviceSection | None") -> str:
    """Why nobody can poll a device; empty text if one can."""
    if section is None:
        return "is a side job, which has no readings"
    kinds = {each["kind"] for each in section["registrations"]}
    if "telemetry" in kinds:
        return ""
    if "source" in kinds:
        return "is a source: it publishes readings by itself, and cannot be polled"
    if "event" in kinds:
        return "sends events when they happen, and nobody can ask it for one"
    return "accepts commands only, and has no readings"


COMMAND = Subcommand(
    run,
    "Asks a running app to poll a device now, beside its schedule, and prints the reading, or why there is none. The "
    "reading is published even if the publish rule would not publish it. A device that is held, asked for a pause or "
    "has an open circuit is not polled. Without MODULE:APP and --prefix, the only app at the broker is asked, or the "
    "only one there that has the device.",
    (
        "leadsman poll boiler",
        "leadsman poll boiler --prefix house --mqtt mqtt://broker.lan",
        "leadsman poll house:app boiler --json | jq .celsius",
    ),
    (
        ONE_DEVICE,
        APP,
        *SETTINGS,
        PREFIX,
        argument(
            "--timeout",
            "how long to wait for the reading, retries included (default: 1m)",
            metavar="TIME",
            type=duration,
            default=60.0,
        ),
        switch("--json", "print the fields of the reading as JSON; null if there is none"),
    ),
    "Exits with 0 if the device was read, 1 if it was not, or if nothing answers.",
)
