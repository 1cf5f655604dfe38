"""Write src/leadsman/extensions/http/openapi.json, the OpenAPI document of the HTTP endpoint, from the types of its
answers. A running app serves the file: to make the document would block the event loop.

Usage: ``python scripts/openapi.py``; with ``--check`` it only compares the file with the types.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from leadsman._version import __version__
from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.document_texts import add_texts, parts_of
from leadsman.core.introspection.schema import schema_of

FILE = Path(__file__).parent.parent / "src" / "leadsman" / "extensions" / "http" / "openapi.json"
DOCUMENTS = documents_of()
"""With what leadsman ships. What other extensions add is not in the file."""
_PROBLEM = "application/problem+json"
_WHY = {
    "400": "The request is wrong; the detail says how to write it.",
    "401": "The token is missing or wrong.",
    "403": "A page of another origin sent it.",
    "404": "There is no such device.",
    "408": "The body did not arrive in time.",
    "409": "The state of the device does not allow it; the detail says why.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "421": "The name in the Host header is not one of this endpoint.",
    "502": "The device failed.",
    "503": "Too many requests are under way.",
    "504": "The poll takes too long.",
}


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    summary: str
    kind: Any
    """The type of the answer; None for text."""
    parameters: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    media_type: str = "application/json"
    failing: bool = False
    """Whether the answer comes with 503 too."""
    public: bool = False
    """Whether it needs no token."""


OPERATIONS = (
    Operation("get", "/", "The page, for people.", None, media_type="text/html", public=True),
    Operation(
        "get",
        "/introspect",
        "What the app is and how it is doing: all sections but the trace and the recent values, or those of the query.",
        DOCUMENTS.introspection,
        ("sections", "devices", "after", "since"),
        ("400", "404", "503"),
    ),
    Operation(
        "get",
        "/introspect/{device}",
        "One device, with its recent values and outcomes.",
        DOCUMENTS.introspection,
        ("device", "sections", "after", "since"),
        ("400", "404"),
    ),
    Operation(
        "get",
        "/trace",
        "The latest rows of the trace.",
        DOCUMENTS.introspection,
        ("devices", "after", "since"),
        ("400", "404", "503"),
    ),
    Operation(
        "get",
        "/ledger",
        "What became of each slot of each device, by the hour, and the gaps.",
        DOCUMENTS.introspection,
        ("devices", "since"),
        ("400", "404", "503"),
    ),
    Operation(
        "get",
        "/why/{device}",
        "Why a device is silent: the first link that passes no reading on, and what to do.",
        document.Verdict,
        ("device",),
        ("400", "404", "503"),
    ),
    Operation("get", "/registry", "The devices that the app offers, with their topics.", document.RegistryDocument),
    Operation(
        "get",
        "/events",
        "What happens, as server-sent events: a happening each, a beat every 5 s, and a reset where some were lost.",
        document.Happening | DOCUMENTS.beat | document.Reset,
        ("Last-Event-ID",),
        ("503",),
        "text/event-stream",
    ),
    Operation("get", "/livez", "Whether the process answers.", document.ProbeAnswer, public=True),
    Operation("get", "/readyz", "Whether the app polls its devices.", document.ProbeAnswer, failing=True, public=True),
    Operation(
        "get",
        "/healthz",
        "The health of the app.",
        document.HealthDocument,
        media_type="application/health+json",
        failing=True,
    ),
    Operation(
        "get",
        "/metrics",
        "What is measured, for Prometheus. It needs leadsman[metrics].",
        None,
        refusals=("404", "503"),
        media_type="text/plain",
    ),
    Operation("get", "/openapi.json", "This document.", dict[str, Any]),
    Operation(
        "post",
        "/devices/{device}/poll",
        "Poll a device now, and wait for the reading.",
        document.PollAnswer,
        ("device",),
        ("400", "404", "408", "409", "413", "415", "502", "504"),
    ),
    *(
        Operation(
            "post",
            f"/devices/{{device}}/{action}",
            summary,
            kind,
            ("device",),
            ("400", "404", "408", "409", "413", "415"),
        )
        for action, summary, kind in (
            ("hold", "Stop polling a device until somebody releases it.", document.HeldAnswer),
            ("release", "Poll a held device again, as if nothing had failed.", document.HeldAnswer),
            ("isolate", "Leave a device alone: isolate its circuit.", document.CircuitAnswer),
            ("close", "Close the circuit of a device, and reset its counters.", document.CircuitAnswer),
            ("disable", "Disable the circuit of a device: poll it whatever fails.", document.CircuitAnswer),
        )
    ),
)
_PARAMETERS = {
    "device": ("path", {"type": "string"}, "The name of a device."),
    "sections": (
        "query",
        {"type": "array", "items": schema_of(DOCUMENTS.request)["properties"]["sections"]["items"]},
        "Only these sections.",
    ),
    "devices": ("query", {"type": "array", "items": {"type": "string"}}, "Only these devices and side jobs."),
    "after": ("query", {"type": "integer", "minimum": 0}, "Only rows of the trace with a higher number."),
    "since": ("query", {"type": "number", "minimum": 0}, "Only rows of the trace from then on, epoch seconds."),
    "Last-Event-ID": ("header", {"type": "string"}, "Go on after the happening with this number."),
}


def openapi() -> dict[str, Any]:
    """The OpenAPI document."""
    kinds = [each.kind for each in OPERATIONS if each.kind is not None] + [document.Problem, document.By]
    schemas, definitions = TypeAdapter.json_schemas(
        [(kind, "serialization", TypeAdapter(kind)) for kind in kinds],
        ref_template="#/components/schemas/{model}",
    )
    for part in {part for kind in kinds for part in parts_of(kind)}:
        add_texts(definitions["$defs"][part.__name__], part)
    found = {repr(kind): schema for (kind, _), schema in schemas.items()}
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method] = _operation(each, found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "leadsman",
            "version": __version__,
            "description": "What an app is, how it is doing, what happens in it, and what a person may ask of it.",
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(each: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "string"} if each.kind is None else schemas[repr(each.kind)]
    if each.media_type == "text/event-stream":
        schema = {"type": "string", "description": "The data of each event is JSON.", "contentSchema": schema}
    answer = {"description": "The answer.", "content": {each.media_type: {"schema": schema}}}
    responses: dict[str, Any] = {"200": answer} | (
        {"503": answer | {"description": "It is not."}} if each.failing else {}
    )
    refusals = [*each.refusals, "421", *(() if each.public else ("401", "403"))]
    problem = {_PROBLEM: {"schema": schemas[repr(document.Problem)]}}
    for status in sorted(refusals):
        responses[status] = {"description": _WHY[status], "content": problem}
    found: dict[str, Any] = {"summary": each.summary, "responses": responses}
    if each.parameters:
        found["parameters"] = [_parameter(name) for name in each.parameters]
    if each.method == "post":
        found["requestBody"] = {"content": {"application/json": {"schema": schemas[repr(document.By)]}}}
    if each.public:
        found["security"] = []
    return found


def _parameter(name: str) -> dict[str, Any]:
    place, schema, description = _PARAMETERS[name]
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": description}


def text() -> str:
    """The document as it is written to the file."""
    return json.dumps(openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if "--check" not in sys.argv:
        FILE.write_text(text(), "utf-8")
    elif FILE.read_text("utf-8") != text():
        sys.exit("run: python scripts/openapi.py")
