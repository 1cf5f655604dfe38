"""The schema of each document: what its fields mean is in it, and on the reference page, which is made from it."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from typing_extensions import is_typeddict

from leadsman import extensions
from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.document import Answer, CircuitRequest, Plain, RegistryDocument
from leadsman.core.introspection.document_texts import parts_of
from leadsman.core.introspection.schema import schema_of
from leadsman.core.monitoring.document import DeviceHealth, FaultMessage, HealthFile, OutageMessage

Status, Introspection, Request = (getattr(documents_of(), name) for name in ("status", "introspection", "request"))
DOCUMENTS = (Status, Introspection, Answer, Request, Plain, CircuitRequest, OutageMessage, FaultMessage, DeviceHealth)
DOCUMENTS += (document.HealthDocument, document.Beat, document.Reset, document.Problem, document.ProbeAnswer)
DOCUMENTS += (document.Verdict, document.CommandResult, document.HeldAnswer, document.CircuitAnswer)
DOCUMENTS += (document.PollAnswer, document.By, RegistryDocument, HealthFile)


def of_extensions():
    """The documents of the extensions that there are."""
    folder = Path(extensions.__file__).parent
    for file in sorted(each for name in ("document", "declared", "report") for each in folder.glob(f"*/{name}.py")):
        module = import_module(f"leadsman.extensions.{file.parent.name}.{file.stem}")
        yield from (each for each in vars(module).values() if is_typeddict(each) and each.__module__ == module.__name__)


DOCUMENTS += tuple(of_extensions())
WHEN = re.compile(
    r"\b(left out|present only|only (in|of|with|rows|the)|of a device that fails|if the request names|has none"
    r"|while the poll retries)",
    re.IGNORECASE,
)
"""How a text says when its field is there: that of the field, or that of the document for all of them."""
SECONDS = re.compile(r"_s$|^(uptime|oldest|interval|timeout|delay|age|silence|spread|budget|within|expiry)$")


def fields():
    """Each field of each document and of its parts, with its schema."""
    seen = set()
    for kind in DOCUMENTS:
        whole = schema_of(kind)
        for part in parts_of(kind):
            if part not in seen:
                seen.add(part)
                schema = whole if part is kind else whole["$defs"][part.__name__]
                explained = WHEN.search(schema["description"]) is not None
                for name, each in schema["properties"].items():
                    known = explained or name in schema.get("required", ())
                    yield pytest.param(name, each, known, id=f"{part.__name__}.{name}")


FIELDS = list(fields())


@pytest.mark.parametrize(("name", "schema", "known"), FIELDS)
def test_each_field_says_what_it_means_and_when_it_is_there(name, schema, known):
    text = schema.get("description", "")

    assert text.endswith((".", "…")), "write its meaning below it"
    assert known or WHEN.search(text), "write when it is there"


@pytest.mark.parametrize(("name", "schema", "known"), FIELDS)
def test_times_and_durations_have_their_unit(name, schema, known):
    branches = [schema, *schema.get("anyOf", ())]
    numbers = [each for each in branches if each.get("type") in ("number", "integer")]
    if name.endswith("_at") or name in ("since", "until"):
        assert any(each.get("format") == "date-time" or each.get("unit") for each in branches) or name == "since"
    for each in numbers:
        assert not SECONDS.search(name) or each.get("unit"), "a duration says its unit"


@pytest.mark.parametrize(
    ("kind", "path", "values"),
    [
        (Status, ("state",), {"online", "offline"}),
        (Status, ("health",), {"ok", "degraded"}),
        (OutageMessage, ("event",), {"onset", "reminder", "recovered"}),
    ],
)
def test_a_closed_set_of_words_is_an_enum(kind, path, values):
    assert set(schema_of(kind)["properties"][path[0]]["enum"]) == values


def test_a_status_is_an_enum_in_the_heartbeat_and_in_introspection():
    heartbeat, introspection = schema_of(Status)["$defs"], schema_of(Introspection)["$defs"]

    assert heartbeat["StatusDevice"]["properties"]["status"]["enum"]
    assert (
        heartbeat["StatusDevice"]["properties"]["status"]["enum"]
        == introspection["Runtime"]["properties"]["status"]["enum"]
    )


def test_the_heartbeat_and_introspection_have_one_name_for_one_thing():
    heartbeat, introspection = schema_of(Status)["$defs"], schema_of(Introspection)["$defs"]
    outbox = set(heartbeat["StatusOutbox"]["properties"]) - {"dropped_last_minute"}
    device = set(heartbeat["StatusDevice"]["properties"])

    assert outbox <= set(introspection["OutboxSection"]["properties"])
    assert set(heartbeat["StatusMqtt"]["properties"]) <= set(introspection["MqttSection"]["properties"])
    known = set(introspection["Runtime"]["properties"]) | set(introspection["Counters"]["properties"])
    assert device <= known
